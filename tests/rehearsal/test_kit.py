"""The tests of labkit and sublinear that have a CUDA branch, on a rehearsed card of 80 GB.

What cannot be rehearsed, or takes long and adds nothing, stands in `LEFT_OUT` with the reason.
"""

from __future__ import annotations

import re

from tests.rehearsal.test_rehearsal import rehearse

FILES = (
    "tests/labkit/test_accelerators.py",
    "tests/labkit/test_counters.py",
    "tests/labkit/test_device.py",
    "tests/labkit/test_lr_finder.py::test_cuda_model_and_generator_are_bit_identical_afterwards",
    "tests/course/test_machine.py",
    "tests/labkit/test_memory.py",
    "tests/labkit/test_restore.py",
    "tests/labkit/test_timing.py",
    "tests/course/test_small_gpu.py::test_an_emulated_card_is_as_small_as_it_says",
    "tests/sublinear/test_probe.py",
)
MODE = "the rehearsal has a function mode of its own beside that of a default device"
LEFT_OUT = {
    "tests/labkit/test_counters.py::test_copies_from_a_device_are_host_reads": (
        "fake tensors are not rehearsed; kit_checks counts real copies"
    ),
    "tests/labkit/test_memory.py::test_a_thread_that_outlives_the_block_is_left_alone": (
        "it counts torch's modes, and the rehearsal has one of its own"
    ),
    "tests/labkit/test_memory.py::test_compiled_code_stays_compiled": (
        "what is compiled runs without any mode in the rehearsal"
    ),
    "tests/labkit/test_restore.py::test_the_default_device_is_given_back_and_costs_nothing_where"
    "_there_was_none": MODE,
    "tests/labkit/test_restore.py::test_a_device_that_a_block_has_chosen_is_left_to_it": MODE,
    "tests/course/test_machine.py::test_measuring_leaves_no_trace": "20 s, as test_measured_card",
    "tests/course/test_machine.py::test_doctor": "20 s, as test_measured_card",
}


def test_what_has_a_branch_for_CUDA_passes_on_a_card() -> None:
    command = ["-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "-o", "addopts=", "-rs"]
    for name in LEFT_OUT:
        command += ["--deselect", name]
    done = rehearse(*command, *FILES, cards="80")
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None and int(passed[1]) > 150, done.stdout[-2000:]
    assert "SKIPPED" not in done.stdout, done.stdout[-2000:]
