"""An arm in this process, with torch's switches to itself.

On CUDA a block is timed by events, with one synchronization at its end: nothing of labkit's, no
``.item()``, no allocation, no drawing happens within it. Events see the current stream, so a step
that uses others joins them before it returns. The loss that a step returns tells where it works; a
step that returns nothing counts as CUDA once CUDA is in use.

Switches that ``make`` sets (TF32, ``cudnn.benchmark``, threads, anomaly mode, determinism) are
swapped in for this arm's blocks. The caller's own, and the random states, are back at the end, also
after an exception or an interrupt. torch's thread count does not reach threads that run already, so
it is set in the thread that measures.

Peak memory is taken in a pass of its own with one arm alive: allocated and reserved on CUDA, on the
CPU the live storages, counted exactly.
"""

from __future__ import annotations

import contextlib
import gc
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import torch

from labkit.arms.protocol import Counts, Peak
from labkit.counters import count
from labkit.device import seed_all, synchronize
from labkit.memory import MemoryMeter
from labkit.preserve import without_collector
from labkit.results import Workload
from labkit.switches import Flags, set_torch_flags, torch_flags

Step = Callable[[], Any]


class LocalArm:
    """An `Arm` in this process.

    Switches of torch that ``make`` or the step sets hold inside this arm's blocks only. ``seed``
    is set before each build.
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
                f"make_workload returned {workload!r}; it must return Workload(step, samples)"
            )
        self._workload = workload
        self.samples, self.unit = workload.samples, workload.unit
        return workload

    def start(self) -> float:
        """Build the workload and run its first step; seconds of that step."""
        device = "cpu"
        with self._inside():
            step = self._build().step
            if torch.cuda.is_initialized():
                device = "cuda"
                _load_cuda_libraries()
            seconds, self._last = _timed(step, 1, device)
        # Device work shows by the loss it returns; a step that returns nothing counts as CUDA.
        if torch.cuda.is_initialized():
            self.device = "cuda"
            if isinstance(self._last, torch.Tensor):
                self.device = self._last.device.type
        self.check()
        return seconds

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
        """FloatingPointError when the last step returned nan or infinity: its time says nothing."""
        value = self._last
        if isinstance(value, torch.Tensor) and value.is_floating_point() and not value.is_sparse:
            value = float(value.detach().float().mean())
        if isinstance(value, float) and not math.isfinite(value):
            raise FloatingPointError(
                f"the step of {self.label!r} returned {value}: "
                "its training is broken, so it was not compared"
            )

    def peak(self) -> Peak:
        """Peak bytes of one warm step of a fresh workload, while no other arm is alive."""
        self.close()
        # What the notebook itself holds is no part of it.
        others = 0
        if self.device == "cuda":
            others = torch.cuda.memory_allocated()
        with self._inside(), contextlib.closing(self):
            step = self._build().step
            # Gradients and optimizer state exist only from the second step on.
            step()
            # saved=True would get in the way of torch.func.
            with MemoryMeter(self.device, saved=False) as memory:
                step()
            return memory.peak - others, memory.reserved

    def counters(self) -> Counts:
        """Exact counts of one warm step of a fresh workload, or why they cannot be had."""
        self.close()
        with self._inside(), contextlib.closing(self):
            step = self._build().step
            step()
            try:
                counted = asdict(count(step))
            except RuntimeError as error:
                # torch.func and the hooks that count saved bytes exclude each other, for example.
                return f"cannot be counted: {error}"
            return {name: value for name, value in counted.items() if value is not None}

    def close(self) -> None:
        """Release the workload, its workers and its memory."""
        workload, self._workload, self._last = self._workload, None, None
        if workload is not None and workload.close is not None:
            workload.close()
        del workload
        gc.collect()
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()


def _load_cuda_libraries() -> None:
    """A process's first product loads cuBLAS: neither side shall pay for it."""
    torch.ones(8, 8, device="cuda") @ torch.ones(8, 8, device="cuda")


# A pair of CUDA events for each device, made once: creating them inside a run would show.
_events: dict[int, tuple[torch.cuda.Event, torch.cuda.Event]] = {}


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
    """On CUDA: by events, with one synchronization.

    Events see the current stream: a step that works on others has to join them before it returns.
    """
    here = torch.cuda.current_device()
    if here not in _events:
        _events[here] = (
            torch.cuda.Event(enable_timing=True),
            torch.cuda.Event(enable_timing=True),
        )
    first, second = _events[here]
    last = None
    first.record()
    for _ in range(steps):
        last = step()
    second.record()
    second.synchronize()
    return first.elapsed_time(second) / 1e3, last
