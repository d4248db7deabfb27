"""Shares that were taken by the clock: one value a step, and what can be said of their mean."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from labkit.results import estimate, runs_of
from labkit.results.statistics import student_t
from whyslow.findings import Interval

# With fewer values each counts for itself: runs of neighbours would be too few.
MANY = 20


def share_of(parts: Sequence[float], wholes: Sequence[float]) -> tuple[float, Interval]:
    """The sum of ``parts`` over that of ``wholes``, at most 1, with its 95 % interval.

    Neighbouring steps are not independent: with many of them, the interval is that of runs.
    """
    pairs = list(zip(parts, wholes, strict=True))
    whole = sum(wholes)
    if not pairs or whole <= 0:
        return 0.0, (0.0, 0.0)
    share = min(1.0, sum(parts) / whole)
    runs = []
    groups = [[pair] for pair in pairs]
    if len(pairs) >= MANY:
        groups = [
            [pairs[int(number)] for number in numbers] for numbers in runs_of(range(len(pairs)))
        ]
    for run in groups:
        part = sum(part for part, _ in run)
        runs.append(min(1.0, part / max(sum(each for _, each in run), 1e-12)))
    if len(runs) < 2:
        return share, (0.0, 1.0)
    half = student_t(len(runs) - 1) * float(np.std(runs, ddof=1)) / math.sqrt(len(runs))
    return share, (max(0.0, share - half), min(1.0, share + half))


def interval_of(ratios: Sequence[float], allowance: float) -> Interval:
    """The 95 % interval of a ratio, of pairs of neighbouring blocks; from few pairs, too.

    ``allowance`` is the standard deviation of what one build of the program leaves open.
    """
    logs = [math.log(ratio) for ratio in ratios]
    if len(logs) >= MANY:
        logs = [float(np.median(run)) for run in runs_of(logs)]
    return estimate(logs, allowance).interval


def saving_of(before: Sequence[float], after: Sequence[float]) -> tuple[float, Interval]:
    """The share by which the mean of ``after`` is below that of ``before``, both in seconds a step,
    with its 95 % interval.
    """
    (old, old_error), (new, new_error) = _mean_of(before), _mean_of(after)
    if not old > 0:
        return 0.0, (0.0, 0.0)
    ratio = new / old
    half = ratio * math.hypot(old_error / old, new_error / max(new, 1e-12))
    return 1 - ratio, (1 - ratio - half, 1 - ratio + half)


def _mean_of(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and half of its 95 % interval; neighbours are not independent, as above."""
    runs = [float(each) for each in values]
    if len(runs) >= MANY:
        runs = [float(np.mean(run)) for run in runs_of(runs)]
    if len(runs) < 2:
        return math.nan if not runs else runs[0], math.inf
    error = float(np.std(runs, ddof=1)) / math.sqrt(len(runs))
    return float(np.mean(runs)), student_t(len(runs) - 1) * error
