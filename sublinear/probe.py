"""Bytes and seconds of a stretch of code, measured on its device."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

import torch
from torch import profiler

from labkit.device import synchronize
from labkit.memory import StorageTracker
from labkit.restore.collector import without_collector

# The two fastest times of a part differ by at most this share of all parts together.
CLOSE = 0.1
# At most so many times as many runs as were asked for.
MORE = 5

Step = Callable[[], object]


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
    """What `probing` gives. A `Phase` has a peak of its own; there is one phase at a time.

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


def fastest(take: Callable[[], Sequence[float]], repeats: int) -> tuple[float, ...]:
    """The least seconds of each part that ``take`` times, of about ``repeats`` runs.

    What else runs on a machine only adds to a time, so the least is the best figure, once a second
    run is near it. Until then runs are added, up to `MORE` times ``repeats``. A single run,
    ``repeats=1``, is taken as it is.
    """
    runs = [take() for _ in range(min(2, repeats))]
    while repeats > 1 and not _agreed(runs) and len(runs) < MORE * repeats:
        runs.append(take())
    return tuple(map(min, zip(*runs, strict=True)))


def _agreed(runs: Sequence[Sequence[float]]) -> bool:
    """Whether each part has a second time that is near its least; of two runs or more."""
    parts = [sorted(part) for part in zip(*runs, strict=True)]
    whole = sum(part[0] for part in parts)
    return all(part[1] - part[0] <= CLOSE * whole for part in parts)


# ------------------------------------------------------------------------------- of compiled code


def most_allocated(step: Step) -> int:
    """The most bytes that a step holds on the CPU beyond those before it, by torch's allocator.

    Compiled code hands what it makes to no operator. Work space of operators is seen too.
    RuntimeError while another profiler runs.
    """
    cpu = [profiler.ProfilerActivity.CPU]
    with profiler.profile(activities=cpu, profile_memory=True, acc_events=True) as seen:
        step()
    events = [each for each in seen.profiler.kineto_results.events() if each.name() == "[memory]"]
    alive = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        alive += event.nbytes()
        most = max(most, alive)
    return most


def peak_of_compiled(plain: Step, compiled: Step) -> int:
    """Bytes of a compiled step: what it allocates, and older tensors that the plain one uses."""
    with StorageTracker("cpu") as tracker:
        plain()
    return tracker.existing + most_allocated(compiled)
