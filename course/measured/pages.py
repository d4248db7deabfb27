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
# In the colours of the explorable, and by its names.
FAULTS, REST = ("fill slower", "page fault"), ("fill candidate", "the rest")
PASSES = ("fill arm5", "passes of zeros")
ZEROS, FREE = "fill baseline", "line thin baseline"
# The part of two sides' difference that page faults may have where it is that of passes.
CALM = 0.1
# The share of the pages below which as good as none came again.
FEW = 0.1


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
    more = passes(sides, fault)
    parts, top = [], 0.0
    for side in sides:
        parts += _heading(side, top)
        parts += _strip(side, top + LINE)
        end = more if side is sides[0] else 0.0
        parts += _bar(side, fault, end, Box(EDGE, top, WIDTH - EDGE, top, (0, longest)))
        top += LINE + STRIP + BAR + 3 * GAP
    parts += _legend(top + 0.7 * LINE, sides, fault, more)
    told = sentence(sides)
    parts.append(svg.text(EDGE, top + 1.8 * LINE, told, "bold"))
    words = "; ".join(f"{side.name}: {_in_words(side)}" for side in sides)
    return svg.picture(top + 2.2 * LINE, f"{words}. {told}", parts)


def sentence(sides: list[Side]) -> str:
    """What became of the freed memory, by the page faults that were counted."""
    least, most = (best(sides, key=lambda side: side.faults) for best in (min, max))
    if share(most) < FEW:
        return "Freed memory stays: hardly a page comes again."
    if share(most) - share(least) < FEW:
        return "Both sides have about as many page faults."
    way = most.name.rpartition(" ")[2].replace("none", "None")
    return f"Pages come again: {most.faults - least.faults:,.0f} more page faults with {way}."


def share(side: Side) -> float:
    """The part of the gradients' pages that came again, at most all."""
    return min(1.0, side.faults / side.pages)


def passes(sides: list[Side], fault: float) -> float:
    """Seconds that zeros take more than None, where page faults are hardly part of it; else 0."""
    zeros, none = sides[0], sides[-1]
    if not zeros.name.endswith("zeros") or not none.name.endswith("none"):
        return 0.0
    apart = zeros.seconds - none.seconds
    calm = abs(zeros.faults - none.faults) * fault < CALM * apart
    return apart if calm else 0.0


def _in_words(side: Side) -> str:
    faults = f"{side.faults:,.0f} page faults" if side.faults >= 0.5 else "no page fault"
    return f"{format_seconds(side.seconds)} per step, {faults}"


def _heading(side: Side, top: float) -> list[Markup]:
    return svg.named(top + 0.75 * LINE, side.name, _in_words(side))


def _strip(side: Side, top: float) -> list[Markup]:
    """The pages of the gradients; as many are red as came again, the others zeros or free."""
    count = GRADIENTS * CELLS
    group = (WIDTH - 2 * EDGE + GAP) / GRADIENTS
    wide = (group - GAP) / CELLS
    red = round(share(side) * count)
    stays = FREE if side.name.endswith("none") else ZEROS
    parts = []
    for number in range(count):
        x = EDGE + group * (number // CELLS) + wide * (number % CELLS)
        kind = FAULTS[0] if number < red else stays
        parts.append(svg.rect(x, top, wide - 1, STRIP, kind))
    return parts


def _bar(side: Side, fault: float, more: float, box: Box) -> list[Markup]:
    """The step's time: page faults first, at its end what zeros cost ``more``."""
    top = box.top + LINE + STRIP + GAP
    lost = min(side.seconds, side.faults * fault)
    ends = [box.x(seconds) for seconds in (0, lost, side.seconds - more, side.seconds)]
    return [
        svg.rect(begin, top, end - begin, BAR, kind)
        for (begin, end), (kind, _) in zip(pairwise(ends), (FAULTS, REST, PASSES), strict=True)
    ]


def _legend(y: float, sides: list[Side], fault: float, more: float) -> list[Markup]:
    """Of what was seen: page faults and how long one takes, what zeros take more."""
    entries = [REST]
    if more:
        entries.insert(0, PASSES)
    if any(side.faults >= 0.5 for side in sides):
        each = f": {format_seconds(fault)}" if fault else ""
        entries.insert(0, (FAULTS[0], FAULTS[1] + each))
    parts, x = [], EDGE
    for kind, words in entries:
        parts.append(svg.rect(x, y - 11, 12, 12, kind))
        parts.append(svg.text(x + 18, y, words, "small"))
        x += 34 + svg.LETTER * len(words)
    return parts
