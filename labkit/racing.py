"""Race to a target: for techniques that change what is learned, where time per step says nothing.

Every side trains from the same seeds until its metric reaches a target that was fixed beforehand.
Evaluation is not timed. Sides are held against each other seed by seed, with the statistics of
builds: a seed is to a race what a build is to a comparison.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from labkit import report
from labkit.arm import LocalArm
from labkit.comparing import measuring
from labkit.device import pick, survive
from labkit.progress import progress
from labkit.results import Workload, estimate, median_interval
from labkit.results.comparison import SAME
from labkit.text import format_factor, format_seconds, format_steps

# Fewer seeds give a factor no interval: a metric that is taken every so many steps makes two ratios
# equal often enough that their interval has no width.
FEW_SEEDS = 3


@dataclass(frozen=True)
class RaceRun:
    """One training: ``curve`` holds (steps, training seconds, metric) at each evaluation.

    ``error`` says that memory ran out.
    """

    arm: str
    seed: int
    curve: tuple[tuple[int, float, float], ...]
    reached: bool
    error: str | None = None

    @property
    def seconds(self) -> float:
        """Training seconds to the target; infinity when it was never reached."""
        if not self.reached:
            return math.inf
        return self.curve[-1][1]

    @property
    def steps(self) -> float:
        """Steps to the target; infinity when it was never reached."""
        if not self.reached:
            return math.inf
        return self.curve[-1][0]


@dataclass(frozen=True)
class RaceResult:
    """All runs of a race. The first arm is the baseline; ``lab`` names the lab's function."""

    runs: tuple[RaceRun, ...]
    target: float
    metric: str
    higher_is_better: bool
    stopped: bool = False
    lab: str = ""

    @cached_property
    def arms(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(run.arm for run in self.runs))

    def of(self, arm: str) -> tuple[RaceRun, ...]:
        """The runs of one arm, in the order of their seeds. Raises KeyError for an unknown arm."""
        if arm not in self.arms:
            raise KeyError(f"no side {arm!r} in this race; there are {', '.join(self.arms)}")
        return tuple(run for run in self.runs if run.arm == arm)

    def arrived(self, arm: str) -> int:
        """How many runs of one arm reached the target."""
        return sum(run.reached for run in self.of(arm))

    def tally(self, arm: str) -> str:
        """``3 of 5``: the seeds of one arm that reached the target."""
        return f"{self.arrived(arm)} of {len(self.of(arm))}"

    def counts(self, arm: str, baseline: str) -> str:
        """``in 3 of 5 seeds, plain in 5 of 5``: who arrived, with a name for the baseline."""
        return f"in {self.tally(arm)} seeds, {baseline} in {self.tally(self.arms[0])}"

    def told_by(self, arm: str, against: str | None = None) -> str:
        """What tells ``arm`` from ``against`` (the baseline): "times", "counts" or "nothing".

        Times, as a factor, where every run of both sides arrived. Else counts, of the seeds of
        each side that did; nothing, where none did.
        """
        sides = arm, against or self.arms[0]
        if not any(map(self.arrived, sides)):
            return "nothing"
        runs = [run for side in sides for run in self.of(side)]
        if self.ratios(arm, against=against) and all(run.reached for run in runs):
            return "times"
        return "counts"

    def median(self, arm: str, by: str = "seconds") -> float:
        """Median ``seconds`` or ``steps`` to the target over the seeds.

        Infinity when fewer than half reached it.
        """
        return _median(self._values(arm, by))

    def interval(self, arm: str, by: str = "seconds") -> tuple[float, float]:
        """95 % interval of that median, from six seeds on; (nan, nan) with fewer.

        It may be infinite.
        """
        return median_interval(self._values(arm, by))

    def spread(self, arm: str, by: str = "seconds") -> tuple[float, float]:
        """What a bar shows over its end: `interval`, or with fewer seeds the range of all runs.

        `spread_name` says which.
        """
        if self._has_intervals:
            return self.interval(arm, by)
        values = self._values(arm, by)
        return min(values), max(values)

    @property
    def spread_name(self) -> str:
        """``95 % interval``, or ``range`` where one of the sides has too few seeds for it."""
        return "95 % interval" if self._has_intervals else "range"

    @property
    def _has_intervals(self) -> bool:
        return not any(math.isnan(self.interval(arm)[0]) for arm in self.arms)

    def _values(self, arm: str, by: str) -> tuple[float, ...]:
        return tuple(getattr(run, by) for run in self.of(arm))

    def ratios(
        self, arm: str, by: str = "seconds", against: str | None = None
    ) -> tuple[float, ...]:
        """``against`` (the baseline) over ``arm`` of each seed, where one of them arrived.

        0 where only ``arm`` never arrived, infinity where only the other one did not.
        """
        ratios = []
        for before, after in self._pairs(arm, against):
            if before.reached or after.reached:
                ratios.append(_ratio(getattr(before, by), getattr(after, by)))
        return tuple(ratios)

    def speedup(
        self, arm: str, by: str = "seconds", against: str | None = None
    ) -> tuple[float, float, float]:
        """``against`` (the baseline) over ``arm``, paired by seed, and its 95 % interval.

        The mean of the ratios' logarithms, with an interval by Student's t, which is right for few
        seeds; nan for its ends with fewer than three. Where a run never arrived, the median of the
        ratios without an interval. nan where no seed arrived.
        """
        ratios = self.ratios(arm, by, against)
        if not ratios:
            return math.nan, math.nan, math.nan
        if not self._all_arrived(arm, against):
            return _median(ratios), math.nan, math.nan
        found = estimate([math.log(ratio) for ratio in ratios])
        if len(ratios) < FEW_SEEDS:
            return math.exp(found.mean), math.nan, math.nan
        return (math.exp(found.mean), *found.interval)

    def verdict(self, arm: str, by: str = "seconds", against: str | None = None) -> str:
        """``faster``, ``slower``, ``same`` or ``unclear``: of ``arm`` held against the baseline.

        Where all arrived, from three seeds on: ``same`` when the interval lies wholly within 2 % of
        1, else a difference when it lies wholly beyond the noise floor of neighbouring seeds. Where
        some did not: by how many of each side arrived, when so uneven a count has a chance of 5 %
        at most among equal sides (Fisher's exact test).
        """
        if self._all_arrived(arm, against):
            ratios = self.ratios(arm, by, against)
            if len(ratios) < FEW_SEEDS:
                return "unclear"
            return estimate([math.log(ratio) for ratio in ratios]).verdict(SAME["cpu"])
        pairs = self._pairs(arm, against)
        before = sum(one.reached for one, _ in pairs)
        after = sum(other.reached for _, other in pairs)
        if before == after or fisher(before, after, len(pairs)) > 0.05:
            return "unclear"
        if after > before:
            return "faster"
        return "slower"

    def _all_arrived(self, arm: str, against: str | None) -> bool:
        return all(one.reached and other.reached for one, other in self._pairs(arm, against))

    def _pairs(self, arm: str, against: str | None) -> list[tuple[RaceRun, RaceRun]]:
        """The runs of both sides with the same seed; repeats of a seed in their order."""
        others: dict[int, list[RaceRun]] = {}
        for run in self.of(arm):
            others.setdefault(run.seed, []).append(run)
        pairs = []
        for run in self.of(against or self.arms[0]):
            if others.get(run.seed):
                pairs.append((run, others[run.seed].pop(0)))
        return pairs

    def __str__(self) -> str:
        sign = "<="
        if self.higher_is_better:
            sign = ">="
        lines = [f"Race to {self.metric} {sign} {self.target:g}"]
        if self.stopped:
            lines[0] += ", stopped early"
        width = max(map(len, self.arms), default=0)
        for arm in self.arms:
            lines.append(f"{arm:{width}}  {self._arrivals(arm)}")
        for arm in self.arms[1:]:
            lines.append(f"{arm:{width}}  {self.without_factor(arm) or self._factor(arm)}")
        return "\n".join(lines)

    def _arrivals(self, arm: str) -> str:
        errors = sorted({f" ({run.error})" for run in self.of(arm) if run.error})
        reached = f"reached by {self.tally(arm)} seeds{''.join(errors)}"
        if not self.arrived(arm):
            return reached
        low, high = map(format_seconds, self.spread(arm))
        steps = format_steps(self.median(arm, "steps"))
        median = f"median {format_seconds(self.median(arm)):>8}"
        return f"{median}  {self.spread_name} [{low}, {high}]  {steps:>6} steps  {reached}"

    def without_factor(self, arm: str) -> str:
        """What is said of ``arm`` beside the baseline where no factor tells it; else nothing."""
        by = self.told_by(arm)
        if by == "nothing":
            return "did not reach it"
        if by == "counts":
            return f"reached it {self.counts(arm, self.arms[0])}: {self.verdict(arm)}"
        return ""

    def certainty(self, arm: str) -> str:
        """What a factor rests on: ``95 % interval 1.90 to 2.10; 5 seeds``; two seeds one by one."""
        ratios = self.ratios(arm)
        _, low, high = self.speedup(arm)
        if not math.isnan(low):
            ends = f"{format_factor(low)} to {format_factor(high)}"
            return f"95 % interval {ends}; {len(ratios)} seeds"
        if len(ratios) == 1:
            return "one seed"
        return f"{' and '.join(map(format_factor, ratios))} in two seeds"

    def _factor(self, arm: str) -> str:
        factor = f"{format_factor(self.speedup(arm)[0])} times as fast to the target"
        return f"{factor} as {self.arms[0]} ({self.certainty(arm)}): {self.verdict(arm)}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return report.race(self)


def race(
    arms: Mapping[str, Callable[[], Workload]],
    *,
    target: float,
    steps: int,
    every: int = 1,
    seeds: int | None = None,
    metric: str = "metric",
    higher_is_better: bool = True,
    threads: int | None = 1,
    on_update: Callable[[RaceResult], None] | None = None,
    on_point: Callable[[RaceRun], None] | None = None,
    stop: threading.Event | None = None,
) -> RaceResult:
    """Train each side on each seed until its metric reaches ``target``, ``steps`` steps at most.

    ``arms`` maps a name to a function that returns a fresh ``Workload(step, samples,
    evaluate=...)``; the first is the baseline. The metric, called ``metric`` in results, is taken
    untimed after each ``every`` steps. It arrives at ``target`` or above; at ``target`` or below
    with ``higher_is_better=False``, as for a loss. One that is not finite ends that run: it
    diverged. A run that ends out of memory never arrives. The default is five seeds (two in the
    test size). ``threads`` is torch's thread count on the CPU (None leaves it alone).

    ``on_update`` receives what there is after each run, ``on_point`` the run that goes on, at most
    five times a second. An interrupt, or ``stop.set()``, returns the runs finished so far. Times
    are in seconds of training.

    TypeError for what makes no Workload and for a target that is no number; ValueError for counts
    that are not positive whole numbers, a target that is not finite, no side at all, a workload
    without ``evaluate``, and a loss on a card that is not the current one; Busy while another
    measurement is running. What a step raises comes through.

    >>> import torch
    >>> def shrinking(rate):
    ...     loss = [1 + torch.rand(1).item()]
    ...     def step():
    ...         loss[0] *= rate
    ...     return Workload(step, evaluate=lambda: loss[0])
    >>> sides = {"slow": lambda: shrinking(0.9), "quick": lambda: shrinking(0.5)}
    >>> result = race(sides, target=0.01, steps=100, seeds=3, higher_is_better=False)
    >>> result.tally("quick"), result.median("slow", "steps") > result.median("quick", "steps")
    ('3 of 3', True)
    """
    if seeds is None:
        seeds = pick(cpu=5, test=2)
    _check(arms, target, {"steps": steps, "every": every, "seeds": seeds})
    job = _Race(dict(arms), target, steps, every, metric, higher_is_better, stop, on_point)
    bar = progress(total=seeds * len(arms), desc="race", unit="run")
    try:
        with measuring(threads):
            job.warm_up()
            for result in job.run(seeds):
                bar.update()
                if on_update:
                    on_update(result)
    except KeyboardInterrupt:
        if not job.runs:
            raise
        job.stopped = True
    finally:
        bar.close()
    return job.result()


def _check(arms: Mapping[str, object], target: float, counts: dict[str, int]) -> None:
    """TypeError or ValueError for a race that cannot be run."""
    for name, value in counts.items():
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{name}={value!r}: use a positive whole number")
    if not arms:
        raise ValueError("arms={}: a race needs at least one side, {'name': make_workload}")
    for name, make in arms.items():
        if not callable(make):
            raise TypeError(f"arms[{name!r}]={make!r}: use a function that returns a Workload")
    if not isinstance(target, int | float) or isinstance(target, bool):
        raise TypeError(f"target={target!r}: use a number, fixed before the race")
    if not math.isfinite(target):
        raise ValueError(f"target={target!r}: use a finite number, fixed before the race")


@dataclass
class _Race:
    """One call of `race`: what was asked for, and the runs so far."""

    arms: dict[str, Callable[[], Workload]]
    target: float
    steps: int
    every: int
    metric: str
    higher_is_better: bool
    stop: threading.Event | None
    on_point: Callable[[RaceRun], None] | None = None
    told: float = -math.inf
    runs: list[RaceRun] = field(default_factory=list)
    stopped: bool = False

    def warm_up(self) -> None:
        """Build each side once and run a step: thread pools and kernel caches are nobody's time."""
        for name, make in self.arms.items():
            with contextlib.closing(LocalArm(make, name, seed=0)) as arm, survive():
                if not self._asked_to_stop():
                    arm.start()

    def run(self, seeds: int) -> Iterator[RaceResult]:
        """Train each side on each seed; what there is after each run."""
        for seed in range(seeds):
            names = list(self.arms)
            # So that no side always runs on the machine that the other one has warmed up.
            if seed % 2:
                names.reverse()
            for name in names:
                run = self._train(name, seed)
                if run is None:
                    self.stopped = True
                    return
                self.runs.append(run)
                yield self.result()

    def _train(self, name: str, seed: int) -> RaceRun | None:
        """One run; None when it was stopped."""
        curve: list[tuple[int, float, float]] = []
        reached = False
        with (
            contextlib.closing(LocalArm(self.arms[name], name, seed=seed)) as arm,
            survive() as outcome,
        ):
            arm.enter()
            seconds, done = 0.0, 0
            while done < self.steps and not reached:
                if self._asked_to_stop():
                    return None
                block = min(self.every, self.steps - done)
                seconds += arm.block(block)
                done += block
                value = arm.evaluate()
                curve.append((done, seconds, value))
                self._tell(name, seed, curve)
                if not math.isfinite(value):
                    break
                reached = self._arrived(value)
        return RaceRun(name, seed, tuple(curve), reached, outcome.error)

    def _tell(self, name: str, seed: int, curve: list[tuple[int, float, float]]) -> None:
        """Pass a run on while it goes on."""
        now = time.monotonic()
        if self.on_point is not None and now - self.told >= 0.2:
            self.told = now
            self.on_point(RaceRun(name, seed, tuple(curve), reached=False))

    def _arrived(self, value: float) -> bool:
        if self.higher_is_better:
            return value >= self.target
        return value <= self.target

    def _asked_to_stop(self) -> bool:
        return self.stop is not None and self.stop.is_set()

    def result(self) -> RaceResult:
        """What there is now, by side and seed."""
        order = list(self.arms)
        runs = sorted(self.runs, key=lambda run: (order.index(run.arm), run.seed))
        return RaceResult(
            tuple(runs), self.target, self.metric, self.higher_is_better, self.stopped
        )


def _ratio(before: float, after: float) -> float:
    if math.isinf(after):
        return 0.0
    return before / after


def _median(values: tuple[float, ...]) -> float:
    if not values:
        return math.nan
    return float(np.median(values))


def fisher(one: int, other: int, of: int) -> float:
    """The chance of counts as uneven as ``one`` and ``other``, of ``of`` each, among equal sides.

    Fisher's exact test, two-sided: ``fisher(5, 0, of=5)`` is 2 / 252.
    """
    arrived = one + other
    ways = []
    for count in range(max(0, arrived - of), min(of, arrived) + 1):
        ways.append(math.comb(of, count) * math.comb(of, arrived - count))
    seen = math.comb(of, one) * math.comb(of, other)
    return sum(way for way in ways if way <= seen) / math.comb(2 * of, arrived)
