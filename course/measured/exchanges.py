"""What a rank does in one step: when it computes, and when gradients are on their way.

The profiler notes it in the first step of each build, so that what is timed is not watched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import profile, record_function

from course.measured.filed import Filed
from labkit.results import Workload

STEP = "one step of a rank"
# The names that the profiler gives, on a CPU and on a GPU.
EXCHANGE = ("gloo:all_reduce", "AllReduce")
BACKWARD = "autograd::engine::evaluate_function: "
# Steps before the one that is noted: DDP makes its buckets anew after the first.
UNNOTED = 2

Span = tuple[float, float]


@dataclass(frozen=True)
class Noted:
    """One step, in seconds since its begin: the ``backward`` pass node by node, each ``exchange``,
    and the end of all. No ``backward`` where other threads than the step's own computed; on a GPU
    it is all kernels but those that exchange, of the forward pass, too.
    """

    backward: tuple[Span, ...]
    exchange: tuple[Span, ...]
    seconds: float

    @property
    def forward(self) -> float:
        """Seconds until the backward pass begins."""
        return self.backward[0][0] if self.backward else 0.0

    @property
    def computed(self) -> float:
        """When the last gradient was there; an exchange behind it is waited for."""
        return self.backward[-1][1] if self.backward else self.seconds


class Exchanges(Filed):
    """A step of rank 0 for each setting that was run, also in other processes."""

    def noted(self, make: Callable[..., Workload]) -> Callable[..., Workload]:
        """The same ``make_workload``; its first call runs a few steps, and notes the last."""
        return self.watching(make, self._watched)

    def _watched(self, step: Callable[[], Any], settings: dict[str, Any]) -> Callable[[], Any]:
        first = True

        def watched() -> Any:
            nonlocal first
            if not first:
                return step()
            first = False
            for _ in range(UNNOTED):
                step()
            # The other ranks take the same step.
            if rank() != 0:
                return step()
            returned, noted = watch(step)
            self.keep(settings, asdict(noted))
            return returned

        return watched

    def of(self, settings: Mapping[str, Any], _seconds: float | None = None) -> Noted | None:
        """What was noted with these settings; None where nothing ran."""
        found = self.kept(settings)
        if found is None:
            return None
        spans = {
            name: tuple((begin, end) for begin, end in found[name])
            for name in ("backward", "exchange")
        }
        return Noted(seconds=found["seconds"], **spans)


def rank() -> int:
    """This process's rank; 0 where there is no group."""
    here = torch.distributed
    return here.get_rank() if here.is_available() and here.is_initialized() else 0


def watch(step: Callable[[], Any]) -> tuple[Any, Noted]:
    """What a step returns, and what it did, as the profiler sees it."""
    gpu = torch.cuda.is_available() and torch.cuda.is_initialized()
    with profile(acc_events=True) as profiler, record_function(STEP):
        returned = step()
        if gpu:
            torch.cuda.synchronize()
    return returned, spans(profiler.events())


def spans(events: Iterable[Any]) -> Noted:
    """The parts of the step among the profiler's events. ValueError where no step is among them."""
    every = list(events)
    steps = [event for event in every if event.name == STEP]
    if not steps:
        raise ValueError(f"{len(every)} events, and none of them is {STEP!r}")
    zero = steps[0].time_range.start
    found: dict[str, list[Span]] = {"backward": [], "exchange": []}
    gpu = any(event.device_type == DeviceType.CUDA for event in every)
    for event in every:
        if kind := _kind(event, gpu):
            begin, end = event.time_range.start, event.time_range.end
            found[kind].append(((begin - zero) / 1e6, (end - zero) / 1e6))
    seconds = (steps[0].time_range.end - zero) / 1e6
    return Noted(tuple(sorted(found["backward"])), tuple(sorted(found["exchange"])), seconds)


def _kind(event: Any, gpu: bool) -> str:
    """What an event is: "backward", "exchange", or "" for the rest."""
    if gpu:
        if event.device_type != DeviceType.CUDA or event.name == STEP:
            return ""
        return "exchange" if EXCHANGE[1] in event.name else "backward"
    if event.name.startswith(BACKWARD):
        return "backward"
    return "exchange" if event.name == EXCHANGE[0] else ""
