"""Page faults of a training step, counted in the process that runs it."""

from __future__ import annotations

import functools
import json
import mmap
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any

from labkit.results import Workload

# Steps before the first one that is counted; the count is noted behind so many more.
WARM, COUNTED = 2, (1, 2, 4, 8)
# Bytes that are touched to time a page fault.
TOUCHED = 32 * 2**20


class PageFaults:
    """Counts of the steps that were `watch`ed, by their settings, also in other processes.

    They travel in small files, in a folder that goes with the object that made it.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="page-faults-")
        self._path = self._folder.name

    def __getstate__(self) -> dict[str, str]:
        """A copy in another process knows the folder, and does not end it."""
        return {"_path": self._path}

    def counted(self, make: Callable[..., Workload]) -> Callable[..., Workload]:
        """The same ``make_workload``, whose steps are watched under their settings."""

        @functools.wraps(make)
        def made(**settings: Any) -> Workload:
            workload = make(**settings)
            return replace(workload, step=self.watch(workload.step, **settings))

        return made

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
                self._file(settings).write_text(json.dumps(faults), encoding="utf-8")
            return result

        return watched

    def of(self, settings: dict[str, Any]) -> float | None:
        """Page faults per step with these settings; None where no step was counted."""
        file = self._file(settings)
        return float(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else None

    def _file(self, settings: dict[str, Any]) -> Path:
        words = [f"{name}-{value}".replace(" ", "-") for name, value in sorted(settings.items())]
        return Path(self._path) / f"{'_'.join(words)}.json"


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
