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
ZEROS, FREE = ("fill baseline", "zeros"), ("line thin baseline", "free")
WHOLE = "the step"
# The part of two sides' difference that page faults may have where it is that of passes.
CALM = 0.1
# The share of the pages below which as good as none came again.
FEW = 0.1
# The share of a step that page faults can have beside its computing.
MOST = 0.9
WINNERS = {"faster": 1, "slower": 0}


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
        each = zip(result.roles, result.arms, result.step_times, strict=True)
        for role, side, seconds in each:
            counted = faults.of(side.settings)
            if counted is None:
                return ""
            name = role if result.names else f"{role}, {side.settings['way']}"
            sides.append(Side(name, seconds, counted, size(side.settings) / PAGESIZE))
        place = WINNERS.get(result.tone)
        return draw(sides, fault_seconds(), None if place is None else sides[place])

    return picture


def draw(sides: list[Side], fault: float, winner: Side | None = None) -> Markup:
    """A strip of pages and a bar of time for each side.

    ``fault``: seconds of a page fault; ``winner``: the side that is clearly faster.
    """
    longest = max(side.seconds for side in sides)
    more = passes(sides, fault)
    split = splits(sides, fault)
    parts, top = [], 0.0
    for side in sides:
        parts += _heading(side, top)
        parts += _strip(side, top + LINE)
        end = more if side is sides[0] else 0.0
        box = Box(EDGE, top, WIDTH - EDGE, top, (0, longest))
        parts += _bar(side, fault if split else 0.0, end, box)
        top += LINE + STRIP + BAR + 3 * GAP
    legend, top = _legend(top + 0.7 * LINE, sides, fault if split else 0.0, more)
    parts += legend
    told = [sentence(sides), *notes(sides, fault, winner)]
    for number, words in enumerate(told):
        top += LINE if number else 1.1 * LINE
        parts.append(svg.text(EDGE, top, words, "" if number else "bold"))
    words = "; ".join(f"{side.name}: {_in_words(side)}" for side in sides)
    return svg.picture(top + 0.4 * LINE, f"{words}. {' '.join(told)}", parts)


def sentence(sides: list[Side]) -> str:
    """What became of the freed memory, by the page faults that were counted."""
    least, most = (best(sides, key=lambda side: side.faults) for best in (min, max))
    if share(most) < FEW:
        freed = [_way(side) for side in sides if _drops(side)]
        who = f"What {freed[0]} frees stays" if freed else "Neither side frees gradients"
        return f"{who}: hardly a page comes again."
    if share(most) - share(least) < FEW:
        return "Both sides have about as many page faults."
    return (
        f"Pages come again: {most.faults - least.faults:,.0f} more page faults with {_way(most)}."
    )


def notes(sides: list[Side], fault: float, winner: Side | None) -> list[str]:
    """What else the reader sees: a winner with more faults, faults of no gradient, no split."""
    found = []
    least, most = (min(sides, key=share), max(sides, key=share))
    if winner is most and share(most) - share(least) >= FEW:
        longer = ": four passes of zeros take longer" if _way(least) == "zeros" else ""
        found.append(f"Yet {_way(most)} is faster{longer}.")
    for side in sides:
        if not _drops(side) and share(side) >= FEW:
            found.append(f"{_way(side)}: faults of new gradients, dropped once added.")
    if not splits(sides, fault):
        alone = f"A fault alone takes {format_seconds(fault)}, here less"
        found.append(f"{alone}: no split.")
    return found


def splits(sides: list[Side], fault: float) -> bool:
    """Whether the page faults leave each step time to compute."""
    return all(side.faults * fault <= MOST * side.seconds for side in sides)


def _way(side: Side) -> str:
    return side.name.rpartition(" ")[2].replace("none", "None")


def _drops(side: Side) -> bool:
    """Whether the gradients themselves are given back, and not only new ones that are added."""
    return _way(side) == "None"


def share(side: Side) -> float:
    """Page faults beside the pages of all gradients, at most 1."""
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
    """The pages of the gradients; red are those that came again, the others zeros or free."""
    count = GRADIENTS * CELLS
    group = (WIDTH - 2 * EDGE + GAP) / GRADIENTS
    wide = (group - GAP) / CELLS
    drops = _drops(side)
    red = round(share(side) * count) if drops else 0
    stays = (FREE if drops else ZEROS)[0]
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


def _legend(y: float, sides: list[Side], fault: float, more: float) -> tuple[list[Markup], float]:
    """Of what was seen, cells first: its parts, and where its last row is."""
    entries = [(FREE if _drops(side) else ZEROS) for side in sides]
    came = any(side.faults >= 0.5 for side in sides)
    if came:
        each = f": {format_seconds(fault)}" if fault else ""
        entries.append((FAULTS[0], FAULTS[1] + each))
    if more:
        entries.append(PASSES)
    entries.append(REST if more or (came and fault) else (REST[0], WHOLE))
    parts, x = [], EDGE
    for kind, words in dict.fromkeys(entries):
        wide = 34 + svg.LETTER * len(words)
        if x + wide > WIDTH:
            x, y = EDGE, y + 0.8 * LINE
        parts.append(svg.rect(x, y - 11, 12, 12, kind))
        parts.append(svg.text(x + 18, y, words, "small"))
        x += wide
    return parts, y
