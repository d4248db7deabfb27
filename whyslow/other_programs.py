"""What other programs take of this process's cores meanwhile, by the operating system's counters.

How many threads are best depends on how many cores are free. Beside other programs an experiment
with threads would find out about those programs, not about the step.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from whyslow.subject import cores

_STAT = Path("/proc/stat")
# Columns of /proc/stat after its name that are no work: idle, and waiting for a disk.
_IDLE = (3, 4)
# From so many cores on that others take of those that are wanted.
MUCH = 0.5


class OtherPrograms:
    """Counts from when it is made."""

    def __init__(self) -> None:
        self._begin, self._busy, self._own = time.perf_counter(), busy_seconds(), own_seconds()

    def taken(self) -> float | None:
        """How many cores others took on average since; None where nobody counts it."""
        busy, elapsed = busy_seconds(), time.perf_counter() - self._begin
        if busy is None or self._busy is None or elapsed <= 0:
            return None
        return max(0.0, busy - self._busy - (own_seconds() - self._own)) / elapsed

    def in_the_way(self, wanted: int) -> str | None:
        """Why a measurement that wants so many cores says nothing; None where they were free."""
        taken = self.taken()
        if taken is None or taken <= cores() - min(wanted, cores()) + MUCH:
            return None
        return f"other programs took {taken:.1f} of {cores()} cores meanwhile"


def busy_seconds() -> float | None:
    """Seconds that this process's cores have worked, for anybody; None where nobody counts it."""
    if not _STAT.exists() or not hasattr(os, "sched_getaffinity"):
        return None
    names = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    ticks = 0
    for line in _STAT.read_text(encoding="utf-8").splitlines():
        name, *columns = line.split()
        if name in names:
            # The last two, of guests, are in the first two already.
            ticks += sum(int(each) for at, each in enumerate(columns[:8]) if at not in _IDLE)
    return ticks / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """Seconds that this process's threads have worked, and its children that have ended."""
    return sum(os.times()[:4])
