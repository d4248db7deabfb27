"""What it costs to go on until a run is clear: coverage of its intervals, and false claims.

    python tests/benchmarks/bench_stopping.py [--runs 1000] [--patience 3]

The engine itself runs, on a clock that goes on only while a side works: builds of a side differ by
``between``, blocks by ``within``, both standard deviations of a logarithm. What counts is how often
the 95 % interval covers the planted ratio, and how often two equal sides are told to differ.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any
from unittest.mock import patch

from labkit import alternating
from labkit.builds import MOST_BUILDS
from labkit.results import Comparison
from labkit.stages import UNWATCHED, Stages

BUDGET = 3.0
# Steps of 20 ms: blocks of one step, 75 pairs a budget.
STEP = 0.02


@dataclass(frozen=True)
class Scatter:
    """How much builds and blocks differ, and what a build costs in seconds."""

    between: float
    within: float
    building: float = 0.0
    most_builds: int = MOST_BUILDS


# From a quiet machine to one that others use; costly builds; steps that cannot be built again.
SCATTERS = {
    "quiet": Scatter(0.002, 0.01),
    "builds differ": Scatter(0.012, 0.02),
    "builds differ much": Scatter(0.03, 0.03),
    "blocks differ": Scatter(0.005, 0.15),
    "three builds": Scatter(0.008, 0.05, building=0.1),
    "one build": Scatter(0.005, 0.08, most_builds=1),
}
RATIOS = (1.0, 1.01, 1.02, 1.03, 1.05, 1.2)


@dataclass
class Clock:
    """Seconds that the sides have worked."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class SimulatedArm:
    """An `Arm` whose times are drawn: of each build, and of each block."""

    label: str
    step: float
    scatter: Scatter
    clock: Clock
    random: Random
    settings: dict[str, Any] = field(default_factory=dict)
    samples: float = 1.0
    unit: str = "samples"
    device: str = "cpu"
    factor: float = 1.0

    def start(self, stages: Stages = UNWATCHED) -> float:
        """Another build, with a factor of its own."""
        self.factor = math.exp(self.random.gauss(0, self.scatter.between / math.sqrt(2)))
        self.clock.now += self.scatter.building / 2
        return self.block(1)

    def block(self, steps: int) -> float:
        """So many steps, with noise of this block."""
        noise = math.exp(self.random.gauss(0, self.scatter.within / math.sqrt(2)))
        seconds = steps * self.step * self.factor * noise
        self.clock.now += seconds
        return seconds

    def check(self) -> None:
        """Nothing breaks here."""

    def close(self) -> None:
        """Nothing is held."""


def run(ratio: float, scatter: Scatter, random: Random, patience: float) -> Comparison:
    """One run of the engine on two simulated sides."""
    clock = Clock()
    sides = []
    for label, step in (("a", STEP * math.sqrt(ratio)), ("b", STEP / math.sqrt(ratio))):
        sides.append(SimulatedArm(label, step, scatter, clock, random))
    with patch.object(alternating, "clock", clock):
        return alternating.alternate(
            *sides,  # type: ignore[arg-type]
            seconds=BUDGET,
            on_update=_silent,
            stop=None,
            most_builds=scatter.most_builds,
            patience=patience,
        )


def _silent(_: Comparison) -> None:
    pass


@dataclass
class Tally:
    """Counts of many runs."""

    runs: int = 0
    covered: int = 0
    prolonged: int = 0
    seconds: float = 0.0
    verdicts: Counter[str] = field(default_factory=Counter)

    def add(self, result: Comparison, ratio: float) -> None:
        """Count one more run, of sides whose true ratio is ``ratio``."""
        low, high = result.interval
        self.runs += 1
        self.covered += low <= ratio <= high
        self.prolonged += result.limit > BUDGET
        self.seconds += result.seconds
        self.verdicts[result.verdict] += 1

    @property
    def claims(self) -> int:
        """How many runs told a difference."""
        return self.verdicts["faster"] + self.verdicts["slower"]


def tally(ratio: float, scatter: Scatter, runs: int, patience: float = 3.0) -> Tally:
    """The counts of ``runs`` runs, the same each time."""
    random = Random(f"{ratio} {scatter}")
    found = Tally()
    for _ in range(runs):
        found.add(run(ratio, scatter, random, patience), ratio)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--patience", type=float, default=3.0)
    options = parser.parse_args()
    covered = count = equal = claims = 0
    print(f"{'':20} ratio  covered  prolonged  seconds  verdicts")
    for name, scatter in SCATTERS.items():
        for ratio in RATIOS:
            found = tally(ratio, scatter, options.runs, options.patience)
            covered += found.covered
            count += found.runs
            if ratio == 1.0:
                equal += found.runs
                claims += found.claims
            share = f"{found.covered / found.runs:7.1%}  {found.prolonged / found.runs:9.0%}"
            seconds = f"{found.seconds / found.runs:7.1f}"
            print(f"{name:20} {ratio:5.2f}  {share}  {seconds}  {dict(found.verdicts)}")
    print(f"the 95 % interval covers the ratio in {covered} of {count} runs")
    print(f"equal sides are told to differ in {claims} of {equal} runs")


if __name__ == "__main__":
    main()
