"""Both sides of a comparison as bars, with their names and figures."""

from __future__ import annotations

import math
from collections.abc import Sequence

from labkit.charts import svg
from labkit.charts.plot import most_of
from labkit.charts.svg import EDGE, LETTERS, WIDTH
from labkit.show import Bar, Markup

# The height of both sides' bars.
SIDES = 140.0


def both_sides(speeds: Sequence[Bar], peaks: Sequence[Bar]) -> list[Markup]:
    """Each side: its name and figures, its bar, and below a thin one for its memory."""
    most = most_of(end for bar in speeds for end in (bar.value, *(bar.interval or ())))
    most_memory = most_of(bar.value for bar in peaks)
    parts = []
    for number, bar in enumerate(speeds):
        y = 20 + 64.0 * number
        words = bar.text
        if peaks and peaks[number].text != "-":
            words += f" · {peaks[number].text}"
        parts += _named(bar, words, y)
        parts += _bar(bar, most, y + 8, 18)
        if peaks:
            parts += _bar(peaks[number], most_memory, y + 28, 5)
    return parts


def _named(bar: Bar, words: str, y: float) -> list[Markup]:
    """The label of a side with its note, and the words of its bar at the right."""
    name = svg.element("tspan", bar.label, kind="bold")
    note = svg.cut(bar.note, LETTERS - len(bar.label) - len(words) - 3)
    rest = svg.element("tspan", f" {note}" if note else "", kind="small")
    full = svg.element("title", f"{bar.label} {bar.note}")
    place = {"x": svg.number(EDGE), "y": svg.number(y)}
    parts = [svg.element("text", name, rest, full, **place)]
    parts.append(svg.text(WIDTH - EDGE, y, words, "", "end"))
    return parts


def _bar(bar: Bar, most: float, y: float, height: float) -> list[Markup]:
    """A bar from the left edge on, and its interval over its end."""
    wide = WIDTH - 2 * EDGE
    parts = [svg.rect(EDGE, y, wide, height, "field")]
    if not most:
        return parts
    if math.isfinite(bar.value):
        parts.append(svg.rect(EDGE, y, wide * bar.value / most, height, f"fill {bar.tone}"))
    low, high = bar.interval or (math.nan, math.nan)
    if math.isfinite(low + high):
        ends, middle = [EDGE + wide * end / most for end in (low, high)], y + height / 2
        for end in ends:
            parts.append(svg.path([(end, y + 4), (end, y + height - 4)], "whisker"))
        parts.append(svg.path([(end, middle) for end in ends], "whisker"))
    return parts
