"""Bars with their names and figures, on one scale that begins at 0."""

from __future__ import annotations

import math
from collections.abc import Sequence

from labkit.charts import svg
from labkit.charts.plot import most_of
from labkit.charts.svg import EDGE, WIDTH
from labkit.show import Bar, Markup

# The height of a bar with its line of words.
ROW = 64.0


def bars(words: str, rows: Sequence[Bar]) -> Markup:
    """A bar for each row; infinite and unknown values have none."""
    return svg.picture(ROW * len(rows), words, bar_rows(rows))


def bar_rows(rows: Sequence[Bar], thin: Sequence[Bar] = ()) -> list[Markup]:
    """Each row: its name and figures, its bar, and below it the one of ``thin``, if any.

    ``thin`` has a scale of its own.
    """
    most = most_of(end for bar in rows for end in (bar.value, bar.was, *(bar.interval or ())))
    most_thin = most_of(bar.value for bar in thin)
    parts = []
    for number, bar in enumerate(rows):
        y, words = 20 + ROW * number, bar.text
        if thin and thin[number].text != "-":
            words += f" · {thin[number].text}"
        parts += svg.named(y, bar.label, words, bar.note)
        parts += _bar(bar, most, y + 8, 18)
        if thin:
            parts += _bar(thin[number], most_thin, y + 28, 5)
    return parts


def _bar(bar: Bar, most: float, y: float, height: float) -> list[Markup]:
    """A bar from the left edge on, what it was before, and its interval over its end."""
    wide = WIDTH - 2 * EDGE
    parts = [svg.rect(EDGE, y, wide, height, "field")]
    if not most:
        return parts
    if math.isfinite(bar.was):
        parts.append(svg.rect(EDGE, y, wide * bar.was / most, height, "floor"))
    if math.isfinite(bar.value):
        parts.append(svg.rect(EDGE, y, wide * bar.value / most, height, f"fill {bar.tone}"))
    low, high = bar.interval or (math.nan, math.nan)
    if math.isfinite(low + high):
        ends, middle = [EDGE + wide * end / most for end in (low, high)], y + height / 2
        for end in ends:
            parts.append(svg.path([(end, y + 4), (end, y + height - 4)], "whisker"))
        parts.append(svg.path([(end, middle) for end in ends], "whisker"))
    return parts
