"""15: the pages of the gradients that came again in a measured step, as the moving picture."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from mmap import PAGESIZE
from typing import Any, NamedTuple

from course.measured.page_faults import PageFaults, fault_seconds
from labkit.charts import svg
from labkit.charts.plot import Box
from labkit.charts.svg import EDGE, LINE, WIDTH
from labkit.results import Comparison
from labkit.show import Markup
from labkit.text import format_seconds

STRIP, BAR, GAP = 30.0, 16.0, 5.0
# Cells of a strip, in groups as the gradients are.
GRADIENTS, CELLS = 8, 6
FAULTS, REST = ("fill slower", "page faults"), ("fill candidate", "the rest")
MORE = ("fill arm5", "what zeros cost more")


class Side(NamedTuple):
    """One side: seconds per step, page faults in it, and the pages of its gradients."""

    name: str
    seconds: float
    faults: float
    pages: float


def of(faults: PageFaults, size: Callable[[dict[str, Any]], float]) -> Callable[[object], str]:
    """For a panel's ``picture``; ``size(settings)``: bytes that the gradients take.

    It draws a comparison of times whose steps were counted; for anything else it returns "".
    """

    def picture(result: object) -> str:
        if not isinstance(result, Comparison) or result.error:
            return ""
        sides = []
        for role, side in zip(("baseline", "candidate"), result.arms, strict=True):
            counted = faults.of(side.settings)
            if counted is None:
                return ""
            name = f"{role}, {side.settings['way']}"
            sides.append(Side(name, side.median, counted, size(side.settings) / PAGESIZE))
        return draw(sides, fault_seconds())

    return picture


def draw(sides: list[Side], fault: float) -> Markup:
    """A strip of pages and a bar of time for each side; ``fault``: seconds of a page fault."""
    longest = max(side.seconds for side in sides)
    more = passes(sides)
    parts, top = [], 0.0
    for side in sides:
        parts += _heading(side, top)
        parts += _strip(side, top + LINE)
        end = more if side is sides[0] else 0.0
        parts += _bar(side, fault, end, Box(EDGE, top, WIDTH - EDGE, top, (0, longest)))
        top += LINE + STRIP + BAR + 3 * GAP
    parts += _legend(top + 0.7 * LINE, fault, more)
    words = "; ".join(f"{side.name}: {_in_words(side)}" for side in sides)
    return svg.picture(top + 1.1 * LINE, words, parts)


def share(side: Side) -> float:
    """The part of the gradients' pages that came again, at most all."""
    return min(1.0, side.faults / side.pages)


def passes(sides: list[Side]) -> float:
    """Seconds that zeros cost more than None, where no page fault is part of it; else 0."""
    zeros, none = sides[0], sides[-1]
    calm = zeros.faults < 0.5 and none.faults < 0.5
    if not calm or not zeros.name.endswith("zeros") or not none.name.endswith("none"):
        return 0.0
    return max(0.0, zeros.seconds - none.seconds)


def _in_words(side: Side) -> str:
    faults = f"{side.faults:,.0f} page faults" if side.faults >= 0.5 else "no page fault"
    return f"{format_seconds(side.seconds)} per step, {faults}"


def _heading(side: Side, top: float) -> list[Markup]:
    return svg.named(top + 0.75 * LINE, side.name, _in_words(side))


def _strip(side: Side, top: float) -> list[Markup]:
    """The pages of the gradients; as many are red as came again."""
    count = GRADIENTS * CELLS
    group = (WIDTH - 2 * EDGE + GAP) / GRADIENTS
    wide = (group - GAP) / CELLS
    red = round(share(side) * count)
    parts = []
    for number in range(count):
        x = EDGE + group * (number // CELLS) + wide * (number % CELLS)
        kind = "fill slower" if number < red else "fill candidate"
        parts.append(svg.rect(x, top, wide - 1, STRIP, kind))
    return parts


def _bar(side: Side, fault: float, more: float, box: Box) -> list[Markup]:
    """The step's time: page faults first, at its end what zeros cost ``more``."""
    top = box.top + LINE + STRIP + GAP
    lost = min(side.seconds, side.faults * fault)
    ends = [box.x(seconds) for seconds in (0, lost, side.seconds - more, side.seconds)]
    return [
        svg.rect(begin, top, end - begin, BAR, kind)
        for (begin, end), (kind, _) in zip(pairwise(ends), (FAULTS, REST, MORE), strict=True)
    ]


def _legend(y: float, fault: float, more: float) -> list[Markup]:
    """Of what was seen: page faults and how long one takes, or what zeros cost more."""
    each = f", {format_seconds(fault)} each on this machine" if fault else ""
    first = MORE if more else (FAULTS[0], FAULTS[1] + each)
    parts, x = [], EDGE
    for kind, words in (first, REST):
        parts.append(svg.rect(x, y - 11, 12, 12, kind))
        parts.append(svg.text(x + 18, y, words, "small"))
        x += 34 + svg.LETTER * len(words)
    return parts
