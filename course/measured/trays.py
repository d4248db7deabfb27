"""13: the memory of a measured step, a bar for each micro-batch, as the moving picture has it.

The whole batch stands at the left, the micro-batches behind it. Gradients live from the first
backward pass to the update: they are under every later bar.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from course.measured.sides import legend
from labkit.charts import svg
from labkit.charts.plot import Box, field
from labkit.charts.svg import EDGE, LINE, WIDTH
from labkit.memory_timeline import FORWARD, OPTIMIZER, MemoryComparison, Timeline
from labkit.show import Markup
from labkit.text import format_bytes

BEFORE, GRADIENTS, KEPT, UPDATE = "floor", "fill arm3", "fill arm5", "fill arm4"
LEGEND = (
    (BEFORE, "weights, optimizer, images"),
    (KEPT, "this micro-batch"),
    (GRADIENTS, "gradients so far"),
    (UPDATE, "the update"),
)
LEFT, TOP, HEIGHT, COLUMN = 108.0, 24.0, 220.0, 322.0
# Pixels that the words over the first side take, and the part of its place that a bar fills.
WORDS, BAR = 172.0, 0.8
# Places of bars below this width have no room for a number each.
ROOM = 40.0
# Operators until what the one before them held is surely gone.
MOMENT = 3


class Tray(NamedTuple):
    """A micro-batch or the update: bytes at its begin, and the most while it runs.

    ``what`` is `KEPT` or `UPDATE`.
    """

    begin: int
    most: int
    what: str


def trays(side: Timeline) -> list[Tray]:
    """A `Tray` for each micro-batch of a step, and one for its update where there is one.

    A micro-batch begins with its forward pass.
    """
    starts = [(begin, name) for begin, name in side.parts if name in (FORWARD, OPTIMIZER)]
    found = []
    for (begin, name), (end, _) in pairwise([*starts, (len(side.alive), "")]):
        # What the operator before still held is gone a moment later.
        at_first = min(side.alive[begin - 1 : begin + MOMENT]) if begin else side.before
        most = max(side.alive[begin:end])
        found.append(Tray(at_first, most, UPDATE if name == OPTIMIZER else KEPT))
    return found


def picture(result: object) -> str:
    """A picture for `LabPanel(picture=...)`; "" for anything but a comparison of memory."""
    if not isinstance(result, MemoryComparison) or result.why_no_factor:
        return ""
    sides = _alike([trays(side) for side in result.arms])
    if not all(sides):
        return ""
    most = max(tray.most for found in sides for tray in found)
    box = Box(LEFT, TOP, WIDTH - EDGE, TOP + HEIGHT, (0, 1), (0, 1.18 * most))
    parts = [
        field(box),
        svg.text(LEFT, TOP - 8, "memory, one micro-batch after the other", "small"),
    ]
    for size in (0.0, most / 2, float(most)):
        words = format_bytes(round(size)) if size else "0"
        parts.append(svg.text(LEFT - 6, box.y(size) + 5, words, "small", "end"))
    for side, found, part in zip(result.arms, sides, _places(box, sides), strict=True):
        parts += _side(side, found, part)
    foot = box.bottom + 2.8 * LINE
    parts += _legend(foot, any(tray.what == UPDATE for tray in sides[0]))
    peaks = " instead of ".join(side.peak_text for side in (result.candidate, result.baseline))
    words = f"{name(sides[1])}: peak {peaks}, {name(sides[0])}"
    return svg.picture(foot + 1.5 * LINE, words, parts)


def name(found: Sequence[Tray]) -> str:
    """``whole batch``, ``8 micro-batches``."""
    count = sum(tray.what == KEPT for tray in found)
    return "whole batch" if count == 1 else f"{count} micro-batches"


def _alike(sides: list[list[Tray]]) -> list[list[Tray]]:
    """With updates on both sides, or on none: one of few operators is no part of its own."""
    if all(any(tray.what == UPDATE for tray in found) for found in sides):
        return sides
    return [[tray for tray in found if tray.what == KEPT] for found in sides]


def _places(box: Box, sides: list[list[Tray]]) -> list[Box]:
    """Where each side is drawn, with bars of one width: its values across are numbers of bars."""
    first, second = map(len, sides)
    wide = box.right - box.left
    split = max(WORDS, wide * first / (first + second))
    pitch = min(split / first, (wide - split) / second)
    lefts = (box.left + (1 - BAR) * pitch / 2, box.left + split)
    return [
        box._replace(left=left, right=left + count * pitch, across=(0, count))
        for left, count in zip(lefts, (first, second), strict=True)
    ]


def _side(side: Timeline, found: list[Tray], box: Box) -> Iterator[Markup]:
    pitch = box.x(1) - box.x(0)
    last = sum(tray.what == KEPT for tray in found)
    for place, tray in enumerate(found):
        x = box.x(place)
        levels = [(0, side.before, BEFORE), (side.before, tray.begin, GRADIENTS)]
        for low, high, look in [*levels, (tray.begin, tray.most, tray.what)]:
            yield svg.rect(x, box.y(high), pitch * BAR, box.y(low) - box.y(high), look)
        number = place + 1
        numbered = pitch >= ROOM or number in (1, last)
        if tray.what == KEPT and last > 1 and numbered:
            yield svg.below(x + pitch * BAR / 2, box.bottom + 17, str(number))
    y = box.y(max(tray.most for tray in found))
    yield svg.path([(box.left, y), (box.right - (1 - BAR) * pitch, y)], "whisker", "5 4")
    yield svg.text(box.left, y - 7, f"peak {side.peak_text}", "bold")
    yield svg.text(box.left, box.bottom + 17 + LINE, name(found), "small")


def _legend(y: float, update: bool) -> Iterator[Markup]:
    for number, (look, word) in enumerate(LEGEND):
        left = LEFT + COLUMN * (number % 2)
        if update or look != UPDATE:
            yield from legend([(look, word)], left, y + LINE * (number // 2))
