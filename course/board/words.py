"""What a switch brought, in words and in JSON: the same on the board and in the records."""

from __future__ import annotations

import math
from typing import Any

from labkit.text import format_factor


def factor_in_words(factor: float) -> str:
    """``1.50x``; where one side did not arrive, which; nan -> ``no factor``."""
    if math.isnan(factor):
        return "no factor"
    if math.isinf(factor):
        return "only with it"
    if factor <= 0:
        return "only without it"
    return f"{format_factor(factor)}x"


def told(factor: float, interval: tuple[float, float], verdict: str) -> str:
    """``1.50x [1.40, 1.60] faster``, or that the target was reached on one side only."""
    words = factor_in_words(factor)
    if math.isnan(factor):
        return f"{words}, {verdict}"
    if math.isinf(factor) or factor <= 0:
        return f"target reached {words}"
    low, high = interval
    between = "[too few for an interval]"
    if math.isfinite(low + high):
        between = f"[{format_factor(low)}, {format_factor(high)}]"
    return f"{words} {between} {verdict}"


def as_json(value: float) -> float | str | None:
    """A number as plain JSON: null stands for nan, and texts for the infinities."""
    if math.isnan(value):
        return None
    if math.isinf(value):
        return str(value)
    return value


def from_json(value: Any) -> float:
    """The number of `as_json`; ValueError or TypeError for anything else."""
    if value is None:
        return math.nan
    return float(value)
