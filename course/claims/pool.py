"""Repeats of the very same comparison or race become one: their raw times together.

Of two runs with the same settings the last one won for a while, in silence; four pairs of them
had intervals that did not overlap. What differs between them is part of the noise: each repeat
counts as a build of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from labkit.racing import RaceResult
from labkit.results import Comparison, Measurement


def pool_comparisons(repeats: Sequence[Comparison]) -> Comparison:
    """One comparison with the times of all; those that failed are left out where another did not.

    Each repeat gives an even number of pairs, so that the order A B B A goes on from one to the
    next.
    """
    timed = [each for each in repeats if each.ratios and not _failed(each)]
    if len(timed) < 2:
        return [*timed, *repeats][0]
    pairs = [len(each.ratios) // 2 * 2 for each in timed]
    baseline = _join([each.baseline for each in timed], pairs)
    candidate = _join([each.candidate for each in timed], pairs)
    return replace(timed[0], baseline=baseline, candidate=candidate)


def _failed(comparison: Comparison) -> bool:
    return bool(comparison.baseline.error or comparison.candidate.error)


def _join(sides: Sequence[Measurement], pairs: Sequence[int]) -> Measurement:
    times: list[float] = []
    builds: list[int] = []
    for side, count in zip(sides, pairs, strict=True):
        first = max(builds, default=-1) + 1
        own = side.builds or (0,) * len(side.times)
        times += side.times[:count]
        builds += [first + build for build in own[:count]]
    peaks = [side.peak_bytes for side in sides if side.peak_bytes is not None]
    return replace(
        sides[0], times=tuple(times), builds=tuple(builds), peak_bytes=max(peaks, default=None)
    )


def pool_races(repeats: Sequence[RaceResult]) -> RaceResult:
    """One race with the runs of all."""
    runs = [run for race in repeats for run in race.runs]
    return replace(repeats[0], runs=tuple(runs))
