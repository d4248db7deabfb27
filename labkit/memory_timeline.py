"""What is alive when: the memory of one training step, operator by operator, of two sides.

The figures are those of `labkit.memory.StorageTracker`: live tensors, work space of operators left
out. A step's parts are told by what runs: backward while autograd's engine does, the optimizer
while one steps, forward otherwise.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from labkit import charts, show
from labkit.memory import StorageTracker
from labkit.results.settings import ROLES, Sides
from labkit.show import Bar, Markup, text_bars
from labkit.text import aligned, format_bytes, format_settings, format_share

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"
# Operators between two parts, such as the copy of the loss before the optimizer, are no part of
# their own while they are fewer, and fewer than this share of the step.
SHORTEST_PART, SHORTEST_SHARE = 8, 0.1
# A ratio of peaks this near to 1, as a logarithm, is no difference: allocators round.
SAME = 0.01


@dataclass(frozen=True)
class Timeline:
    """The memory of one step of one side, in bytes.

    ``alive`` has the bytes after each operator, ``parts`` where each part of the step begins: the
    number of its first operator, and "forward", "backward" or "optimizer". ``before`` are the
    tensors that were there before the step: weights, optimizer state, the batch. ``peak`` is that
    of `MemoryMeter`: on CUDA it holds work space as well. None where it cannot be counted.
    """

    label: str
    settings: dict[str, Any] = field(default_factory=dict)
    alive: tuple[int, ...] = ()
    parts: tuple[tuple[int, str], ...] = ()
    before: int = 0
    peak: int | None = None
    error: str | None = None

    @property
    def peak_text(self) -> str:
        """``12.0 MiB``; what ended the side; or ``not countable``."""
        if self.error:
            return self.error
        if self.peak is None:
            return "not countable"
        return format_bytes(self.peak)

    @property
    def peak_part(self) -> str:
        """In which part of the step most is alive; "" of a step without operators."""
        if not self.alive:
            return ""
        highest = self.alive.index(max(self.alive))
        return [name for begin, name in self.parts if begin <= highest][-1]


@dataclass(frozen=True)
class MemoryComparison(Sides[Timeline]):
    """The memory of one step of two sides."""

    baseline: Timeline
    candidate: Timeline
    lab: str = ""
    names: tuple[str, str] | None = None

    def called(self, baseline: str, candidate: str) -> MemoryComparison:
        """The same with other names for its sides, in pictures and tables."""
        return replace(self, names=(baseline, candidate))

    @property
    def ratio(self) -> float:
        """Peak of the candidate over that of the baseline; nan with a reason in `why_no_factor`."""
        if self.why_no_factor or not self.baseline.peak or self.candidate.peak is None:
            return math.nan
        return self.candidate.peak / self.baseline.peak

    @property
    def why_no_factor(self) -> str:
        """Why the peaks have no ratio that means anything; "" where they have one."""
        sides = dict(zip(ROLES, self.arms, strict=True))
        for role, side in sides.items():
            if side.error:
                return f"the {role} ended by {side.error}"
            if side.peak is None:
                return f"the peak of the {role} cannot be counted"
        empty = [role for role, side in sides.items() if not side.peak]
        if len(empty) == 2:
            return "neither side has tensors"
        return "".join(f"the {role} has no tensors" for role in empty)

    @property
    def headline(self) -> tuple[str, str]:
        """What stands first: the verdict in words, and the factor or the peaks."""
        before, after = self.baseline.peak, self.candidate.peak
        if before is None or after is None or any(side.error for side in self.arms):
            return "not countable", ""
        if not before and not after:
            return "no tensors", ""
        if not before or not after:
            return f"{'less' if before else 'more'} memory", ""
        if abs(math.log(self.ratio)) <= SAME:
            return "same memory", format_share(self.ratio)
        word = "less" if self.ratio < 1 else "more"
        return f"{word} memory", format_share(self.ratio)

    @property
    def sentence(self) -> str:
        """What the peaks are, and in which part of the step that of the candidate is reached."""
        if why := self.why_no_factor:
            return f"{why[0].upper()}{why[1:]}: there is nothing to compare."
        before, after = (side.peak_text for side in self.arms)
        words = f"The candidate needs {format_share(self.ratio)} of the memory of the baseline"
        part = ""
        if self.candidate.peak_part:
            part = f", its most in the {self.candidate.peak_part} part of the step"
        return f"{words}: {after} instead of {before}{part}."

    @property
    def bars(self) -> tuple[Bar, Bar]:
        """The peak of both sides."""
        bars = []
        for name, role, side in zip(self.roles, ROLES, self.arms, strict=True):
            value = math.nan if side.peak is None else side.peak
            own = {key: one for key, one in side.settings.items() if key in self.changed}
            note = role if self.names else format_settings(own)
            bars.append(Bar(name, value, side.peak_text, tone=role, note=note))
        return bars[0], bars[1]

    @property
    def rows(self) -> list[list[str]]:
        """The figures of both sides as a table, the first row its head."""
        sides = self.arms
        return [
            ["", *self.roles],
            ["peak memory", *(side.peak_text for side in sides)],
            ["reached in", *(side.peak_part or "-" for side in sides)],
            ["before the step", *(format_bytes(side.before) for side in sides)],
        ]

    def picture(self) -> Markup:
        """What is alive when, in one step of each side."""
        before, after = (charts.Step(side.alive, side.parts, side.before) for side in self.arms)
        return charts.memory(self.sentence, self.bars, (before, after))

    def __str__(self) -> str:
        return f"{self.sentence}\n{text_bars(self.bars)}\n{aligned(self.rows[2:])}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        table = show.table(self.rows)
        return show.result(
            show.sentence(self.sentence),
            self.picture(),
            show.details(table, summary="In figures"),
        )


class _Recorder(StorageTracker):
    """A tracker that keeps what is alive after each operator, and in which part of the step."""

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self.alive: list[int] = []
        self.parts: list[str] = []
        self.optimizing = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = super().__torch_dispatch__(func, types, args, kwargs)
        self.alive.append(self._added)
        self.parts.append(self._part())
        return result

    def _part(self) -> str:
        if self.optimizing:
            return OPTIMIZER
        if torch._C._current_graph_task_id() != -1:
            return BACKWARD
        return FORWARD


@contextlib.contextmanager
def _optimizers_watched(recorder: _Recorder) -> Iterator[None]:
    """Let every optimizer tell the recorder when it steps."""

    def begins(*_: object) -> None:
        recorder.optimizing = True

    def ends(*_: object) -> None:
        recorder.optimizing = False

    handles = (
        register_optimizer_step_pre_hook(begins),
        register_optimizer_step_post_hook(ends),
    )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def record(step: Callable[[], Any], device: str) -> Timeline:
    """Run a warm step once: what is alive when, without its peak by `MemoryMeter`."""
    recorder = _Recorder(device)
    with _optimizers_watched(recorder), recorder:
        step()
    # Tensors that were there before are seen when they are first used: they were there all along.
    alive = tuple(recorder.existing + added for added in recorder.alive)
    return Timeline("", alive=alive, parts=_beginnings(recorder.parts), before=recorder.existing)


def _beginnings(parts: Sequence[str]) -> tuple[tuple[int, str], ...]:
    """Where each part begins; a few operators between two others belong to the one before."""
    found: list[tuple[int, str]] = []
    shortest = min(SHORTEST_PART, SHORTEST_SHARE * len(parts))
    begin = 0
    for name, group in itertools.groupby(parts):
        length = len(list(group))
        if not found or (length >= shortest and found[-1][1] != name):
            found.append((begin, name))
        begin += length
    return tuple(found)
