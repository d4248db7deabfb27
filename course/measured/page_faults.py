"""Page faults of a training step, counted in the process that runs it."""

from __future__ import annotations

import functools
import mmap
import time
from collections.abc import Callable
from resource import RUSAGE_SELF, getrusage
from typing import Any

from course.measured.filed import Filed
from labkit.results import Workload

# Steps before the first one that is counted; the count is noted behind so many more.
WARM, COUNTED = 2, (1, 2, 4, 8)
# Bytes that are touched to time a page fault.
TOUCHED = 32 * 2**20


class PageFaults(Filed):
    """Counts of the steps that were `watch`ed, by their settings, also in other processes."""

    def counted(self, make: Callable[..., Workload]) -> Callable[..., Workload]:
        """The same ``make_workload``, whose steps are watched under their settings."""
        return self.watching(make, lambda step, settings: self.watch(step, **settings))

    def watch(self, step: Callable[[], Any], **settings: object) -> Callable[[], Any]:
        """The same step; a few of its first calls are counted, together."""
        calls = before = 0

        def watched() -> Any:
            nonlocal calls, before
            if calls == WARM:
                before = so_far()
            calls += 1
            result = step()
            if (counted := calls - WARM) in COUNTED:
                faults = (so_far() - before) / counted
                self.keep(settings, faults)
            return result

        return watched

    def of(self, settings: dict[str, Any]) -> float | None:
        """Page faults per step with these settings; None where no step was counted."""
        return self.kept(settings)


def so_far() -> int:
    """The page faults of this process until now that needed no disk."""
    return getrusage(RUSAGE_SELF).ru_minflt


@functools.cache
def fault_seconds() -> float:
    """Seconds that a page fault takes here: fresh pages against the same ones once more.

    0.0 where the system counts none. Takes a few hundredths of a second, once.
    """
    with mmap.mmap(-1, TOUCHED) as pages:
        first, faults = _touch(pages)
        again, _ = _touch(pages)
    return max(0.0, first - again) / faults if faults else 0.0


def _touch(pages: mmap.mmap) -> tuple[float, int]:
    """Write a byte into each page: seconds, and page faults."""
    count = TOUCHED // mmap.PAGESIZE
    before, begin = so_far(), time.perf_counter()
    pages[:: mmap.PAGESIZE] = b"x" * count
    return time.perf_counter() - begin, so_far() - before
