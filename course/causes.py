"""Which notebook is about a cause that whyslow names: of time, of memory, or of a line."""

from __future__ import annotations

from collections.abc import Iterator

from whyslow import Diagnosis, remedies, stacks

NOTEBOOKS = {
    "01_timing_and_vectorization": (
        remedies.BESIDE,
        remedies.FEW_THREADS,
        remedies.MANY_THREADS,
        remedies.SMALL_WORK,
        stacks.LOGGING,
        stacks.OWN,
    ),
    "04_data_loading": (remedies.WAITS, remedies.RESTARTS, stacks.LOADING, stacks.WAITING),
    "05_batch_size": (remedies.BATCH,),
    "06_mixed_precision": (remedies.PRECISION, stacks.FORWARD, stacks.BACKWARD),
    "08_optimizers": (remedies.LOOP, stacks.UPDATE),
    "09_cudnn_benchmark": (remedies.LAYOUT, remedies.NO_SEARCH, remedies.DETERMINISTIC),
    "10_host_device_transfers": (remedies.HOST, remedies.PAGEABLE, stacks.HOST),
    "11_activation_checkpointing": (remedies.RECOMPUTED,),
    "17_debug_tools": (remedies.ANOMALY, remedies.PROFILER),
    "20_validation_without_grad": (remedies.VALIDATION, remedies.GROWTH, stacks.VALIDATION),
    "22_compile_and_cuda_graphs": (remedies.RECOMPILED, remedies.UNCOMPILED, stacks.COMPILING),
    "23_find_the_bottleneck": (stacks.START, stacks.OUTSIDE),
}
_BY_CAUSE = {cause: name for name, causes in NOTEBOOKS.items() for cause in causes}


def notebook_of(cause: str) -> str:
    """The notebook about a cause, as in ``04_data_loading``. KeyError for a name of none."""
    return _BY_CAUSE[cause]


def further(diagnosis: Diagnosis) -> Iterator[str]:
    """A line for each finding: what it is called, and where to read on."""
    for finding in diagnosis:
        yield f"{finding.name}: notebook {notebook_of(finding.name)}"
