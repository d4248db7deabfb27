"""An arm: where one side of a comparison lives, and how it is asked for its times.

That is this process (`LocalArm`), or others (`labkit.remote.RemoteArm`), behind one protocol,
`Arm`. A *side* is what a result calls it: settings and times, with nothing alive.

On CUDA a block is timed by events, with one synchronization at its end. They see the current
stream, so a step that uses others joins them before it returns. Another accelerator is timed by the
host's clock between two synchronizations. The loss that a step returns tells where it works; a step
that returns nothing counts as the accelerator once that is in use.

Peak memory is taken in a pass of its own with one arm alive: what `MemoryMeter` says of a warm
step. Batches that a workload holds and the step does not use are no part of it. Of a step that
replays a CUDA graph only what torch took from the driver is known (`labkit.graphs`).
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import asdict, replace
from typing import Any, Protocol

import torch

from labkit.counters import count
from labkit.device import (
    accelerator_in_use,
    check_current,
    release_memory,
    seed_all,
    synchronize,
)
from labkit.graphs import watched_replays
from labkit.memory import MemoryMeter
from labkit.memory_timeline import Timeline, record
from labkit.restore.collector import without_collector
from labkit.restore.switches import Flags, set_torch_flags, torch_flags
from labkit.results import Workload
from labkit.stages import BUILDING, UNWATCHED, Stages

Step = Callable[[], Any]
# Peak bytes: those of live tensors (None where they cannot be counted), and those that torch took
# from the driver (None except on CUDA).
Peak = tuple[int | None, int | None]
# Counts of one step by name, or why they cannot be had.
Counts = dict[str, int] | str


class ArmDied(RuntimeError):
    """The process of an arm ended before its work did: that is the result of its side."""


class Arm(Protocol):
    """Where one side of a comparison lives.

    ``samples`` (one step's), ``unit`` and ``device`` are known from `start` on. `start` after
    `close` builds the workload anew. What the workload raises comes through.
    """

    label: str
    settings: dict[str, Any]
    samples: float
    unit: str
    device: str

    def start(self, stages: Stages = UNWATCHED) -> float:
        """Build the workload and run its first step; seconds of that step.

        Halted where ``stages`` say that the run ends.
        """

    def block(self, steps: int) -> float:
        """Run ``steps`` steps; their seconds."""

    def check(self) -> None:
        """FloatingPointError when the last step returned nan or infinity."""

    # The next three are of one warm step of a fresh workload: they release the arm before and
    # after.

    def peak(self) -> Peak:
        """Its peak bytes."""

    def counters(self) -> Counts:
        """Its exact counts, or why they cannot be had."""

    def timeline(self) -> Timeline:
        """What is alive when."""

    def release(self) -> None:
        """Let go of the workload and its memory; the process that it lives in stays."""

    def close(self) -> None:
        """Release the workload and all that it holds, its process too. May be called twice."""


class LocalArm:
    """An `Arm` in this process.

    Switches of torch that ``make`` or the step sets (TF32, threads, anomaly mode ...) hold inside
    this arm's blocks only. ``seed`` is set before each build.
    """

    def __init__(
        self,
        make: Callable[[], Workload],
        label: str,
        settings: dict[str, Any] | None = None,
        seed: int | None = None,
    ) -> None:
        self.label, self.settings = label, settings or {}
        self.samples, self.unit, self.device = 1.0, "samples", "cpu"
        self._make, self._seed = make, seed
        self._workload: Workload | None = None
        self._flags: Flags | None = None
        self._last: object = None

    @contextlib.contextmanager
    def _inside(self) -> Iterator[None]:
        """Swap this arm's switches in, and the caller's back."""
        outside = torch_flags()
        if self._flags is not None:
            set_torch_flags(self._flags)
        try:
            yield
        except StopIteration:
            raise RuntimeError(
                f"the step of {self.label!r} has read its iterator to the end: a step runs many "
                "times; give it one batch again and again, or itertools.cycle(...)"
            ) from None
        except Exception as error:
            error.add_note(f"(while measuring {self.label!r})")
            raise
        finally:
            self._flags = torch_flags()
            set_torch_flags(outside)

    def enter(self) -> None:
        """Build the workload without running it."""
        with self._inside():
            self._build()

    def _build(self) -> Workload:
        """Seed, call ``make`` and check what it returned."""
        if self._seed is not None:
            seed_all(self._seed)
        workload = self._make()
        if not isinstance(workload, Workload):
            raise TypeError(
                f"what makes {self.label!r} returned {workload!r}; it must return "
                "Workload(step, samples)"
            )
        self._workload = workload
        self.samples, self.unit = workload.samples, workload.unit
        return workload

    def start(self, stages: Stages = UNWATCHED) -> float:
        """Build the workload and run its first step; seconds of that step.

        Between the two the run may end, by `Halted`. ``device`` is known afterwards, also where
        building it or the step failed. ValueError for a loss on an accelerator that is not the
        current one.
        """
        stages.enter(BUILDING)
        try:
            with self._inside():
                step = self._build().step
                stages.check()
                device = accelerator_in_use()
                if device is not None:
                    _load_libraries(device)
                seconds, self._last = _timed(step, 1, device or "cpu")
                if isinstance(self._last, torch.Tensor):
                    check_current(self._last.device)
        finally:
            self.device = self._where()
        self.check()
        return seconds

    def _where(self) -> str:
        """Where the last step worked, by its loss; without one, the accelerator that is in use."""
        in_use = accelerator_in_use()
        if in_use is None:
            return "cpu"
        if isinstance(self._last, torch.Tensor):
            return self._last.device.type
        return in_use

    def block(self, steps: int) -> float:
        """Run ``steps`` steps; their seconds."""
        assert self._workload is not None, "start() comes first"
        with self._inside():
            seconds, self._last = _timed(self._workload.step, steps, self.device)
        return seconds

    def evaluate(self) -> float:
        """The workload's metric, untimed. ValueError when it has none."""
        if self._workload is None or self._workload.evaluate is None:
            raise ValueError(
                f"the workload of {self.label!r} has no metric: "
                "return Workload(step, samples, evaluate=...)"
            )
        with self._inside():
            return float(self._workload.evaluate())

    def check(self) -> None:
        """TypeError when the last step returned a generator: its body never ran.

        FloatingPointError when it returned nan or infinity: its time says nothing.
        """
        value = self._last
        if isinstance(value, Generator):
            raise TypeError(
                f"the step of {self.label!r} returned a generator, whose body has not run: "
                "use a function that does one step, without yield"
            )
        lost = self.lost()
        if lost is not None:
            raise FloatingPointError(
                f"the step of {self.label!r} returned {lost}: "
                "its training is broken, so it was not compared"
            )

    def lost(self) -> float | None:
        """What the last step returned, if that was nan or infinity."""
        value = self._last
        if isinstance(value, torch.Tensor) and value.is_floating_point() and not value.is_sparse:
            value = float(value.detach().float().mean())
        return value if isinstance(value, float) and not math.isfinite(value) else None

    @contextlib.contextmanager
    def _warm(self) -> Iterator[Step]:
        """The step of a fresh workload after its first call; released afterwards."""
        self.close()
        with self._inside(), contextlib.closing(self):
            step = self._build().step
            # Gradients and optimizer state exist only from the second step on.
            step()
            yield step

    def peak(self) -> Peak:
        """Peak bytes of one warm step of a fresh workload, while no other arm is alive."""
        self.close()
        reserved = _reserved_on_cuda()
        with watched_replays() as replays, self._warm() as step:
            replays.count = 0
            # saved=True would get in the way of torch.func.
            with MemoryMeter(self.device, saved=False) as memory:
                step()
            if replays.count:
                # The pool was taken when the graph was captured, before the meter.
                return None, max(0, torch.cuda.max_memory_reserved() - reserved)
        return memory.peak, memory.reserved

    def timeline(self) -> Timeline:
        """What is alive when in one warm step of a fresh workload, as `peak` counts it."""
        peak, _ = self.peak()
        with self._warm() as step:
            taken = record(step, self.device)
        return replace(taken, label=self.label, settings=self.settings, peak=peak)

    def counters(self) -> Counts:
        """Exact counts of one warm step of a fresh workload, or why they cannot be had."""
        # The watch begins where the workload may keep a graph's method.
        with watched_replays(), self._warm() as step:
            try:
                counted = asdict(count(step))
            except RuntimeError as error:
                # torch.func and the hooks that count saved bytes exclude each other, for example.
                return f"not countable: {error}"
            return {name: value for name, value in counted.items() if value is not None}

    def release(self) -> None:
        """As `close`: the process lives on in any case."""
        self.close()

    def close(self) -> None:
        """Release the workload, its workers and its memory."""
        workload, self._workload, self._last = self._workload, None, None
        if workload is not None and workload.close is not None:
            workload.close()
        del workload
        release_memory()


def _reserved_on_cuda() -> int:
    if not torch.cuda.is_initialized():
        return 0
    return torch.cuda.memory_reserved()


def _load_libraries(device: str) -> None:
    """A process's first product loads cuBLAS, its first convolution cuDNN, its first backward pass
    starts autograd's thread: neither side shall pay for it.

    A machine that lacks one of them says so in the step, where that needs it.
    """
    for use in (_multiply, _convolve):
        with contextlib.suppress(RuntimeError), torch.enable_grad():
            use(device)


def _multiply(device: str) -> None:
    square = torch.ones(8, 8, dtype=torch.float32, device=device)
    _ = square @ square


def _convolve(device: str) -> None:
    images = torch.ones(2, 4, 8, 8, dtype=torch.float32, device=device)
    weight = torch.ones(4, 4, 3, 3, dtype=torch.float32, device=device, requires_grad=True)
    torch.nn.functional.conv2d(images, weight).sum().backward()


def _timed(step: Step, steps: int, device: str) -> tuple[float, object]:
    """Seconds that ``steps`` calls took, and the last one's value."""
    with without_collector():
        synchronize()
        if device == "cuda":
            return _timed_by_events(step, steps)
        last = None
        begin = time.perf_counter()
        for _ in range(steps):
            last = step()
        synchronize()
        return time.perf_counter() - begin, last


def _timed_by_events(step: Step, steps: int) -> tuple[float, object]:
    first, second = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    last = None
    first.record()
    for _ in range(steps):
        last = step()
    second.record()
    second.synchronize()
    return first.elapsed_time(second) / 1e3, last
