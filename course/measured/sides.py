"""What the pictures of both sides share: which sides are drawn, and what their colours mean."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from labkit.charts import svg
from labkit.charts.plot import Box
from labkit.charts.svg import LETTER
from labkit.results import Comparison
from labkit.show import Markup
from labkit.text import format_seconds

Noted = TypeVar("Noted")


def both(
    result: object, of: Callable[[Mapping[str, Any], float | None], Noted | None]
) -> list[tuple[str, Noted]]:
    """What each side of a Comparison is called, and what was noted of it; [] for other results.

    ``of(settings, seconds)``: what was noted under these settings and took most nearly
    ``seconds``, or None: then the side is left out.
    """
    if not isinstance(result, Comparison):
        return []
    sides = []
    for name, side, each in zip(result.roles, result.arms, result.step_times, strict=True):
        if found := of(side.settings, each if side.times else None):
            sides.append((name, found))
    return sides


def legend(entries: Iterable[tuple[str, str]], left: float, y: float) -> list[Markup]:
    """Boxes and strokes with their words: pairs of a kind and a word, in one line."""
    parts, x = [], left
    for kind, word in entries:
        if kind.startswith("line"):
            parts.append(svg.path([(x, y - 5), (x + 12, y - 5)], kind))
        else:
            parts.append(svg.rect(x, y - 11, 12, 12, kind))
        parts.append(svg.text(x + 18, y, word, "small"))
        x += 36 + LETTER * len(word)
    return parts


def times(box: Box, longest: float) -> list[Markup]:
    """Round times below a plot whose values across are seconds, up to the longest."""
    rough = longest / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * digit for digit in (1, 2, 5, 10) if power * digit >= rough)
    moments = [step * number for number in range(int(longest / step) + 1)]
    words = [format_seconds(at) if at else "0" for at in moments]
    marks = zip(moments, words, strict=True)
    return [svg.below(box.x(at), box.bottom + 16, word) for at, word in marks]
