"""A plot: where its values lie, round values at its edges, and its legends."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from labkit.charts import svg
from labkit.charts.svg import EDGE, LETTERS, LINE, WIDTH
from labkit.show import FARTHEST, Markup

# A scale of ratios ends at one of these, or at its inverse: it grows in few steps.
RUNGS = (1.05, 1.1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)
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
    parts = [svg.rect(box.left, box.top, box.right - box.left, box.bottom - box.top, "field")]
    parts += level_ticks(box, short)
    for value in _round_values(*box.across):
        parts.append(svg.below(box.x(value), box.bottom + 20, short(value)))
    parts.append(svg.text(box.left, box.top - 8, name, "small"))
    return parts


def level_ticks(box: Box, words: Callable[[float], str]) -> list[Markup]:
    parts = []
    for value in _round_values(*box.up):
        y = box.y(value)
        parts.append(svg.path([(box.left, y), (box.right, y)], "grid"))
        parts.append(svg.text(box.left - 6, y + 5, words(value), "small", "end"))
    return parts


def ratio_levels(box: Box) -> list[Markup]:
    """A line at 1, and round ratios."""
    parts: list[Markup] = []
    taken: list[float] = []
    for ratio in round_ratios(*box.up):
        y = box.y(math.log(ratio))
        if all(abs(y - other) > 22 for other in taken):
            taken.append(y)
            kind = "one" if ratio == 1 else "grid"
            parts.append(svg.path([(box.left, y), (box.right, y)], kind))
            parts.append(svg.text(box.left - 6, y + 5, times(ratio), "small", "end"))
    return parts


def upright(box: Box, x: float, kind: str, dashes: str = "") -> Markup:
    return svg.path([(x, box.top), (x, box.bottom)], kind, dashes)


def swatch(tone: str, y: float, x: float = EDGE) -> Markup:
    return svg.rect(x, y - 11, 13, 13, f"fill {tone}")


def legend(labels: Sequence[str], above: float) -> list[Markup]:
    """Recorded machines, a line each: a dashed stroke and a name."""
    parts = []
    for number, label in enumerate(labels):
        y = above + LINE * (number + 1)
        dashes = DASHES[number % len(DASHES)]
        parts.append(svg.path([(EDGE, y - 5), (EDGE + 44, y - 5)], "line recorded", dashes))
        parts.append(svg.text(EDGE + 52, y, label, "recorded", room=LETTERS - 6))
    return parts


def line_of_words(label: str, words: str, y: float, left: float = EDGE) -> list[Markup]:
    """A label, its end cut where it would meet the words at the right."""
    room = int(LETTERS * (1 - left / WIDTH)) - len(words) - 2
    parts = [svg.text(left, y, label, "bold", room=room)]
    if words:
        parts.append(svg.text(WIDTH - EDGE, y, words, "", "end"))
    return parts


def round_ratios(low: float, high: float) -> list[float]:
    """1, then round ratios between two logarithms, the outermost first."""
    rungs = [1.0]
    for rung in reversed(RUNGS):
        rungs += [rung, 1 / rung]
    return [rung for rung in rungs if low - 1e-9 <= math.log(rung) <= high + 1e-9]


def _round_values(low: float, high: float) -> list[float]:
    """About four round numbers from low to high."""
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    step = next(power * digit for digit in (1, 2, 5, 10) if power * digit >= rough * 0.99)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def rung(value: float) -> float:
    return next((rung for rung in RUNGS if rung >= value), RUNGS[-1])


def _part(value: float, low: float, high: float) -> float:
    """Where a value lies between two others, from 0 to 1; the nearer end of one beyond them."""
    return min(1.0, max(0.0, (value - low) / (high - low)))


def log_of(ratio: float) -> float:
    return math.log(min(FARTHEST, max(1 / FARTHEST, ratio)))


def is_known(interval: tuple[float, float]) -> bool:
    return not math.isnan(interval[0] + interval[1])


def most_of(values: Iterable[float]) -> float:
    """The largest finite value; 0 without one."""
    return max((value for value in values if math.isfinite(value)), default=0.0)


def times(ratio: float) -> str:
    return f"{ratio:.3g}×" if ratio >= 1 else f"{ratio:.2g}×"


def short(value: float) -> str:
    """A round number in few letters: ``1500`` -> ``1.5 k``."""
    for scale, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= scale:
            return f"{value / scale:.3g} {prefix}"
    return f"{value:.3g}"
