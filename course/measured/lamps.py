"""20's picture, measured: what each batch of a validation keeps, and four lamps for its habits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from course.measured.sides import legend
from labkit import count, pick_device
from labkit.charts import svg
from labkit.charts.plot import Box, field
from labkit.charts.svg import EDGE, LINE
from labkit.memory_timeline import MemoryComparison, Timeline, record
from labkit.restore import preserve_rng
from labkit.results import Comparison, Workload
from labkit.show import Markup
from labkit.text import format_bytes, format_seconds

BEFORE, EARLIER, NOW = "floor", "fill arm3", "fill arm5"
LEGEND = ((NOW, "this batch"), (EARLIER, "earlier batches"), (BEFORE, "weights, images"))
GREEN, RED = "faster", "slower"
# Operators around the begin of a batch, at the least of which nothing of it is there yet: a step
# may have a few more than those of its batches.
MOMENT = 3
# Of the memory of a batch: what a second one may hold beside it and not be called growing.
STEADY = 0.05
RIGHT, HEIGHT, ROW = 290.0, 92.0, 176.0
ROLES = ("baseline", "candidate")


class Habits(NamedTuple):
    """What a validation does beside its answer.

    ``kept`` are the bytes saved for a backward pass at most, ``grows`` those by which memory
    grows from one batch to the next. ``answers`` are those of two passes, ``moved`` the farthest
    that a running mean of batch norm went.
    """

    kept: float
    grows: float
    answers: tuple[float, float]
    moved: float

    @property
    def lamps(self) -> list[tuple[bool, str]]:
        """For each lamp: whether it is green, and its words."""
        first, second = (f"{answer:.4f}" for answer in self.answers)
        said = {
            "little memory": f"keeps {_size(self.kept)} for backward" if self.kept else "",
            "steady memory": f"grows {_size(self.grows)} per batch" if self.grows else "",
            "same answer twice": f"answer {first}, then {second}" if first != second else "",
            "nothing learned": f"batch norm moved {self.moved:.2g}" if self.moved else "",
        }
        return [(not fault, fault or lamp) for lamp, fault in said.items()]


def _size(amount: float) -> str:
    return format_bytes(round(amount))


class Lamps:
    """A function for `LabPanel(picture=...)`: memory batch by batch, or time, beside the lamps.

    The workloads have to be watched; a step of theirs is a validation of so many equal
    ``batches``, and returns its mean loss. For other results it returns "".
    """

    def __init__(self, batches: int) -> None:
        self._batches = batches
        self._habits: dict[str, Habits] = {}

    def watch(self, make: Callable[..., Workload]) -> Callable[..., Workload]:
        """The same workloads; a first one of each setting, apart, shows its habits."""

        @wraps(make)
        def watched(**settings: Any) -> Workload:
            key = _key(settings)
            if key not in self._habits:
                with preserve_rng():
                    self._habits[key] = self._look(make(**settings).step)
            return make(**settings)

        return watched

    def habits(self, settings: Mapping[str, Any]) -> Habits:
        """What was seen under these settings. KeyError where no such workload was built."""
        return self._habits[_key(settings)]

    def _look(self, step: Callable[[], float]) -> Habits:
        moved, first = _moves(step)
        grows = growth(batches(record(step, pick_device().type), self._batches))
        kept = count(step).saved_bytes
        return Habits(kept, grows, (first, float(step())), moved)

    def __call__(self, result: object) -> Markup | str:
        if isinstance(result, MemoryComparison):
            return "" if result.why_no_factor else self._memory(result)
        if not isinstance(result, Comparison) or result.error:
            return ""
        return self._time(result) if all(side.times for side in result.arms) else ""

    def _memory(self, result: MemoryComparison) -> Markup:
        sides = [batches(side, self._batches) for side in result.arms]
        most = max(batch.most for found in sides for batch in found)
        parts: list[Markup] = []
        for place, (side, found) in enumerate(zip(result.arms, sides, strict=True)):
            top = ROW * place
            parts += svg.named(top + 18, name(side.settings), f"peak {side.peak_text}")
            box = Box(EDGE, top + 34, RIGHT - 30, top + 34 + HEIGHT, (0, len(found)), (0, most))
            parts += _bars(box, found, side.before)
            parts += _lamps(top + 46, self.habits(side.settings))
        foot = ROW * len(sides)
        parts += legend(LEGEND, EDGE, foot)
        return svg.picture(foot + 0.6 * LINE, result.sentence, parts)

    def _time(self, result: Comparison) -> Markup:
        longest = max(result.step_times)
        parts: list[Markup] = []
        sides = list(zip(result.arms, result.step_times, strict=True))
        for place, (side, seconds) in enumerate(sides):
            top = ROW * place
            parts += svg.named(top + 18, name(side.settings), format_seconds(seconds))
            wide = (RIGHT - 30 - EDGE) * seconds / longest
            parts.append(svg.rect(EDGE, top + 34, RIGHT - 30 - EDGE, HEIGHT / 2, "field"))
            parts.append(svg.rect(EDGE, top + 34, wide, HEIGHT / 2, f"fill {ROLES[place]}"))
            words = f"time of {self._batches} batches"
            parts.append(svg.text(EDGE, top + 34 + HEIGHT / 2 + LINE, words, "small"))
            parts += _lamps(top + 46, self.habits(side.settings))
        told = "; ".join(
            f"{name(side.settings)}: {format_seconds(seconds)}" for side, seconds in sides
        )
        return svg.picture(ROW * 2, told, parts)


def name(settings: Mapping[str, Any]) -> str:
    """``+= loss.item(), no_grad, eval()``; what the reader built is ``yours``."""
    if settings["autograd"] == "yours":
        return "your validation_loss"
    return ", ".join(str(settings[control]) for control in ("total", "autograd", "layers"))


def _key(settings: Mapping[str, Any]) -> str:
    return repr(sorted(settings.items()))


# ------------------------------------------------------------------------------------- what is seen


class Batch(NamedTuple):
    """Bytes at the begin of a batch, and the most while it runs."""

    begin: int
    most: int


def batches(side: Timeline, number: int) -> list[Batch]:
    """The batches of a step that runs as many operators for each of them."""
    cuts = [round(len(side.alive) * place / number) for place in range(number + 1)]
    found = []
    for begin, end in pairwise(cuts):
        at_first = side.before
        if begin:
            at_first = min(side.alive[max(0, begin - MOMENT) : begin + MOMENT])
        found.append(Batch(at_first, max(side.alive[begin:end])))
    return found


def growth(found: Sequence[Batch]) -> float:
    """Bytes by which each batch begins higher than the one before; 0 where that is next to none.

    The first one is left out: a name may hold one batch's results until the next has its own.
    """
    after = [batch.begin for batch in found[1:]]
    each = (after[-1] - after[0]) / max(1, len(after) - 1)
    return each if each > STEADY * (found[0].most - found[0].begin) else 0.0


def _moves(step: Callable[[], float]) -> tuple[float, float]:
    """How far a step moves the running mean of a batch norm at most; and what it returns."""
    means: dict[torch.Tensor, torch.Tensor] = {}

    def note(module: nn.Module, _: Any) -> None:
        running = getattr(module, "running_mean", None)
        if running is not None and running not in means:
            means[running] = running.clone()

    handle = register_module_forward_pre_hook(note)
    try:
        answer = float(step())
    finally:
        handle.remove()
    moves = [(running - mean).abs().max().item() for running, mean in means.items()]
    return max(moves, default=0.0), answer


# ------------------------------------------------------------------------------------------- drawn


def _bars(box: Box, found: Sequence[Batch], before: int) -> Iterator[Markup]:
    yield field(box)
    pitch = box.x(1) - box.x(0)
    for place, batch in enumerate(found):
        x = box.x(place) + 0.1 * pitch
        levels = (
            (0, before, BEFORE),
            (before, batch.begin, EARLIER),
            (batch.begin, batch.most, NOW),
        )
        for low, high, look in levels:
            yield svg.rect(x, box.y(high), 0.8 * pitch, box.y(low) - box.y(high), look)
        yield svg.below(x + 0.4 * pitch, box.bottom + 18, f"{place + 1}")


def _lamps(top: float, habits: Habits) -> Iterator[Markup]:
    for place, (green, words) in enumerate(habits.lamps):
        y = top + 31 * place
        kind, sign = (GREEN, "✓") if green else (RED, "✗")
        yield svg.rect(RIGHT, y - 10, 20, 20, f"fill {kind}")
        yield svg.text(RIGHT + 10, y + 5, sign, "bold", "middle")
        yield svg.text(RIGHT + 28, y + 5, words)
