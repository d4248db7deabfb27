"""The board's one picture: the goal, then what each switch did, on one scale from 0 on.

What is clear is solid, what was taken away is grey, what is unclear is hatched, and a loss makes
its bar longer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from labkit.charts import svg
from labkit.charts.plot import most_of
from labkit.charts.svg import EDGE, WIDTH
from labkit.show import Markup

# Room for the name of a goal, and for its time.
NAME, TIME = 168.0, 110.0
GOAL, NOTE, ROW, THIN = 30.0, 24.0, 46.0, 18.0
HIGH = 14.0
# Between two lines of a hatching.
APART = 7.0
WIDE = WIDTH - 2 * EDGE
# Of the width; behind it stand the words of a thin bar.
THIN_WIDE = WIDE - TIME


@dataclass(frozen=True)
class Goal:
    """A ghost bar: how long something takes as a whole; ``note`` stands in a line below."""

    label: str
    value: float
    text: str
    tone: str
    note: str = ""


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
    thin_tone: str = "arm3"


def picture(words: str, goals: Sequence[Goal], rows: Sequence[Row]) -> Markup:
    """``words`` say what it shows, for who does not see it."""
    most = most_of(end for row in rows for end in (row.before, row.after))
    ghosts = most_of(goal.value for goal in goals)
    parts, y = [], 0.0
    for goal in goals:
        parts += _goal(goal, ghosts, y)
        y += GOAL + (NOTE if goal.note else 0)
    y += 10 if rows else 0
    widest = most_of(end for row in rows for end in (row.thin, row.thin_was))
    for row in rows:
        parts += _row(row, most, y)
        y += ROW
        if math.isfinite(row.thin):
            parts += _thin(row, widest, y)
            y += THIN + 6
    return svg.picture(y, words, parts)


def _goal(goal: Goal, most: float, y: float) -> list[Markup]:
    """Name, bar and time in one line."""
    wide = WIDE - NAME - TIME
    parts = [
        svg.text(EDGE, y + 19, goal.label, "bold"),
        svg.rect(EDGE + NAME, y + 7, wide, HIGH, "field"),
        svg.text(WIDTH - EDGE, y + 19, goal.text, "", "end"),
    ]
    if most and math.isfinite(goal.value):
        length = wide * goal.value / most
        parts.append(svg.rect(EDGE + NAME, y + 7, length, HIGH, f"band {goal.tone}"))
    if goal.note:
        parts.append(svg.text(WIDTH - EDGE, y + GOAL + 14, goal.note, "small", "end"))
    return parts


def _row(row: Row, most: float, y: float) -> list[Markup]:
    """A line of words, and the bar below it."""
    parts = [*svg.named(y + 18, row.label, row.text, row.note)]
    top = y + 25
    parts.append(svg.rect(EDGE, top, WIDE, HIGH, "field"))
    if not most or math.isnan(row.before + row.after):
        return parts
    low, high = sorted((WIDE * row.before / most, WIDE * min(row.after, most) / most))
    longer = row.after > row.before
    tone = "candidate" if longer and row.tone == "slower" else row.tone
    parts.append(svg.rect(EDGE, top, low, HIGH, f"fill {tone}"))
    if row.hatched:
        parts += _hatching(EDGE + low, EDGE + high, top, "slower" if longer else "unclear")
    elif high > low:
        kind = "fill slower" if longer else "floor"
        parts.append(svg.rect(EDGE + low, top, high - low, HIGH, kind))
    return parts


def _thin(row: Row, most: float, y: float) -> list[Markup]:
    """A second bar, with its words behind it."""
    parts = [
        svg.rect(EDGE, y + 2, THIN_WIDE, 6, "field"),
        svg.text(WIDTH - EDGE, y + 11, row.thin_text, "small", "end"),
    ]
    if most and math.isfinite(row.thin_was):
        parts.append(svg.rect(EDGE, y + 2, THIN_WIDE * row.thin_was / most, 6, "floor"))
    if most:
        parts.append(svg.rect(EDGE, y + 2, THIN_WIDE * row.thin / most, 6, f"fill {row.thin_tone}"))
    return parts


def _hatching(left: float, right: float, top: float, tone: str) -> list[Markup]:
    """Slanted lines within a frame."""
    frame = [(left, top), (right, top), (right, top + HIGH), (left, top + HIGH), (left, top)]
    parts = [svg.path(frame, f"line thin {tone}")]
    begin, strokes = left - HIGH, []
    while begin < right:
        first, last = max(begin, left), min(begin + HIGH, right)
        if first < last:
            ends = [(x, top + HIGH - (x - begin)) for x in (first, last)]
            strokes.append("L".join(f"{svg.number(x)} {svg.number(y)}" for x, y in ends))
        begin += APART
    if strokes:
        lines = "".join(f"M{stroke}" for stroke in strokes)
        parts.append(svg.element("path", d=lines, kind=f"line thin {tone} hatched"))
    return parts
