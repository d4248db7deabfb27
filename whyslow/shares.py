"""Seconds by stack, and shares of time with their intervals."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from statistics import fmean
from typing import TypeVar

from labkit.results.statistics import estimate, runs_of
from whyslow.stacks import Stack

# Seconds of a block, and the most blocks: then two of them become one.
BLOCK, BLOCKS = 0.025, 200
# Of shares: with fewer values each counts for itself, runs of neighbours would be too few.
MANY = 20

Interval = tuple[float, float]
# With its 95 % interval.
Share = tuple[float, Interval]
NONE: Share = 0.0, (0.0, 0.0)
Kind = TypeVar("Kind", bound=Hashable)


class Tally:
    """Seconds by stack, in blocks of time, so that an interval can be given; ``looks`` taken, and
    the ``total`` of their seconds.

    Time in which no line of the reader's ran, as between two cells, is in no block.
    """

    def __init__(self) -> None:
        self.looks, self.total, self._width = 0, 0.0, BLOCK
        self._seconds: dict[tuple[int, Stack], float] = defaultdict(float)

    def add(self, stack: Stack, now: float, seconds: float) -> None:
        """One look: ``now`` counts from the begin."""
        self.looks += 1
        self.total += seconds
        while now >= BLOCKS * self._width:
            self._width *= 2
            wider: dict[tuple[int, Stack], float] = defaultdict(float)
            for block, each, its in self.items():
                wider[block // 2, each] += its
            self._seconds = wider
        self._seconds[int(now / self._width), stack] += seconds

    def copy(self) -> Tally:
        """As it is now: a sampler may add to this one meanwhile."""
        other = Tally()
        other._seconds.update(self._seconds)
        other.looks, other.total, other._width = self.looks, self.total, self._width
        return other

    def items(self) -> list[tuple[int, Stack, float]]:
        """Block, stack and seconds."""
        return [(*key, seconds) for key, seconds in self._seconds.items()]

    def shares(self, kind_of: Callable[[Stack], Kind | None]) -> dict[Kind, Share]:
        """The share of each kind of stacks, the largest first; without those of no kind."""
        wholes: dict[int, float] = defaultdict(float)
        kinds: dict[Kind, dict[int, float]] = defaultdict(lambda: defaultdict(float))
        for block, stack, seconds in self.items():
            kind = kind_of(stack)
            if kind is not None:
                wholes[block] += seconds
                kinds[kind][block] += seconds
        found = {}
        for kind, its in kinds.items():
            found[kind] = share_of([its[each] for each in wholes], list(wholes.values()))
        return dict(sorted(found.items(), key=lambda item: -item[1][0]))


def in_words(share: Share) -> tuple[str, str]:
    """``(0.5, (0.4, 0.6))`` -> ``('50%', '[40%, 60%]')``."""
    value, (low, high) = share
    return f"{value:.0%}", f"[{low:.0%}, {high:.0%}]"


def listed(shares: Mapping[str, float]) -> str:
    """``loading 70%, forward 30%``; nothing of what is next to nothing."""
    return ", ".join(f"{name} {share:.0%}" for name, share in shares.items() if share >= 0.005)


def share_of(parts: Sequence[float], wholes: Sequence[float]) -> Share:
    """The sum of ``parts`` over that of ``wholes``, at most 1, with its 95 % interval."""
    whole = sum(wholes)
    if whole <= 0:
        return NONE
    share = min(1.0, sum(parts) / whole)
    runs = zip(means_of(parts), means_of(wholes), strict=True)
    half = _margin([min(1.0, part / max(each, 1e-12)) for part, each in runs])
    return share, (max(0.0, share - half), min(1.0, share + half))


def saving_of(before: Sequence[float], after: Sequence[float]) -> Share:
    """The share by which the mean of ``after`` is below that of ``before``, with its interval."""
    if not sum(before) > 0 or not after:
        return NONE
    old, new = means_of(before), means_of(after)
    first, second = fmean(old), fmean(new)
    ratio = second / first
    half = math.hypot(ratio * _margin(old) / first, _margin(new) / first)
    return 1 - ratio, (1 - ratio - half, 1 - ratio + half)


def means_of(values: Sequence[float], mean: Callable[..., float] = fmean) -> list[float]:
    """Nearly independent values: neighbouring ones are not, so of many the means of runs."""
    return list(values) if len(values) < MANY else [mean(run) for run in runs_of(values)]


def _margin(values: Sequence[float]) -> float:
    """Half of the 95 % interval of their mean; infinite for fewer than two."""
    return estimate(values).margin if len(values) > 1 else math.inf
