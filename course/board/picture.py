"""The board's one picture: the goal, then what each switch did, on one scale from 0 on.

What is clear is solid, what was taken away is grey, what is unclear is hatched, and a loss makes
its bar longer. Words are those of the page, of its size at any width; only the bars stretch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from labkit import show
from labkit.charts import svg
from labkit.charts.plot import most_of
from labkit.show import Markup

# Of a bar, in units of its own: it is as wide as there is room.
WIDE, HIGH, LOW = 624.0, 14.0, 6.0
# Between two lines of a hatching.
APART = 7.0


@dataclass(frozen=True)
class Goal:
    """A ghost bar: how long something takes as a whole; ``note`` stands in a line below.

    It is ``hatched`` to its end where that is not sure.
    """

    label: str
    value: float
    text: str
    tone: str
    note: str = ""
    hatched: bool = False


@dataclass(frozen=True)
class Row:
    """What a switch did: from ``before`` to ``after``, which is ``hatched`` where it is unclear.

    ``thin`` is a second figure on a scale of its own, nan where there is none; it was ``thin_was``.
    """

    label: str
    note: str
    text: str
    before: float
    after: float
    tone: str = "candidate"
    hatched: bool = False
    thin: float = math.nan
    thin_text: str = ""
    thin_was: float = math.nan
    thin_tone: str = "arm4"


def picture(words: str, goals: Sequence[Goal], rows: Sequence[Row]) -> Markup:
    """``words`` say what it shows, for who does not see it."""
    ghosts = most_of(goal.value for goal in goals)
    parts = [_goal(goal, ghosts) for goal in goals]
    most = most_of(end for row in rows for end in (row.before, row.after))
    widest = most_of(end for row in rows for end in (row.thin, row.thin_was))
    for row in rows:
        parts.append(_named(row))
        parts.append(_row(row, most))
        if math.isfinite(row.thin):
            parts.append(_thin(row, widest))
    return show.element("div", styles(), *parts, kind="board", role="group", aria_label=words)


@cache
def styles() -> Markup:
    """Those of the bars, of the picture, and of the stars."""
    text = Path(__file__).with_name("board.css").read_text(encoding="utf-8")
    return Markup(f"<style>{svg.styles()} {text}</style>")


def _bar(parts: Sequence[str], high: float = HIGH) -> Markup:
    """A bar that stretches; where styles are lost it has a height, too."""
    size = {"width": "100%", "height": svg.number(high), "preserveAspectRatio": "none"}
    box = f"0 0 {WIDE:.0f} {high:.0f}"
    return show.element("svg", *parts, kind="svg", viewBox=box, **size, aria_hidden="true")


def _goal(goal: Goal, most: float) -> Markup:
    """Name, bar and time in one line."""
    bar = [svg.rect(0, 0, WIDE, HIGH, "field")]
    if most and math.isfinite(goal.value):
        long = WIDE * goal.value / most
        bar.append(svg.rect(0, 0, long, HIGH, f"band {goal.tone}"))
        if goal.hatched:
            bar += _hatching(0, long, goal.tone)
    time = show.element("span", goal.text, kind="time")
    parts = [show.element("b", goal.label), _bar(bar), time]
    if goal.note:
        parts.append(show.element("small", goal.note, kind="whose"))
    return show.element("div", *parts, kind="goal")


def _named(row: Row) -> Markup:
    """The line of words above a bar."""
    time = show.element("span", row.text, kind="time")
    note = show.element("small", row.note)
    return show.element("div", show.element("b", row.label), " ", note, " ", time, kind="words")


def _row(row: Row, most: float) -> Markup:
    """The bar of a switch."""
    parts = [svg.rect(0, 0, WIDE, HIGH, "field")]
    if not most or not math.isfinite(row.before + row.after):
        return _bar(parts)
    low, high = sorted((WIDE * row.before / most, WIDE * min(row.after, most) / most))
    longer = row.after > row.before
    tone = "candidate" if longer and row.tone == "slower" else row.tone
    parts.append(svg.rect(0, 0, low, HIGH, f"fill {tone}"))
    if row.hatched:
        parts += _hatching(low, high, "slower" if longer else "unclear")
    elif high > low:
        kind = "fill slower" if longer else "floor"
        parts.append(svg.rect(low, 0, high - low, HIGH, kind))
    return _bar(parts)


def _thin(row: Row, most: float) -> Markup:
    """A second bar, with its words behind it."""
    parts = [svg.rect(0, 0, WIDE, LOW, "field")]
    if most:
        was = row.thin_was if math.isfinite(row.thin_was) else row.thin
        low, high = sorted((WIDE * was / most, WIDE * row.thin / most))
        parts.append(svg.rect(0, 0, low, LOW, f"fill {row.thin_tone}"))
        kind = "fill slower" if row.thin > was else "floor"
        parts.append(svg.rect(low, 0, high - low, LOW, kind))
    words = show.element("small", row.thin_text)
    return show.element("div", _bar(parts, LOW), words, kind="thin")


def _hatching(left: float, right: float, tone: str) -> list[Markup]:
    """Slanted lines within a frame."""
    frame = [(left, 0.0), (right, 0.0), (right, HIGH), (left, HIGH), (left, 0.0)]
    parts = [svg.path(frame, f"line thin {tone}")]
    begin, strokes = left - HIGH, []
    while begin < right:
        first, last = max(begin, left), min(begin + HIGH, right)
        if first < last:
            ends = [(x, HIGH - (x - begin)) for x in (first, last)]
            strokes.append("L".join(f"{svg.number(x)} {svg.number(y)}" for x, y in ends))
        begin += APART
    if strokes:
        lines = "".join(f"M{stroke}" for stroke in strokes)
        parts.append(svg.element("path", d=lines, kind=f"line thin {tone} hatched"))
    return parts
