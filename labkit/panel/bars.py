"""Bars of a panel: what each side took, as parts of the longest one, for the page to draw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from labkit.results import ROLES as SIDES
from labkit.results import Comparison
from labkit.text import with_article

ROLES = tuple(role.capitalize() for role in SIDES)
NOTHING = (math.nan, math.nan)

# A title, and for each side: its name, the length and the ends of its interval as parts of the
# longest, and a text.
Group = list[Any]


def group(
    title: str,
    values: Sequence[float],
    texts: Sequence[str],
    intervals: Sequence[tuple[float, float]] = (NOTHING, NOTHING),
) -> Group:
    """Bars on one scale from 0; none for a value that is unknown or infinite."""
    known = [0.0]
    for value, interval in zip(values, intervals, strict=True):
        known += [each for each in (value, *interval) if math.isfinite(each)]
    most = max(known)
    rows = []
    for role, value, interval, text in zip(ROLES, values, intervals, texts, strict=True):
        parts = [_part(each, most) for each in (value, *interval)]
        rows.append([role, *parts, text])
    return [title, rows]


def of_times(run: Comparison, step: str = "step") -> list[Group]:
    """The time of a step, or throughput where sides process different amounts, and the memory.

    ``step`` is what the lab calls one.
    """
    title = f"Time of {with_article(step)}"
    if run.by_throughput:
        title = "Throughput (longer is better)"
    both = run.speed_bars
    spread = [bar.interval or NOTHING for bar in both]
    groups = [group(title, [bar.value for bar in both], [bar.text for bar in both], spread)]
    if any(side.peak_text != "-" for side in run.arms):
        peaks = [math.nan if side.peak_bytes is None else side.peak_bytes for side in run.arms]
        groups.append(group("Peak memory", peaks, [side.peak_text for side in run.arms]))
    return groups


def _part(value: float, most: float) -> float | None:
    """JSON has no nan."""
    if not most or not math.isfinite(value):
        return None
    return round(value / most, 3)
