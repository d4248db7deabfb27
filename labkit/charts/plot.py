"""A plot: where its values lie, round values at its edges, and its legend."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from labkit.charts import svg
from labkit.charts.svg import EDGE, LETTERS, LINE
from labkit.show import Markup
from labkit.text import format_short

DASHES = ("7 4", "2 3", "9 3 2 3")
TONES = ("baseline", "candidate", "arm3", "arm4", "arm5", "arm6")


class Box(NamedTuple):
    """Where a plot lies, and the values at its edges: ``x`` and ``y`` keep within it."""

    left: float
    top: float
    right: float
    bottom: float
    across: tuple[float, float]
    up: tuple[float, float] = (0.0, 1.0)

    def x(self, value: float) -> float:
        """The place of a value along the plot."""
        return self.left + (self.right - self.left) * _part(value, *self.across)

    def y(self, value: float) -> float:
        """The place of a value up the plot."""
        return self.bottom - (self.bottom - self.top) * _part(value, *self.up)


def axes(box: Box, name: str) -> list[Markup]:
    """Round values at the left and below, and the name of what goes up."""
    parts = [field(box), svg.text(box.left, box.top - 8, name, "small")]
    for value in _round_values(*box.up):
        y = box.y(value)
        parts.append(svg.path([(box.left, y), (box.right, y)], "grid"))
        parts.append(svg.text(box.left - 6, y + 5, format_short(value), "small", "end"))
    for value in _round_values(*box.across):
        parts.append(svg.below(box.x(value), box.bottom + 20, format_short(value)))
    return parts


def field(box: Box) -> Markup:
    """The paper of a plot."""
    return svg.rect(box.left, box.top, box.right - box.left, box.bottom - box.top, "field")


def upright(box: Box, x: float, kind: str, dashes: str = "") -> Markup:
    return svg.path([(x, box.top), (x, box.bottom)], kind, dashes)


def legend(labels: Sequence[str], above: float) -> list[Markup]:
    """Recorded machines, a line each: a dashed stroke and a name."""
    parts = []
    for number, label in enumerate(labels):
        y = above + LINE * (number + 1)
        dashes = DASHES[number % len(DASHES)]
        parts.append(svg.path([(EDGE, y - 5), (EDGE + 44, y - 5)], "line recorded", dashes))
        parts.append(svg.text(EDGE + 52, y, label, "recorded", room=LETTERS - 6))
    return parts


def most_of(values: Iterable[float]) -> float:
    """The largest finite value; 0 without one."""
    return max((value for value in values if math.isfinite(value)), default=0.0)


def _round_values(low: float, high: float) -> list[float]:
    """About four round numbers from low to high."""
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    step = next(power * digit for digit in (1, 2, 5, 10) if power * digit >= rough * 0.99)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _part(value: float, low: float, high: float) -> float:
    """Where a value lies between two others, from 0 to 1; the nearer end of one beyond them."""
    return min(1.0, max(0.0, (value - low) / (high - low)))
