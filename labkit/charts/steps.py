"""The picture of a comparison of memory: what is alive when, in one step of each side."""

from __future__ import annotations

import math
from collections.abc import Sequence

from labkit.charts import svg
from labkit.charts.given import Remembered, Step
from labkit.charts.plot import TONES, Box, most_of, upright
from labkit.charts.sides import SIDES, both_sides
from labkit.charts.svg import EDGE, LINE, WIDTH
from labkit.show import Markup
from labkit.text import format_bytes


def memory(result: Remembered) -> Markup:
    """What is alive when, in one step of each side, on one scale; the peak is marked."""
    parts = both_sides(result.bars, ())
    most = 1.25 * (most_of(size for side in result.arms for size in side.alive) or 1)
    left, width, top = 104.0, (WIDTH - EDGE - 104 - 24) / 2, SIDES - 8
    for number, side in enumerate(result.arms):
        left += number * (width + 24)
        box = Box(left, top, left + width, top + 170, (0, max(1, len(side.alive))), (0, most))
        parts += _timeline(side, box, TONES[number])
    for size in (0, most / 2.5, most / 1.25):
        y = box.y(size)
        parts.append(svg.text(98, y + 5, format_bytes(size) if size else "0", "small", "end"))
    words = "bytes alive after each operator of a step"
    parts.append(svg.text(104, box.bottom + 3 * LINE, words, "small"))
    return svg.picture(box.bottom + 3.4 * LINE, result.sentence, parts)


def _timeline(side: Step, box: Box, tone: str) -> list[Markup]:
    """What is alive after each operator, on top of what was there before; parts, and the peak."""
    parts = [svg.rect(box.left, box.top, box.right - box.left, box.bottom - box.top, "field")]
    y = box.y(side.before)
    parts.append(svg.rect(box.left, y, box.right - box.left, box.bottom - y, f"band {tone}"))
    alive = _thinned(side.alive)
    if alive:
        corners = [(box.left, box.bottom)]
        for number, size in alive:
            corners += [(box.x(number), corners[-1][1]), (box.x(number), box.y(size))]
        corners += [(box.right, corners[-1][1]), (box.right, box.bottom)]
        parts.append(svg.path(corners, f"band {tone}"))
        parts.append(svg.path(corners[1:-1], f"line thin {tone}"))
    for number, (begin, name) in enumerate(side.parts):
        parts += _part_name(side.parts, number, begin, name, box)
    if alive:
        highest = max(side.alive)
        x, y = box.x(side.alive.index(highest) + 0.5), box.y(highest)
        parts.append(svg.dots([(x, y)], f"end {tone}"))
        anchor, place = ("end", x - 8) if x > (box.left + box.right) / 2 else ("start", x + 8)
        parts.append(svg.text(place, y - 6, format_bytes(highest), "", anchor))
    return parts


def _part_name(
    every: Sequence[tuple[int, str]], number: int, begin: int, name: str, box: Box
) -> list[Markup]:
    """A line where a part of the step begins; names that follow stand on two levels."""
    parts = []
    x, anchor = box.x(begin), "start"
    if number:
        parts.append(upright(box, x, "grid"))
        if x > box.left + 0.6 * (box.right - box.left):
            x, anchor = box.right, "end"
    y = box.bottom + 18 + (number % 2) * 22
    parts.append(svg.text(x, y, name, "small", anchor))
    return parts


def _thinned(alive: Sequence[int]) -> list[tuple[int, int]]:
    """Operators and bytes: of neighbours the highest, so that no peak is lost."""
    every = math.ceil(len(alive) / 240) or 1
    return [(begin, max(alive[begin : begin + every])) for begin in range(0, len(alive), every)]
