"""What other programs take of the cores is told from what this process and its children take."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from labkit import busy
from labkit.busy import Others, cores, own_seconds

LOOP = [sys.executable, "-c", "while True: pass"]


@contextmanager
def other_programs(count: int) -> Iterator[None]:
    """Programs that take a core each and that are nobody's children: their parent has ended."""
    start = (
        "import subprocess, sys\n"
        f"print(*(subprocess.Popen({LOOP!r}, stdout=-3, stderr=-3).pid for _ in range({count})))"
    )
    told = subprocess.run([sys.executable, "-c", start], capture_output=True, text=True, check=True)
    try:
        yield
    finally:
        for number in told.stdout.split():
            os.kill(int(number), signal.SIGKILL)


def test_what_others_take_is_counted() -> None:
    with other_programs(cores()):
        others = Others()
        time.sleep(2)
        assert others.taken() > 0.5 * cores()
        assert "cores meanwhile" in str(others.in_the_way(cores()))
        assert others.notice(cores()).startswith("Other programs took ")
    # From the notice on.
    assert others._since > time.perf_counter() - 2


def test_what_children_take_is_ones_own() -> None:
    """A loader's workers are no other programs, while they live and when they have ended."""
    before = own_seconds()
    with subprocess.Popen(LOOP) as child:
        time.sleep(2)
        alive = own_seconds()
        child.kill()
    assert alive - before > 0.2
    assert own_seconds() >= alive


@pytest.mark.parametrize(
    ("others", "wanted", "free"), [(0.2, 2, True), (0.9, 2, False), (0.9, 1, True), (1.8, 9, False)]
)
def test_cores_that_others_take_are_in_the_way(
    monkeypatch: pytest.MonkeyPatch, others: float, wanted: int, free: bool
) -> None:
    monkeypatch.setattr(busy, "cores", lambda: 2)
    monkeypatch.setattr(Others, "taken", lambda self: others)
    reason = Others().in_the_way(wanted)
    assert (reason is None) == free
    assert free or f"{others} of 2 cores" in str(reason)
    said = Others().notice(wanted)
    assert (said == "") == free
    assert free or said.endswith("Close other programs, or wait, and run again.")
