"""What is looked for: one module each.

A check by experiment yields `Experiment`s for a subject, none where it does not apply. A check by
the clock, or by counting, returns findings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from whyslow.checks import (
    batch_size,
    gradients,
    layout,
    optimizer,
    precision,
    recomputation,
    switches,
    syncs,
    threads,
    transfers,
)
from whyslow.experiment import Experiment
from whyslow.subject import Subject

# With what each looks for, in the reader's words.
EXPERIMENTS: dict[Callable[[Subject], Iterator[Experiment]], str] = {
    switches.experiments: "debugging switches left on",
    syncs.experiments: "reads that wait for an accelerator",
    threads.experiments: "the number of CPU threads",
    precision.experiments: "precision",
    batch_size.experiments: "a small batch",
    gradients.experiments: "gradients that nobody uses",
    recomputation.experiments: "recomputation",
    optimizer.experiments: "updates parameter by parameter",
    layout.experiments: "the layout of images",
    transfers.experiments: "copies to an accelerator",
}
