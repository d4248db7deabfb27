"""07's picture, measured: gradients of the reader's own runs over the comb of their format.

Beside each evaluation of a race, where no clock runs, a training counts the gradients that it
stores, by powers of two, how long its last updates are, and the scale of its loss. The picture has
the race's curves, the scale where it changed, and what explains them: the updates where the weights
of a side are rounded, else the gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any, Protocol

import torch
from torch import Tensor

from course.measured import climb, updates
from course.measured.looks import Looks
from course.measured.sides import legend
from course.measured.updates import Updates, last_updates, power_of_two
from labkit.charts import svg
from labkit.charts.plot import Box, field
from labkit.charts.svg import EDGE, LINE, WIDTH
from labkit.controls import difference
from labkit.racing import RaceResult, RaceRun
from labkit.results import Workload
from labkit.show import Markup

# Powers of two of the axis; what is smaller or larger counts there.
LOW, HIGH = -52, 24
BARS, COMB, LEFT = 64.0, 22.0, EDGE
# So many looks of each run count gradients: later ones of a lost run tell of its ruins.
FIRST = 20
# Of so many looks one counts updates: they change slowly.
SELDOM = 10
# Bits that the comb has room for, as in the moving picture.
DEEP = 24
# All settings of a workload.
Key = tuple[tuple[str, Any], ...]
FATES = {
    "zero": "fill slower",
    "fewer digits": "fill arm3",
    "kept": "fill candidate",
    "too large": "fill arm5",
}


class Scaler(Protocol):
    """Multiplies a loss by a scale."""

    def scale(self, loss: Tensor) -> Tensor: ...


class Notes:
    """What a training stored in ``dtype``, over all its runs, whose weights are ``kept`` in a type
    of their own.

    Nothing is counted while a clock runs: `beside` does it at each evaluation.
    """

    def __init__(self, dtype: torch.dtype, kept: torch.dtype = torch.float32) -> None:
        self.dtype = dtype
        self.counts = [0] * (HIGH - LOW)
        self.updates = Updates(kept)
        # The scale of the loss at each look.
        self.scales: Looks[float] = Looks()
        self._counting = False

    def gradient(self, gradient: Tensor) -> None:
        """A gradient that is to be stored; counted beside an evaluation, those that are zero
        not.
        """
        if not self._counting:
            return
        sizes = torch.frexp(gradient[gradient != 0].float().cpu()).exponent - 1
        finite = gradient[gradient != 0].isfinite().cpu()
        powers = torch.where(finite, sizes, HIGH - 1).clamp(LOW, HIGH - 1)
        found = torch.bincount(powers - LOW, minlength=HIGH - LOW).tolist()
        self.counts = [before + now for before, now in zip(self.counts, found, strict=True)]

    def beside(
        self,
        evaluate: Callable[[], float],
        backward: Callable[[], None],
        scaler: Scaler,
        optimizer: torch.optim.Adam,
    ) -> Callable[[], float]:
        """``evaluate``, and beside it what a race's clock does not see.

        ``backward`` fills the gradients as a step does: in the first looks they are counted. The
        optimizer's last updates are counted now and then, the scale of the loss is noted in each
        look. No gradients are left behind.
        """

        def note(number: int) -> float:
            if number < FIRST:
                self._count(backward, optimizer)
            if number % SELDOM == 0:
                self.updates.add(*last_updates(optimizer))
            return scale_of(scaler, optimizer)

        return self.scales.beside(evaluate, note)

    def _count(self, backward: Callable[[], None], optimizer: torch.optim.Optimizer) -> None:
        self._counting = True
        try:
            backward()
        finally:
            self._counting = False
            optimizer.zero_grad()

    def shares(self) -> dict[str, float]:
        """The share of the gradients that meets each of `FATES`."""
        found = dict.fromkeys(FATES, 0.0)
        for power, count in enumerate(self.counts, LOW):
            found[fate(self.dtype, power)] += count / max(1, sum(self.counts))
        return found


def scale_of(scaler: Scaler, optimizer: torch.optim.Optimizer) -> float:
    """What a scaler makes of a loss of 1."""
    device = optimizer.param_groups[0]["params"][0].device
    return float(scaler.scale(torch.ones((), device=device)))


def fate(dtype: torch.dtype, power: int) -> str:
    """What the format makes of numbers from ``2**power`` on: one of `FATES`."""
    info = torch.finfo(dtype)
    normal, fraction = math.log2(info.smallest_normal), -math.log2(info.eps)
    if power < normal - fraction - 1:
        return "zero"
    if power > math.floor(math.log2(info.max)):
        return "too large"
    return "kept" if power >= normal else "fewer digits"


class Window:
    """The notes of every setting that raced; called with a race's result, its picture.

    >>> window = Window()
    >>> notes = window.notes(torch.float16)
    >>> weight = torch.nn.Parameter(torch.ones(1))
    >>> optimizer = torch.optim.Adam([weight])
    >>> stored = torch.tensor([1.0, 2.0**-30])
    >>> scaler = torch.amp.GradScaler("cpu", enabled=False)
    >>> look = notes.beside(lambda: 0.5, lambda: notes.gradient(stored), scaler, optimizer)
    >>> look(), notes.shares()["zero"]
    (0.5, 0.5)
    """

    def __init__(self) -> None:
        self._notes: dict[Key, Notes] = {}
        # The settings that are built now.
        self._key: Key = ()
        # The races that were drawn, by what their candidate has.
        self.races: dict[str, RaceResult] = {}

    def watch(self, make: Callable[..., Workload]) -> Callable[..., Workload]:
        """``make_workload`` for a lab, whose settings are noted."""

        @wraps(make)
        def watched(**settings: Any) -> Workload:
            self._key = tuple(settings.items())
            try:
                return make(**settings)
            finally:
                self._key = ()

        return watched

    def notes(self, dtype: torch.dtype, kept: torch.dtype = torch.float32) -> Notes:
        """The notes of the workload that is built now, which stores in ``dtype`` and keeps its
        weights in ``kept``; new ones outside a lab.
        """
        if not self._key:
            return Notes(dtype, kept)
        found = self._notes.pop(self._key, Notes(dtype, kept))
        # The settings that ran last are the last.
        self._notes[self._key] = found
        return found

    def __call__(self, result: object) -> str:
        """The curves of both sides, and what explains them; "" for all but a race noted here."""
        if not isinstance(result, RaceResult):
            return ""
        sides = [(role, self._notes[key]) for role, key in self._sides(result)]
        if not sides or not all(any(notes.counts) for _, notes in sides):
            return ""
        return draw(result, sides)

    def _sides(self, result: RaceResult) -> list[tuple[str, Key]]:
        for one, other in _orders(list(self._notes)[-2:]):
            changed = difference(dict(other), dict(one))
            if (result.labels or result.arms)[1:] == (changed,):
                self.races[_where(other, one)] = result
                names = result.arms if result.labels else ("baseline", changed)
                return list(zip(names, (one, other), strict=True))
        return []


def _orders(keys: list[Key]) -> list[tuple[Key, Key]]:
    """Which of two is the baseline, and which the candidate."""
    return [(keys[0], keys[1]), (keys[1], keys[0])] if len(keys) == 2 else []


def _where(candidate: Key, baseline: Key) -> str:
    """``stored fp16, loss_weight 1e-05``: the settings of a race in words."""
    settings = dict(candidate)
    changed = {name for name, value in baseline if settings[name] != value}
    shown = [name for name in settings if name in changed or name in ("loss_weight", "rate")]
    return ", ".join(f"{name} {settings[name]}" for name in shown)


# ------------------------------------------------------------------------------------ the picture


def draw(result: RaceResult, sides: list[tuple[str, Notes]]) -> Markup:
    """The race by its steps; below it updates, where a side rounds its weights, or gradients."""
    notes_of = dict(zip(result.arms, (notes for _, notes in sides), strict=True))

    def course_of(run: RaceRun) -> climb.Course:
        return notes_of[run.arm].scales.of(run)

    parts, top = climb.draw(result, course_of)
    rounded = [notes for _, notes in sides if notes.updates.dtype != torch.float32]
    if rounded and all(any(notes.updates.counts) for _, notes in sides):
        pairs = [(role, notes.updates) for role, notes in sides]
        below, foot = updates.draw(pairs, top)
        words = "; ".join(f"{role}: {updates.in_words(each)}" for role, each in pairs)
        return svg.picture(foot, f"Updates beside the spacing of numbers. {words}", parts + below)
    below, foot = gradients(sides, top)
    words = "; ".join(f"{role}: {_lost(notes)}" for role, notes in sides)
    return svg.picture(foot, f"Gradients by size, and their format. {words}", parts + below)


def gradients(sides: list[tuple[str, Notes]], top: float) -> tuple[list[Markup], float]:
    """The gradients of each side, in the colour of what became of them, over its comb; and their
    foot.
    """
    title = f"gradients by size, in each run's first {FIRST} evaluations"
    parts = [svg.text(LEFT, top + 0.7 * LINE, title, "small")]
    top += 0.8 * LINE
    for role, notes in sides:
        parts += svg.named(top + 0.8 * LINE, role, _lost(notes))
        box = Box(LEFT, top + 1.2 * LINE, WIDTH - EDGE, 0, (LOW, HIGH), (0.0, 6.0))
        box = box._replace(bottom=box.top + BARS)
        parts += [*_bars(notes, box), *_comb(notes.dtype, box)]
        top = box.bottom + COMB + 6
    for power in range(-40, 21, 20):
        parts.append(svg.below(_x(power), top + 0.7 * LINE, power_of_two(power)))
    parts += legend([(kind, word) for word, kind in FATES.items()], LEFT, top + 1.7 * LINE)
    return parts, top + 2.1 * LINE


def _x(power: float) -> float:
    return LEFT + (WIDTH - EDGE - LEFT) * (power - LOW) / (HIGH - LOW)


def _lost(notes: Notes) -> str:
    """``92 % become zero``; of what is too large, where that is more."""
    shares = notes.shares()
    name, words = "zero", "become zero"
    if shares["too large"] > shares["zero"]:
        name, words = "too large", "are too large"
    share = 100 * shares[name]
    exact = f"{share:.0f}" if share >= 1 or share == 0 else f"{share:.1g}"
    return f"{exact} % {words}"


def _bars(notes: Notes, box: Box) -> list[Markup]:
    """Shares on a scale of logarithms: six powers of ten."""
    total = max(1, sum(notes.counts))
    parts = [field(box)]
    for power, count in enumerate(notes.counts, LOW):
        high = 6 + math.log10(count / total) if count else 0
        if high > 0:
            wide, y = _x(power + 1) - _x(power) - 1, box.y(high)
            kind = FATES[fate(notes.dtype, power)]
            parts.append(svg.rect(_x(power), y, wide, box.bottom - y, kind))
    return parts


def _comb(dtype: torch.dtype, box: Box) -> list[Markup]:
    """Below each power of two a tooth, the longer the more digits a number there has."""
    info = torch.finfo(dtype)
    normal, fraction = math.log2(info.smallest_normal), -math.log2(info.eps)
    parts = []
    for power in range(LOW, HIGH):
        bits = 1 + fraction - max(0, normal - power)
        if bits >= 1 and power <= math.log2(info.max):
            kind = "band arm3" if power < normal else "band arm4"
            wide, deep = _x(power + 1) - _x(power) - 1, COMB * math.sqrt(min(1, bits / DEEP))
            parts.append(svg.rect(_x(power), box.bottom + 2, wide, deep, kind))
    return parts
