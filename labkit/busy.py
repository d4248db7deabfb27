"""Is someone else busy here? What other programs take of the cores that this process may use.

Two programs that compute at once slow each other: beside another busy kernel one training fell
from 1661 to 77 images per second, since torch's waiting threads spin. What all cores have worked,
and not for this process nor its children, was for others.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

import psutil

# The part of the wanted cores that others have to leave.
ENOUGH = 0.8


class Others:
    """What other programs take, counted from when it is made."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._since, self._busy, self._own = time.perf_counter(), busy_seconds(), own_seconds()

    def taken(self) -> float:
        """How many cores others took on average."""
        busy, own = busy_seconds() - self._busy, own_seconds() - self._own
        return max(0.0, busy - own) / (time.perf_counter() - self._since)

    def in_the_way(self, wanted: int) -> str | None:
        """Why a measurement on so many cores says little; None where they were free."""
        taken = self.taken()
        if taken <= cores() - ENOUGH * min(wanted, cores()):
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


def _numbers() -> set[int]:
    """The cores that this process may use, by their number; macOS gives it all of them."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def cores() -> int:
    """CPU cores that this process may use."""
    return len(_numbers())


def busy_seconds() -> float:
    """Seconds that this process's cores have worked, for anybody."""
    numbers, seconds = _numbers(), 0.0
    cores_there = psutil.cpu_times(percpu=True)
    for number, times in enumerate(cores_there):
        # Cores that are switched off have no place in the list: then numbers are no places.
        if number in numbers or len(cores_there) == len(numbers):
            # Those of guests, behind the first eight, are in the first two already.
            seconds += sum(times[:8]) - times.idle - getattr(times, "iowait", 0.0)
    return seconds


def own_seconds() -> float:
    """Seconds that this process and all below it have worked; children that have ended, too."""
    below = 0.0
    for process in psutil.Process().children(recursive=True):
        # It may have ended.
        with suppress(psutil.NoSuchProcess):
            below += sum(process.cpu_times()[:4])
    # Read last: a child that ends meanwhile moves into it.
    return sum(os.times()[:4]) + below
