"""Is someone else busy here? What other programs take of the cores that this process may use.

Two programs that compute at once slow each other: beside another busy kernel one training fell
from 1661 to 77 images per second, since torch's waiting threads spin. Linux counts the work of all
cores in ``/proc/stat``; what is not of this process, nor of its children, is of others. Elsewhere
nobody counts it, and the answer is that it is unknown.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
# Columns of /proc/stat after its name that are no work: idle, and waiting for a disk.
_IDLE = (3, 4)
# The part of the wanted cores that others have to leave.
ENOUGH = 0.8


class Others:
    """What other programs take, counted from when it is made."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._since, self._busy, self._own = time.perf_counter(), busy_seconds(), own_seconds()

    def taken(self) -> float | None:
        """How many cores others took on average; None where that is unknown."""
        busy, elapsed = busy_seconds(), time.perf_counter() - self._since
        if busy is None or self._busy is None or elapsed <= 0:
            return None
        return max(0.0, busy - self._busy - (own_seconds() - self._own)) / elapsed

    def in_the_way(self, wanted: int) -> str | None:
        """Why a measurement on so many cores says little; None where they were free, or unknown."""
        taken = self.taken()
        if taken is None or taken <= cores() - ENOUGH * min(wanted, cores()):
            return None
        return f"other programs took {taken:.1f} of {cores()} cores meanwhile"

    def notice(self, wanted: int) -> str:
        """As a sentence, "" where there is none; the next one is about the time from now on."""
        reason = self.in_the_way(wanted)
        self._begin()
        if reason is None:
            return ""
        advice = "Close other programs, or wait, and run again."
        return f"{reason.capitalize()}: these figures are disturbed. {advice}"


def cores() -> int:
    """CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def busy_seconds() -> float | None:
    """Seconds that this process's cores have worked, for anybody; None where nobody counts it."""
    stat = _PROC / "stat"
    if not stat.exists() or not hasattr(os, "sched_getaffinity"):
        return None
    names = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    ticks = 0
    for line in stat.read_text(encoding="utf-8").splitlines():
        name, *columns = line.split()
        if name in names:
            # The last two, of guests, are in the first two already.
            ticks += sum(int(each) for at, each in enumerate(columns[:8]) if at not in _IDLE)
    return ticks / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """Seconds that this process and all below it have worked; children that have ended, too."""
    below = sum(_worked_below(os.getpid()))
    # Read last: a child that ends meanwhile moves into it.
    return sum(os.times()[:4]) + below


def _worked_below(process: int) -> Iterator[float]:
    """The seconds of each process that has this one above it."""
    parents, seconds = {}, {}
    for stat in _PROC.glob("[0-9]*/stat"):
        # It may have ended.
        with suppress(FileNotFoundError, ProcessLookupError):
            # Its name, in brackets, may hold anything.
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
            number = int(stat.parent.name)
            parents[number] = int(fields[1])
            seconds[number] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    for number, worked in seconds.items():
        above = parents[number]
        while above in parents and above != process:
            above = parents[above]
        if above == process:
            yield worked
