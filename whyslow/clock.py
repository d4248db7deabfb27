"""Shares that were taken by the clock: one value a step, and what can be said of their mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from labkit.results import runs_of
from labkit.results.statistics import student_t

Interval = tuple[float, float]
# With fewer values each counts for itself: runs of neighbours would be too few.
MANY = 20


def share_of(parts: Sequence[float], wholes: Sequence[float]) -> tuple[float, Interval]:
    """The sum of ``parts`` over that of ``wholes``, at most 1, with its 95 % interval.

    Neighbouring values are not independent: of many the means of runs are taken.
    """
    whole = sum(wholes)
    if whole <= 0:
        return 0.0, (0.0, 0.0)
    share = min(1.0, sum(parts) / whole)
    if len(wholes) >= MANY:
        parts, wholes = ([fmean(run) for run in runs_of(each)] for each in (parts, wholes))
    ratios = [min(1.0, part / max(each, 1e-12)) for part, each in zip(parts, wholes, strict=True)]
    if len(ratios) < 2:
        return share, (0.0, 1.0)
    half = student_t(len(ratios) - 1) * stdev(ratios) / math.sqrt(len(ratios))
    return share, (max(0.0, share - half), min(1.0, share + half))
