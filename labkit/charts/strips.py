"""Ratios with their intervals, on one logarithmic scale on which 1 is marked."""

from __future__ import annotations

import math
from collections.abc import Sequence

from labkit.charts import svg
from labkit.charts.plot import DASHES, Box, field, legend, upright
from labkit.charts.rows import ROW, bar_rows
from labkit.charts.svg import EDGE, LINE, WIDTH
from labkit.show import Bar, Markup, Ratio
from labkit.text import format_factor

# A scale ends at one of these, or at its inverse: it grows in few steps.
RUNGS = (1.05, 1.1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)
# A picture with more dots is large and shows no more.
MOST_DOTS = 1000
# A strip, and one with its line of words.
STRIP, EACH = 16.0, 48.0
SPEEDS = ("slower", "faster")


def pairs(
    words: str,
    sides: Sequence[Bar],
    peaks: Sequence[Bar],
    own: Ratio,
    ratios: Sequence[float],
    *,
    floor: float,
    recorded: Sequence[Ratio] = (),
    guess: float | None = None,
) -> Markup:
    """Both sides as bars; below each pair of blocks as a dot, with interval and noise floor.

    ``floor`` is a logarithm. Of more than 1,000 pairs every so many are dots. Below them the ratios
    that other machines ``recorded``, on the same scale.
    """
    top = 2 * ROW + LINE + 12
    # An outlier must not flatten the rest.
    known = sorted(ratios) or [1.0]
    bulk = [known[len(known) // 20], known[-1 - len(known) // 20]]
    bulk += [row.value for row in recorded]
    scale = _scale([*bulk, guess] if guess else bulk, [own.interval])
    box = Box(EDGE, top, WIDTH - EDGE, top + 84, scale)
    parts = [*bar_rows(sides, peaks), field(box)]
    if math.isfinite(floor):
        ends = box.x(-floor), box.x(floor)
        parts.append(svg.rect(ends[0], box.top, ends[1] - ends[0], box.bottom - box.top, "floor"))
    parts += _dots(ratios, own.tone, box)
    parts += _mark(own, box)
    parts += _rows(recorded, box._replace(top=box.bottom))
    whole = box._replace(bottom=box.bottom + EACH * len(recorded))
    if guess:
        parts += _guess(guess, whole)
    return svg.picture(whole.bottom + 1.4 * LINE, words, [*_ticks(whole, SPEEDS), *parts])


def ratios(
    words: str,
    rows: Sequence[Ratio],
    *,
    ends: tuple[str, str] = SPEEDS,
    below: str = "",
    recorded: Sequence[str] = (),
) -> Markup:
    """A strip for each row: its name and words, its interval, and a line at the ratio.

    ``ends`` say what lies to either side of 1, ``below`` what all rows are of. The labels of
    ``recorded`` machines belong to the ``others`` of each row, in their order.
    """
    values = [value for row in rows for value in (row.value, *row.others)]
    scale = _scale(values, [row.interval for row in rows])
    box = Box(EDGE, LINE, WIDTH - EDGE, LINE + EACH * len(rows), scale)
    foot = box.bottom + 20 + LINE
    parts = [*_ticks(box, ends), *_rows(rows, box)]
    parts.append(svg.text(EDGE, foot, below, "small"))
    parts += legend(recorded, foot)
    return svg.picture(foot + LINE * (len(recorded) + 0.4), words, parts)


def _scale(
    values: Sequence[float], intervals: Sequence[tuple[float, float]]
) -> tuple[float, float]:
    """The logarithms of the ends of a scale: of intervals it holds what does not flatten it."""
    known = [value for value in values if not math.isnan(value)] or [1.0]
    low, high = min(known), max(known)
    for interval in intervals:
        known += [end for end in interval if low / 2 <= end <= 2 * high]
    return -_rung(-min(map(_log, known))), _rung(max(map(_log, known)))


def _rung(log: float) -> float:
    return next((math.log(rung) for rung in RUNGS if math.log(rung) >= log), math.log(RUNGS[-1]))


def _log(ratio: float) -> float:
    """The logarithm; of what lies beyond every scale that of its end."""
    return math.log(min(RUNGS[-1], max(1 / RUNGS[-1], ratio)))


def _ticks(box: Box, ends: tuple[str, str]) -> list[Markup]:
    """Which side is which; a line at 1, and as many round ratios as have room for their names."""
    parts = [
        svg.text(box.left, box.top - 8, f"← {ends[0]}", "small"),
        svg.text(box.right, box.top - 8, f"{ends[1]} →", "small", "end"),
    ]
    taken: dict[float, str] = {}
    low, high = box.across
    for ratio in (1.0, *(end for rung in reversed(RUNGS) for end in (rung, 1 / rung))):
        x, name = box.x(math.log(ratio)), f"{ratio:.{3 if ratio >= 1 else 2}g}×"
        inside = low - 1e-9 <= math.log(ratio) <= high + 1e-9
        if inside and all(abs(x - at) > _room(name, other) for at, other in taken.items()):
            taken[x] = name
            parts.append(upright(box, x, "one" if ratio == 1 else "grid"))
            parts.append(svg.below(x, box.bottom + 20, name))
    return parts


def _room(name: str, other: str) -> float:
    """Between the middles of two names; a narrow screen's letters are large."""
    return max(76.0, 11.0 * (len(name) + len(other)))


def _dots(ratios: Sequence[float], tone: str, box: Box) -> list[Markup]:
    every = math.ceil(len(ratios) / MOST_DOTS) or 1
    points = []
    for number, ratio in enumerate(ratios[::every]):
        # Each dot keeps its height while others come: parts of the golden ratio fill it evenly.
        part = (0.5 + number * 0.618034) % 1
        points.append((box.x(_log(ratio)), box.top + 8 + part * (box.bottom - box.top - 16)))
    words = "each dot: a pair of blocks" if every == 1 else f"dots: one of {every} pairs of blocks"
    parts = [svg.text(WIDTH / 2, box.top - 8, words, "small", "middle")]
    return [*parts, svg.dots(points, tone)] if points else parts


def _rows(rows: Sequence[Ratio], box: Box) -> list[Markup]:
    """A line of words and a strip for each ratio, from the top of the box on."""
    parts = []
    for number, row in enumerate(rows):
        y = box.top + 20 + EACH * number
        parts += svg.named(y, row.label, row.text, row.note)
        strip = box._replace(top=y + 6, bottom=y + 6 + STRIP)
        parts.append(field(strip))
        for other, dashes in zip(row.others, DASHES * len(row.others), strict=False):
            if not math.isnan(other):
                parts.append(upright(strip, strip.x(_log(other)), "line recorded", dashes))
        parts += _mark(row, strip)
    return parts


def _mark(row: Ratio, box: Box) -> list[Markup]:
    """The interval and the ratio; an interval too narrow to be filled is still seen."""
    parts = []
    if not math.isnan(sum(row.interval)):
        low, high = (box.x(_log(end)) for end in row.interval)
        wide = max(2.0, high - low)
        parts.append(svg.rect(low, box.top, wide, box.bottom - box.top, f"band {row.tone}"))
    if not math.isnan(row.value):
        parts.append(upright(box, box.x(_log(row.value)), f"line middle {row.tone}"))
    return parts


def _guess(guess: float, box: Box) -> list[Markup]:
    """The reader's guess: a dashed line, and its name on the side where there is room."""
    x = box.x(_log(guess))
    place, anchor = (x + 6, "start") if x < WIDTH / 2 else (x - 6, "end")
    name = svg.text(place, box.top + 20, f"your bet {format_factor(guess)}×", "guess", anchor)
    return [upright(box, x, "line guess", "5 4"), name]
