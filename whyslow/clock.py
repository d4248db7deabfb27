"""Shares that were taken by the clock: one value a step, and what can be said of their mean."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from labkit.results import runs_of
from labkit.results.statistics import student_t
from whyslow.findings import Interval

# With fewer values each counts for itself: runs of neighbours would be too few.
MANY = 20


def share_of(parts: Sequence[float], wholes: Sequence[float]) -> tuple[float, Interval]:
    """The sum of ``parts`` over that of ``wholes``, at most 1, with its 95 % interval."""
    whole = sum(wholes)
    if whole <= 0:
        return 0.0, (0.0, 0.0)
    share = min(1.0, sum(parts) / whole)
    runs = zip(_means(parts), _means(wholes), strict=True)
    half = _half_width([min(1.0, part / max(each, 1e-12)) for part, each in runs])
    return share, (max(0.0, share - half), min(1.0, share + half))


def saving_of(before: Sequence[float], after: Sequence[float]) -> tuple[float, Interval]:
    """The share by which the mean of ``after`` is below that of ``before``, both in seconds a step,
    with its 95 % interval.
    """
    if not sum(before) > 0:
        return 0.0, (0.0, 0.0)
    old, new = _means(before), _means(after)
    first, second = statistics.fmean(old), statistics.fmean(new)
    ratio = second / first
    half = math.hypot(ratio * _half_width(old) / first, _half_width(new) / first)
    return 1 - ratio, (1 - ratio - half, 1 - ratio + half)


def _means(values: Sequence[float]) -> list[float]:
    """Nearly independent values: neighbouring steps are not, so of many the means of runs."""
    if len(values) < MANY:
        return list(values)
    return [statistics.fmean(run) for run in runs_of(values)]


def _half_width(values: Sequence[float]) -> float:
    """Half of the 95 % interval of their mean; infinite for fewer than two."""
    if len(values) < 2:
        return math.inf
    return student_t(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
