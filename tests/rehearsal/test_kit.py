"""The tests of labkit and sublinear that have a CUDA branch, on a rehearsed card of 80 GB.

What cannot be rehearsed stands in `LEFT_OUT`, with the reason.
"""

from __future__ import annotations

import re

from tests.rehearsal.test_rehearsal import rehearse

FILES = (
    "tests/labkit/test_accelerators.py",
    "tests/labkit/test_arms.py",
    "tests/labkit/test_counters.py",
    "tests/labkit/test_device.py",
    "tests/labkit/test_lr_finder.py",
    "tests/labkit/test_machine.py",
    "tests/labkit/test_memory.py",
    "tests/labkit/test_preserve.py",
    "tests/labkit/test_process.py",
    "tests/labkit/test_timing.py",
    "tests/sublinear/test_fit.py",
    "tests/sublinear/test_probe.py",
)
LEFT_OUT: dict[str, str] = {}


def test_what_has_a_branch_for_CUDA_passes_on_a_card() -> None:
    command = ["-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "-o", "addopts=", *FILES]
    for name in LEFT_OUT:
        command += ["--deselect", name]
    done = rehearse(*command, cards="80")
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None and int(passed[1]) > 100, done.stdout[-2000:]
    assert "needs CUDA" not in done.stdout and "no CUDA device" not in done.stdout
