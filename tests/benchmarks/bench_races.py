"""How often the intervals of races cover the truth, with counts.

    python tests/benchmarks/bench_races.py [--races 1000]

Times to the target are log-normal: a seed makes both sides slow or quick alike, and each run
scatters besides. The planted factor is what the candidate's times are divided by. ``every`` is the
distance of two looks at the metric, of which a time is a whole multiple.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from statistics import NormalDist

from labkit.racing import RaceResult, RaceRun

SEEDS = (1, 2, 3, 5, 6, 9)
FACTORS = (1.0, 1.05, 1.3, 3.0)
# Median of the candidate's times, in seconds, of those that arrive.
MEDIAN = 1.0


@dataclass(frozen=True)
class Scatter:
    """Standard deviations of the logarithm of a time: of a seed, and of a run beside it."""

    seed: float = 0.3
    run: float = 0.15
    every: float = 0.0
    lost: float = 0.0

    @property
    def median(self) -> float:
        """True median of the candidate's times; infinite for those that never arrive."""
        share = 0.5 / (1 - self.lost)
        if share >= 1:
            return math.inf
        return MEDIAN * math.exp(math.hypot(self.seed, self.run) * NormalDist().inv_cdf(share))


SCATTERS = {
    "paired by seed": Scatter(),
    "not paired": Scatter(seed=0.0),
    "few looks": Scatter(every=0.125),
    "a third never arrives": Scatter(lost=1 / 3),
}


def simulated(factor: float, seeds: int, scatter: Scatter, random: Random) -> RaceResult:
    """A race of "before" against "after", which is ``factor`` times as fast."""
    runs = []
    for seed in range(seeds):
        shared = random.gauss(0, scatter.seed)
        for side, median in (("before", MEDIAN * factor), ("after", MEDIAN)):
            taken = median * math.exp(shared + random.gauss(0, scatter.run))
            if scatter.every:
                taken = scatter.every * math.ceil(taken / scatter.every)
            reached = random.random() >= scatter.lost
            runs.append(RaceRun(side, seed, ((1, taken, 0.0),), reached))
    return RaceResult(tuple(runs), 0.0, "metric", higher_is_better=False)


@dataclass
class Tally:
    """Counts of many races: how many had an interval, and in how many of them it was right."""

    races: int = 0
    factors: int = 0
    covered: int = 0
    medians: int = 0
    medians_covered: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)

    def add(self, result: RaceResult, factor: float, median: float) -> None:
        """Count one more race."""
        self.races += 1
        _, low, high = result.speedup("after")
        if not math.isnan(low):
            self.factors += 1
            self.covered += low <= factor <= high
        low, high = result.interval("after")
        if not math.isnan(low):
            self.medians += 1
            self.medians_covered += low <= median <= high
        self.verdicts[result.verdict("after")] += 1


def tally(factor: float, seeds: int, scatter: Scatter, races: int) -> Tally:
    """The counts of ``races`` races, the same each time."""
    random = Random(f"{factor} {seeds} {scatter}")
    found = Tally()
    for _ in range(races):
        found.add(simulated(factor, seeds, scatter, random), factor, scatter.median)
    return found


def lines(races: int) -> Iterator[str]:
    """A line for each experiment."""
    yield f"{'':22} seeds factor   factor covered   median covered   verdicts"
    for name, scatter in SCATTERS.items():
        for seeds in SEEDS:
            for factor in FACTORS:
                found = tally(factor, seeds, scatter, races)
                ratio = _share(found.covered, found.factors)
                median = "rounded up"
                if not scatter.every:
                    median = _share(found.medians_covered, found.medians)
                head = f"{name:22} {seeds:5} {factor:6.2f}"
                yield f"{head}   {ratio:>14}   {median:>14}   {dict(found.verdicts)}"


def _share(covered: int, of: int) -> str:
    if not of:
        return "no interval"
    return f"{covered} of {of}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--races", type=int, default=1000)
    for line in lines(parser.parse_args().races):
        print(line)


if __name__ == "__main__":
    main()
