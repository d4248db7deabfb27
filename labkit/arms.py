"""Where an arm of a comparison lives: in this process, with torch's switches to itself, or in a process of its own."""

from __future__ import annotations

import contextlib
import gc
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import torch

from labkit.counters import count
from labkit.device import seed_all, synchronize
from labkit.memory import MemoryMeter
from labkit.results import Workload
from labkit.switches import set_torch_flags, torch_flags


class ArmDied(RuntimeError):
    """An arm's own process ended before its work did."""


class LocalArm:
    """An arm in this process. Switches of torch that ``make`` or the step sets hold inside this arm's blocks only."""

    def __init__(
        self,
        make: Callable[[], Any],
        label: str,
        settings: dict[str, Any] | None = None,
        seed: int | None = None,
    ):
        self._make, self._seed = make, seed
        self.label, self.settings = label, settings or {}
        self.samples, self.unit, self.device = 1.0, "samples", "cpu"
        self._workload: Workload | None = None
        self._flags: dict[str, Any] | None = None
        self._last: Any = None

    @contextlib.contextmanager
    def _inside(self) -> Iterator[None]:
        """Swap this arm's switches in, and the caller's back."""
        outside = torch_flags()
        if self._flags is not None:
            set_torch_flags(self._flags)
        try:
            yield
        except Exception as error:
            error.add_note(f"(in the arm {self.label!r})")
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
        self._workload, self.samples, self.unit = workload, workload.samples, workload.unit
        return workload

    def start(self) -> float:
        """Build the workload and run its first step; seconds of that step."""
        with self._inside():
            step = self._build().step
            if (
                torch.cuda.is_initialized()
            ):  # a process's first product loads the library: no arm shall pay for it
                torch.ones(8, 8, device="cuda") @ torch.ones(8, 8, device="cuda")
            # Device work shows by the loss it returns; one that returns nothing counts as CUDA

            seconds, self._last = _timed(step, 1, "cuda" if torch.cuda.is_initialized() else "cpu")
        if torch.cuda.is_initialized():
            self.device = self._last.device.type if isinstance(self._last, torch.Tensor) else "cuda"
        self.check()
        return seconds

    def block(self, steps: int) -> float:
        """Run ``steps`` steps; their seconds."""
        assert self._workload is not None, "start() comes first"
        with self._inside():
            seconds, self._last = _timed(self._workload.step, steps, self.device)
        return seconds

    def evaluate(self) -> float:
        """The workload's metric, untimed."""
        if self._workload is None or self._workload.evaluate is None:
            raise ValueError(
                f"the workload of {self.label!r} has no metric: return Workload(step, samples, evaluate=...)"
            )
        with self._inside():
            return float(self._workload.evaluate())

    def check(self) -> None:
        """Raise FloatingPointError when the last step returned nan or infinity: its time would say nothing."""
        value = self._last
        if isinstance(value, torch.Tensor) and value.is_floating_point() and not value.is_sparse:
            value = float(value.detach().float().mean())
        if isinstance(value, float) and not math.isfinite(value):
            raise FloatingPointError(
                f"the step of {self.label!r} returned {value}: its training is broken, so it was not compared"
            )

    def peak(self) -> tuple[int, int | None]:
        """Peak bytes (allocated, reserved) of one warm step of a fresh workload, while no other arm is alive."""
        self.close()
        others = (
            torch.cuda.memory_allocated() if self.device == "cuda" else 0
        )  # what the notebook itself holds
        with self._inside(), contextlib.closing(self):
            step = self._build().step
            step()  # gradients and optimizer state exist only from the second step on
            with MemoryMeter(
                self.device, saved=False
            ) as memory:  # saved=True would get in the way of torch.func
                step()
            return memory.peak - others, memory.reserved

    def counters(self) -> dict[str, int] | str:
        """Exact counts of one warm step of a fresh workload, or why they cannot be had."""
        self.close()
        with self._inside(), contextlib.closing(self):
            step = self._build().step
            step()
            try:
                counted = asdict(count(step))
            except (
                RuntimeError
            ) as error:  # torch.func and the hooks that count saved bytes exclude each other, say
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


_events: dict[
    int, Any
] = {}  # a pair of CUDA events for each device, made once: creating them inside a run would show


def _timed(step: Callable[[], Any], steps: int, device: str) -> tuple[float, Any]:
    """Seconds that ``steps`` calls took, and the last one's value. On CUDA by events, with one synchronization.

    Events see the current stream: a step that works on others has to join them before it returns.
    """
    last = None
    collecting = gc.isenabled()
    gc.disable()  # a collection in one block and not in its neighbour would be charged to the technique
    try:
        synchronize()
        if device == "cuda":
            here = torch.cuda.current_device()
            if here not in _events:
                _events[here] = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            first, second = _events[here]
            first.record()
            for _ in range(steps):
                last = step()
            second.record()
            second.synchronize()
            return first.elapsed_time(second) / 1e3, last
        begin = time.perf_counter()
        for _ in range(steps):
            last = step()
        synchronize()
        return time.perf_counter() - begin, last
    finally:
        if collecting:
            gc.enable()
