"""07: the updates of weights, beside the numbers of the format that the weights are stored in.

An update shorter than half the way to the next number is rounded away.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from course.measured.sides import legend
from labkit.charts import svg
from labkit.charts.plot import Box, field, upright
from labkit.charts.svg import EDGE, LINE, WIDTH
from labkit.show import Markup

# Powers of two of an update in halves of the spacing; what is smaller or larger counts there.
LOW, HIGH = -14, 22
BARS, HALF_LINE = 64.0, 7.0
# Numbers of a format nearer than so many pixels are drawn as a band.
NEAR = 3.0
# Spacings of the coarser format that the line of numbers shows on each side of the weight.
AROUND = 2.4
LEGEND = [
    ("fill slower", "rounded away"),
    ("fill candidate", "moves the weight"),
    ("fill arm4", "stored numbers"),
]
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Typical(NamedTuple):
    """Of the weights of a look the median size, and that of their updates."""

    weight: float
    update: float


class Updates:
    """Updates by size, of weights that are stored in ``dtype``.

    >>> updates = Updates(torch.bfloat16)
    >>> updates.add(torch.ones(4), torch.tensor([0.001, 0.003, 0.005, 0.1]))
    >>> updates.lost
    0.5
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.counts = [0] * (HIGH - LOW)
        self.typical = Typical(math.nan, math.nan)

    def add(self, weights: Tensor, updates: Tensor) -> None:
        """Count the updates that weights got; those that are zero, or no number, not."""
        chosen = updates.isfinite() & weights.isfinite() & (updates != 0)
        weights, sizes = weights[chosen].abs(), updates[chosen].abs()
        if not len(sizes):
            return
        halves = 2 * sizes / spacing(weights, self.dtype)
        powers = (torch.frexp(halves).exponent - 1).clamp(LOW, HIGH - 1)
        found = torch.bincount(powers - LOW, minlength=HIGH - LOW).tolist()
        self.counts = [before + now for before, now in zip(self.counts, found, strict=True)]
        self.typical = Typical(float(weights.median()), float(sizes.median()))

    @property
    def lost(self) -> float:
        """The share of the updates that rounding takes back; nan before any."""
        total = sum(self.counts)
        return sum(self.counts[:-LOW]) / total if total else math.nan

    @property
    def gap(self) -> float:
        """From the typical weight to the next number of its format."""
        return float(spacing(torch.tensor(self.typical.weight), self.dtype))


def spacing(weights: Tensor, dtype: torch.dtype) -> Tensor:
    """From each weight to the next larger number of a format.

    >>> spacing(torch.tensor([1.0, 0.4]), torch.bfloat16)
    tensor([0.0078, 0.0020])
    """
    info = torch.finfo(dtype)
    powers = torch.frexp(weights.abs().clamp(min=info.smallest_normal)).exponent - 1
    return torch.ldexp(torch.full_like(weights, info.eps), powers)


def last_updates(optimizer: torch.optim.Adam) -> tuple[Tensor, Tensor]:
    """All weights, and how far Adam's last step moved each in exact arithmetic, by its own state.

    Both are empty before a step.
    """
    weights, updates = [torch.zeros(0)], [torch.zeros(0)]
    for group in optimizer.param_groups:
        first, second = group["betas"]
        for parameter in group["params"]:
            state = optimizer.state.get(parameter)
            if not state:
                continue
            steps = float(state["step"])
            mean = state["exp_avg"] / (1 - first**steps)
            size = (state["exp_avg_sq"] / (1 - second**steps)).sqrt() + group["eps"]
            weights.append(parameter.detach().flatten().float().cpu())
            updates.append((-group["lr"] * mean / size).flatten().float().cpu())
    return torch.cat(weights), torch.cat(updates)


# ------------------------------------------------------------------------------------ the picture


def draw(sides: Sequence[tuple[str, Updates]], top: float) -> tuple[list[Markup], float]:
    """Updates of each side by size, and a typical one on the line of numbers; and their foot."""
    title = "updates of weights, beside half a spacing of numbers"
    parts = [svg.text(EDGE, top + 0.7 * LINE, title, "small")]
    top += 0.8 * LINE
    reach = AROUND * max(updates.gap for _, updates in sides)
    for role, updates in sides:
        parts += svg.named(top + 0.8 * LINE, role, in_words(updates))
        box = Box(EDGE, top + 1.2 * LINE, WIDTH - EDGE, 0, (LOW, HIGH))
        box = box._replace(bottom=box.top + BARS)
        parts += _bars(updates, box)
        parts += _numbers(updates, reach, box.bottom + 1.7 * LINE)
        top = box.bottom + 3.2 * LINE
    return [*parts, *legend(LEGEND, EDGE, top + 0.6 * LINE)], top + LINE


def in_words(updates: Updates) -> str:
    """``61 % of the updates are rounded away``."""
    share = 100 * updates.lost
    exact = f"{share:.0f}" if share >= 1 or share == 0 else f"{share:.1g}"
    return f"{exact} % of the updates are rounded away"


def _bars(updates: Updates, box: Box) -> list[Markup]:
    """Shares of the updates; those left of half a spacing are lost."""
    most = max(updates.counts)
    parts = [field(box)]
    for power, count in enumerate(updates.counts, LOW):
        if count:
            high, left = BARS * count / most, box.x(power)
            kind = "fill slower" if power < 0 else "fill candidate"
            wide = box.x(power + 1) - left - 1
            parts.append(svg.rect(left, box.bottom - high, wide, high, kind))
    parts.append(upright(box, box.x(0), "one", "5 4"))
    for power in range(-10, 11, 10):
        words = "half a spacing" if power == 0 else f"{power_of_two(power)} of it"
        parts.append(svg.below(box.x(power), box.bottom + 0.75 * LINE, words))
    return parts


def power_of_two(power: int) -> str:
    """``2⁻¹⁰``."""
    return f"2{str(power).translate(RAISED)}"


def _numbers(updates: Updates, reach: float, y: float) -> list[Markup]:
    """The numbers of the format next to the typical weight, and where its update would bring it."""
    weight, update = updates.typical
    gap = updates.gap
    box = Box(EDGE, y - HALF_LINE, WIDTH - EDGE, y + HALF_LINE, (weight - reach, weight + reach))
    apart = box.x(weight + gap) - box.x(weight)
    parts: list[Markup] = []
    if apart < NEAR:
        parts.append(svg.rect(box.left, box.top, box.right - box.left, 2 * HALF_LINE, "band arm4"))
    else:
        parts.append(svg.path([(box.left, y), (box.right, y)], "grid"))
        reached = int(reach / gap)
        for number in range(-reached, reached + 1):
            parts.append(upright(box, box.x(weight + number * gap), "line arm4"))
    lost = 2 * update < gap
    tone = "slower" if lost else "candidate"
    ends = box.x(weight), box.x(weight + update)
    parts.append(svg.path([(end, y) for end in ends], f"line middle {tone}"))
    parts.append(svg.dots([(ends[0], y)], f"end {tone}"))
    fate = "stays" if lost else "moves"
    words = f"{weight:.2g} gets {update:.2g}, the next number is {gap:.2g} on: {fate}"
    return [*parts, svg.text(EDGE, y + 1.2 * LINE, words, "small")]
