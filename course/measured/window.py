"""07's picture, measured: gradients of the reader's own runs over the comb of their format.

A watched training counts the gradients that are stored, by powers of two, and the weights that an
update left as they were. What it costs is the same on both sides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from labkit.charts import svg
from labkit.charts.plot import Box
from labkit.charts.svg import EDGE, LETTER, LINE, WIDTH
from labkit.controls import difference
from labkit.racing import RaceResult
from labkit.results import Comparison, Workload
from labkit.show import Markup

# Powers of two of the axis; what is smaller or larger counts there.
LOW, HIGH = -52, 24
BARS, COMB, LEFT = 84.0, 26.0, EDGE
# Steps of each run that are counted: later ones of a run that is lost tell of its ruins.
FIRST = 60
# Bits that the comb has room for, as in the moving picture.
DEEP = 24
# All settings of a workload.
Key = tuple[tuple[str, Any], ...]
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
FATES = {
    "zero": "fill slower",
    "fewer digits": "fill arm3",
    "kept": "fill candidate",
    "too large": "fill arm5",
}


class Notes:
    """What a training stored in ``dtype``, over all its runs."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        # Tensors of the device: nothing waits for a value before it is drawn.
        self._counts: Tensor | None = None
        self._still: Tensor | None = None
        self._weights: Tensor | None = None
        self._seen = self._step = 0

    def gradient(self, gradient: Tensor) -> None:
        """Count the numbers of a gradient that is to be stored; those that are zero not."""
        if self._step >= FIRST:
            return
        sizes = torch.frexp(gradient.float()).exponent.float() - 1
        sizes = sizes.clamp(LOW, HIGH - 1)
        sizes = torch.where(gradient.isfinite(), sizes, float(HIGH - 1))
        # Beyond the bars, where nothing is counted.
        sizes = torch.where(gradient == 0, float(HIGH + 9), sizes)
        found = torch.histc(sizes, bins=HIGH - LOW, min=LOW, max=HIGH)
        self._counts = found if self._counts is None else self._counts + found

    def begin(self) -> None:
        """Another run: its weights are no others' successors."""
        self._weights, self._step = None, 0

    def weights(self, parameters: Iterator[Tensor]) -> None:
        """All weights behind a step; those that are as before the step count as still."""
        self._step += 1
        if self._step > FIRST:
            return
        now = torch.cat([each.detach().flatten() for each in parameters])
        if self._weights is not None:
            still = (now == self._weights).sum()
            self._still = still if self._still is None else self._still + still
            self._seen += len(now)
        self._weights = now

    @property
    def counts(self) -> list[int]:
        """Gradients by powers of two, from `LOW` on; empty before any."""
        return [] if self._counts is None else [int(each) for each in self._counts.tolist()]

    @property
    def still(self) -> float:
        """The share of weights that a step left as they were; nan before two steps."""
        return math.nan if self._still is None else float(self._still) / self._seen

    def shares(self) -> dict[str, float]:
        """The share of the gradients that meets each of `FATES`."""
        found = dict.fromkeys(FATES, 0.0)
        for power, count in enumerate(self.counts, LOW):
            found[fate(self.dtype, power)] += count / max(1, sum(self.counts))
        return found


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
    """The notes of every setting that was run; called with a result, its picture.

    >>> window = Window()
    >>> notes = window.notes(torch.float16)
    >>> notes.gradient(torch.tensor([1.0, 2.0**-30]))
    >>> notes.shares()["zero"]
    0.5
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

    def notes(self, dtype: torch.dtype) -> Notes:
        """The notes of the workload that is built now, which stores in ``dtype``; new ones outside
        a lab.
        """
        if not self._key:
            return Notes(dtype)
        found = self._notes.pop(self._key, Notes(dtype))
        # The settings that ran last are the last.
        self._notes[self._key] = found
        found.begin()
        return found

    def __call__(self, result: object) -> str:
        """The gradients of both sides; "" where none were noted."""
        sides = [(role, self._notes[key]) for role, key in self._sides(result)]
        return draw(sides) if sides and all(notes.counts for _, notes in sides) else ""

    def _sides(self, result: object) -> list[tuple[str, Key]]:
        if isinstance(result, Comparison):
            keys = [tuple(side.settings.items()) for side in result.arms]
            if not all(key in self._notes for key in keys):
                return []
            return list(zip(result.roles, keys, strict=True))
        if not isinstance(result, RaceResult):
            return []
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


def draw(sides: list[tuple[str, Notes]]) -> Markup:
    """The gradients of each side, in the colour of what became of them, over its comb."""
    title = f"gradients by size, in the first {FIRST} steps of each run"
    parts, top = [svg.text(LEFT, 0.7 * LINE, title, "small")], 0.8 * LINE
    for role, notes in sides:
        parts += svg.named(top + 0.8 * LINE, role, _lost(notes))
        box = Box(LEFT, top + 1.2 * LINE, WIDTH - EDGE, 0, (LOW, HIGH), (0.0, 6.0))
        box = box._replace(bottom=box.top + BARS)
        parts += [*_bars(notes, box), *_comb(notes.dtype, box)]
        if notes.still > 0.02:
            words = f"{100 * notes.still:.0f} % of the weights stay where they are, per step"
            parts.append(svg.text(LEFT, box.bottom + COMB + 0.8 * LINE, words, "small"))
            box = box._replace(bottom=box.bottom + LINE)
        top = box.bottom + COMB + 6
    for power in range(-40, 21, 20):
        words = "2" + str(power).translate(RAISED)
        parts.append(svg.below(_x(power), top + 0.7 * LINE, words))
    parts += _legend(top + 1.7 * LINE)
    words = "; ".join(f"{role}: {_lost(notes)}" for role, notes in sides)
    return svg.picture(top + 2.1 * LINE, f"Gradients by size, and their format. {words}", parts)


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
    parts = [svg.rect(box.left, box.top, box.right - box.left, BARS, "field")]
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


def _legend(y: float) -> list[Markup]:
    parts, x = [], LEFT
    for word, kind in FATES.items():
        parts.append(svg.rect(x, y - 11, 12, 12, kind))
        parts.append(svg.text(x + 18, y, word, "small"))
        x += 42 + LETTER * len(word)
    return parts
