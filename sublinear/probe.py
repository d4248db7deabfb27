"""Bytes and seconds of a stretch of code, measured on its device."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch

from labkit.device import synchronize
from labkit.memory import StorageTracker
from labkit.restore.collector import without_collector


@contextmanager
def probing(device: torch.device) -> Iterator[MemoryProbe]:
    """Bytes beyond those alive on entry.

    No garbage is collected meanwhile: when that happens is chance, and a cycle that holds a tensor
    counts as alive.
    """
    tracker = None if device.type == "cuda" else StorageTracker(device)
    with without_collector(), tracker or nullcontext():
        yield MemoryProbe(device, tracker)


class MemoryProbe:
    """What `probing` gives. A `phase` has a peak of its own; there is one phase at a time.

    On CUDA from the allocator, elsewhere exactly, by a `StorageTracker`.
    """

    def __init__(self, device: torch.device, tracker: StorageTracker | None) -> None:
        self.device, self._tracker = device, tracker
        if tracker is None:
            self.restart()
            self._begin = torch.cuda.memory_allocated(device)

    def restart(self) -> None:
        """Let ``peak`` begin anew."""
        if self._tracker:
            self._tracker.restart()
        else:
            torch.cuda.reset_peak_memory_stats(self.device)

    @property
    def added(self) -> int:
        """Bytes alive now; negative where some of those alive on entry were freed."""
        if self._tracker:
            self._tracker.record()
            return self._tracker.current - self._tracker.existing
        return torch.cuda.memory_allocated(self.device) - self._begin

    @property
    def peak(self) -> int:
        """The most bytes since entry, or since the last `restart`."""
        if self._tracker:
            self._tracker.record()
            return self._tracker.peak - self._tracker.existing
        return torch.cuda.max_memory_allocated(self.device) - self._begin

    def phase(self) -> Phase:
        """A part of what is probed, which is yet to begin."""
        return Phase(self)


class Phase:
    """The most bytes in a part of what a `MemoryProbe` sees: ``peak``, and ``above`` its begin.

    Begun and ended by calls, as it may be in a hook of autograd's; the last `end` counts.
    """

    def __init__(self, probe: MemoryProbe) -> None:
        self.probe = probe
        self.before = self.peak = 0

    def begin(self) -> None:
        self.before = self.probe.added
        self.probe.restart()

    def end(self) -> None:
        self.peak = self.probe.peak

    @property
    def above(self) -> int:
        """The peak beyond what was alive when the phase began."""
        return self.peak - self.before


class Clock:
    """Seconds since some moment, all work that was queued on the device included."""

    def now(self) -> float:
        synchronize()
        return time.perf_counter()
