"""The picture of a comparison of memory: what is alive when, in one step of each side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from labkit.charts import svg
from labkit.charts.plot import TONES, Box, field, most_of, upright
from labkit.charts.rows import ROW, bar_rows
from labkit.charts.svg import EDGE, LINE, WIDTH
from labkit.show import Bar, Markup
from labkit.text import format_bytes

LEFT, BETWEEN = 104.0, 24.0


class Step(NamedTuple):
    """Bytes alive after each operator, where its parts begin, and what was there before."""

    alive: Sequence[int]
    parts: Sequence[tuple[int, str]]
    before: int


def memory(words: str, peaks: Sequence[Bar], steps: tuple[Step, Step]) -> Markup:
    """What is alive when, in one step of each side, on one scale; the peak is marked."""
    parts = bar_rows(peaks)
    most = 1.25 * (most_of(size for step in steps for size in step.alive) or 1)
    width, top = (WIDTH - EDGE - LEFT - BETWEEN) / 2, 2 * ROW + 4
    for number, step in enumerate(steps):
        left = LEFT + number * (width + BETWEEN)
        across = (0, max(1, len(step.alive)))
        box = Box(left, top, left + width, top + 170, across, (0, most))
        parts += _step(step, box, TONES[number])
    for size in (0, most / 2.5, most / 1.25):
        words_of_size = format_bytes(size) if size else "0"
        parts.append(svg.text(LEFT - 6, box.y(size) + 5, words_of_size, "small", "end"))
    foot = box.bottom + 3 * LINE
    parts.append(svg.text(LEFT, foot, "bytes alive after each operator of a step", "small"))
    return svg.picture(foot + 0.4 * LINE, words, parts)


def _step(step: Step, box: Box, tone: str) -> list[Markup]:
    """What is alive after each operator, on top of what was there before; parts, and the peak."""
    y = box.y(step.before)
    parts = [field(box)]
    parts.append(svg.rect(box.left, y, box.right - box.left, box.bottom - y, f"band {tone}"))
    for number, (begin, name) in enumerate(step.parts):
        parts += _part_name(number, begin, name, box)
    if not step.alive:
        return parts
    corners = [(box.left, box.bottom)]
    for number, size in _thinned(step.alive):
        corners += [(box.x(number), corners[-1][1]), (box.x(number), box.y(size))]
    corners += [(box.right, corners[-1][1]), (box.right, box.bottom)]
    parts.append(svg.path(corners, f"band {tone}"))
    parts.append(svg.path(corners[1:-1], f"line thin {tone}"))
    highest = max(step.alive)
    x, y = box.x(step.alive.index(highest) + 0.5), box.y(highest)
    parts.append(svg.dots([(x, y)], f"end {tone}"))
    anchor, place = ("end", x - 8) if x > (box.left + box.right) / 2 else ("start", x + 8)
    return [*parts, svg.text(place, y - 6, format_bytes(highest), "", anchor)]


def _part_name(number: int, begin: int, name: str, box: Box) -> list[Markup]:
    """A line where a part of the step begins; names that follow stand on two levels."""
    parts = []
    x, anchor = box.x(begin), "start"
    if number:
        parts.append(upright(box, x, "grid"))
        if x > box.left + 0.6 * (box.right - box.left):
            x, anchor = box.right, "end"
    y = box.bottom + 18 + (number % 2) * 22
    return [*parts, svg.text(x, y, name, "small", anchor)]


def _thinned(alive: Sequence[int]) -> list[tuple[int, int]]:
    """Operators and bytes: of neighbours the highest, so that no peak is lost."""
    every = math.ceil(len(alive) / 240) or 1
    return [(begin, max(alive[begin : begin + every])) for begin in range(0, len(alive), every)]
