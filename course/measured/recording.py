"""One training step, recorded: what the host does, and when operators run.

By torch's profiler, with the profiler's own time in it: shapes are to be read here, times in a
panel.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from torch.autograd import DeviceType
from torch.profiler import profile, record_function, supported_activities

from labkit.device import synchronize
from whyslow.events import Listener, listening

# The profiler's own messages stay out of the page; read when it first runs.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")

MARK = "a part begins: "
# Steps that only warm up, that are recorded at least and at most, and seconds for all of them.
WARM, LEAST, MOST, SECONDS = 2, 5, 15, 1.0


class Block(NamedTuple):
    """A part of the step, in milliseconds from its beginning."""

    part: str
    begin: float
    end: float


@dataclass(frozen=True)
class Recording:
    """The lanes of one step: the ``host``'s parts, and the operators that ``work`` meanwhile.

    ``where`` they do: on the "device", or on the CPU as "operators". ``milliseconds``: its length.
    """

    host: tuple[Block, ...]
    work: tuple[Block, ...]
    where: str
    milliseconds: float

    @property
    def idle(self) -> float:
        """The share of the step in which no operator runs."""
        return 1 - sum(block.end - block.begin for block in self.work) / self.milliseconds


def record(step: Callable[[], object]) -> Recording:
    """A few steps, and of them the one of median length: a panel's seconds are typical, too."""
    for _ in range(WARM):
        step()
    synchronize()
    with profile(activities=supported_activities()) as taken, listening(_Parts()):
        count, end = 0, time.perf_counter() + SECONDS
        while count < LEAST or (count < MOST and time.perf_counter() < end):
            count += 1
            _mark("data")
            step()
            _mark("waits")
            synchronize()
            _mark("end")
    found = sorted(_steps(list(taken.events())), key=lambda each: each.milliseconds)
    return found[(len(found) - 1) // 2]


class _Parts(Listener):
    """Marks where a part of a step begins."""

    def forward_begins(self, *_: Any) -> None:
        _mark("forward")

    def backward_begins(self) -> None:
        _mark("backward")

    def backward_ends(self) -> None:
        _mark("update")


def _mark(part: str) -> None:
    with record_function(MARK + part):
        pass


def _steps(events: Sequence[Any]) -> Iterator[Recording]:
    """Each step: with a device's times where the profiler has some, else with the operators'."""
    on_host = [each for each in events if each.device_type == DeviceType.CPU]
    on_device = [each for each in events if each.device_type != DeviceType.CPU]
    where, work = "device", list(_kernels(on_device, on_host))
    if not work:
        where, work = "operators", list(_operators(on_host))
    marks: list[tuple[str, float]] = []
    for each in sorted(filter(_is_mark, on_host), key=_begin):
        marks.append((each.name.removeprefix(MARK), _begin(each)))
        if marks[-1][0] == "end":
            yield _cut(marks, work, where)
            marks = []


def _cut(marks: Sequence[tuple[str, float]], work: Iterable[_Work], where: str) -> Recording:
    """The step between the first mark and the last; a part lasts until the next one begins."""
    first, last = marks[0][1], marks[-1][1]
    host = []
    for (part, begin), (_, end) in pairwise(marks):
        # The CPU is done where its step returns.
        if part != "waits" or where == "device":
            host.append(Block(part, begin - first, end - first))
    found = []
    for each in work:
        if first <= each.launched < last:
            before = [block.part for block in host if block.begin <= each.launched - first]
            found.append(Block(before[-1], each.begin - first, each.end - first))
    return Recording(tuple(host), tuple(found), where, host[-1].end)


class _Work(NamedTuple):
    """When an operator was launched, and when it worked, in milliseconds."""

    launched: float
    begin: float
    end: float


def _operators(events: Iterable[Any]) -> Iterator[_Work]:
    """The operators of a CPU that no other one calls."""
    until = 0.0
    for each in sorted(events, key=_begin):
        if each.name.startswith("aten::") and _begin(each) >= until:
            until = _end(each)
            yield _Work(_begin(each), _begin(each), until)


def _kernels(events: Iterable[Any], on_host: Iterable[Any]) -> Iterator[_Work]:
    """What a device did, with the call of the host that has launched it."""
    calls = {each.id: _begin(each) for each in on_host if each.name.startswith("cu")}
    for each in sorted(events, key=_begin):
        if not _is_mark(each):
            yield _Work(calls.get(each.id, _begin(each)), _begin(each), _end(each))


def _is_mark(event: Any) -> bool:
    return bool(event.name.startswith(MARK))


def _begin(event: Any) -> float:
    return float(event.time_range.start) / 1000


def _end(event: Any) -> float:
    return float(event.time_range.end) / 1000
