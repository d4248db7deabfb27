"""How far a ratio can be trusted that was taken of several builds.

Two levels of noise are in a comparison. *Between builds*: each build of a side gets other
addresses, and with them other conflicts in caches and pages; on one machine that moved the time of
a step by several per cent (Curtsinger and Berger, "Stabilizer", 2013). *Within a build*: states of
the machine (clocks, other programs) that last for many pairs of blocks, so that neighbouring pairs
are not independent.

Kalibera and Jones ("Rigorous benchmarking in reasonable time", 2013) repeat at the highest level
at which there is noise, and take the interval over that level's means by Student's t: the scatter
between builds holds all that happens within them. So it is done here, on logarithms of ratios,
with the median of each build's pairs. A percentile bootstrap over three to ten builds is far too
narrow: of 2,000 simulated runs of three builds it covered 75 %, Student's t 95 %.

With fewer than `FEW_BUILDS` the same is done over runs of neighbouring pairs, which are long enough
to be nearly independent (the method of batch means). What builds would differ by is then unknown:
`BUILD_SPREAD` is allowed for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# Fewer builds say nothing of how builds differ.
FEW_BUILDS = 3
# More runs of neighbouring pairs would be too short to be independent.
MOST_RUNS = 10
# Standard deviation of the logarithm of a ratio from one pair of builds to the next, where it was
# not measured. A CPU's; on an H200 builds differed by more than the scatter within them in less
# than half of 35 comparisons, and by 0.02 or more in a quarter, where the host was the slower one.
BUILD_SPREAD = 0.005
# Student's t for 95 %, two-sided, by degrees of freedom from 1.
_T95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
)


@dataclass(frozen=True)
class Estimate:
    """The mean of logarithms, its standard errors, and what an unmeasured level may add.

    ``error`` is from the scatter of all values, ``floor`` from neighbouring ones alone, so that a
    drift through the run does not count: what is left where there is nothing to be seen.
    """

    mean: float
    error: float
    floor: float
    count: int
    allowance: float = 0.0

    @property
    def margin(self) -> float:
        """Half the width of the 95 % interval without the allowance; nan for one value."""
        if self.count < 2:
            return math.nan
        return student_t(self.count - 1) * self.error

    @property
    def half_width(self) -> float:
        """Half the width of the 95 % interval, as a logarithm; nan for one value."""
        return math.hypot(self.margin, 2 * self.allowance)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval as ratios; nan where fewer than two values say nothing."""
        return math.exp(self.mean - self.half_width), math.exp(self.mean + self.half_width)

    @property
    def noise_floor(self) -> float:
        """As a logarithm: how far from 1 the ratio of equal sides is found, as a standard error."""
        if self.count < 2:
            return math.inf
        return math.hypot(self.floor, self.allowance)

    def verdict(self, same: float) -> str:
        """``faster``, ``slower``, ``same`` or ``unclear``.

        ``same`` when the whole interval lies within ``same`` of 1: so small a difference may be the
        run's, since what all builds of one process share is not rolled anew. Else a difference is
        told when the whole interval lies beyond the noise floor. Both are logarithms.
        """
        low, high = (math.log(bound) for bound in self.interval)
        if -same <= low and high <= same:
            return "same"
        if low > self.noise_floor:
            return "faster"
        if high < -self.noise_floor:
            return "slower"
        return "unclear"


def estimate(logs: Sequence[float], allowance: float = 0.0) -> Estimate:
    """The estimate of independent values, in the order in which they were taken."""
    values = np.asarray(logs, dtype=float)
    count = len(values)
    if count < 2:
        mean = float(values.mean()) if count else math.nan
        return Estimate(mean, math.inf, math.inf, count, allowance)
    error = float(values.std(ddof=1)) / math.sqrt(count)
    # von Neumann's estimate of the variance, of the differences of neighbours.
    steps = np.diff(values)
    floor = math.sqrt(float(np.mean(steps**2)) / 2 / count)
    return Estimate(float(values.mean()), error, floor, count, allowance)


def runs_of(values: Sequence[float]) -> list[Sequence[float]]:
    """The values in up to `MOST_RUNS` runs of neighbours, of at least two each."""
    count = min(MOST_RUNS, len(values) // 2)
    runs = []
    begin = 0
    for number in range(1, count + 1):
        end = round(number * len(values) / count)
        runs.append(values[begin:end])
        begin = end
    return runs


def student_t(freedom: int) -> float:
    """Student's t for a two-sided 95 % interval; ValueError without a degree of freedom."""
    if freedom < 1:
        raise ValueError(f"freedom={freedom}: use at least one degree of freedom")
    if freedom <= len(_T95):
        return _T95[freedom - 1]
    return 1.96 + 2.5 / freedom


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % interval of the median of independent values, which may be infinite.

    Its ends are two of the values: as many lie below the one as above the other, and the median
    lies outside with a chance of 5 % at most, whatever the values' distribution (the sign test).
    (nan, nan) for fewer than six values: the range of five covers the median in 94 of 100 only.
    """
    ordered = sorted(values)
    left_out, chance = 0, 0.5 ** len(ordered)
    while chance <= 0.025 and left_out < len(ordered):
        left_out += 1
        chance += math.comb(len(ordered), left_out) / 2 ** len(ordered)
    if not left_out:
        return math.nan, math.nan
    return ordered[left_out - 1], ordered[-left_out]
