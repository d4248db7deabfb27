"""Race to a target: the verdict for techniques that change what is learned, where time per step says nothing.

Every arm trains from the same seeds until its metric reaches a target that was fixed beforehand. Evaluation is not
timed.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from labkit import report
from labkit.arms import LocalArm
from labkit.device import is_out_of_memory, pick
from labkit.measure import measuring
from labkit.progress import progress
from labkit.results import estimate, median_interval
from labkit.results.comparison import SAME
from labkit.text import format_seconds


@dataclass(frozen=True)
class RaceRun:
    """One training: ``curve`` holds (steps, training seconds, metric) at each evaluation."""

    arm: str
    seed: int
    curve: tuple[tuple[int, float, float], ...]
    reached: bool
    error: str | None = None  # out of memory

    @property
    def seconds(self) -> float:
        """Training seconds to the target; infinity when it was never reached."""
        return self.curve[-1][1] if self.reached else math.inf

    @property
    def steps(self) -> float:
        """Steps to the target; infinity when it was never reached."""
        return self.curve[-1][0] if self.reached else math.inf


@dataclass(frozen=True)
class RaceResult:
    """All runs of a race. The first arm is the baseline."""

    runs: tuple[RaceRun, ...]
    target: float
    metric: str
    higher_is_better: bool
    stopped: bool = False
    lab: str = ""  # the name of the lab's function

    @cached_property
    def arms(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(run.arm for run in self.runs))

    def of(self, arm: str) -> tuple[RaceRun, ...]:
        """The runs of one arm, in the order of their seeds. Raises KeyError for an unknown arm."""
        if arm not in self.arms:
            raise KeyError(f"no arm {arm!r} in this race; there are {', '.join(self.arms)}")
        return tuple(run for run in self.runs if run.arm == arm)

    def median(self, arm: str, by: str = "seconds") -> float:
        """Median ``seconds`` or ``steps`` to the target over the seeds; infinity when fewer than half reached it."""
        return _median(tuple(getattr(run, by) for run in self.of(arm)))

    def interval(self, arm: str, by: str = "seconds") -> tuple[float, float]:
        """Bootstrap 95 % interval of that median; with five seeds nearly their range. It may be infinite."""
        return median_interval(tuple(getattr(run, by) for run in self.of(arm)))

    def ratios(
        self, arm: str, by: str = "seconds", against: str | None = None
    ) -> tuple[float, ...]:
        """``against`` (the baseline) over ``arm`` of each seed, without seeds where neither arrived.

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
        seeds. Where a run never arrived, the median, and the range of all ratios: it reaches to 0
        or infinity. nan where there is nothing: no seed arrived, or no interval of a single one.
        """
        ratios = self.ratios(arm, by, against)
        if not ratios:
            return math.nan, math.nan, math.nan
        if _all_finite(ratios):
            found = estimate([math.log(ratio) for ratio in ratios])
            return (math.exp(found.mean), *found.interval)
        return _median(ratios), min(ratios), max(ratios)

    def verdict(self, arm: str, by: str = "seconds", against: str | None = None) -> str:
        """``faster``, ``slower``, ``same`` or ``unclear``: of ``arm`` held against the baseline.

        Where all arrived: a difference is told when the interval lies wholly beyond the noise floor
        of neighbouring seeds, ``same`` when it lies wholly within 2 % of 1. Where some did not: by
        how many of each side arrived, when so uneven a count has a chance of 5 % at most among equal
        sides (Fisher's exact test).
        """
        ratios = self.ratios(arm, by, against)
        if len(ratios) > 1 and _all_finite(ratios):
            return estimate([math.log(ratio) for ratio in ratios]).verdict(SAME["cpu"])
        pairs = self._pairs(arm, against)
        before = sum(one.reached for one, _ in pairs)
        after = sum(other.reached for _, other in pairs)
        if before == after or fisher(before, after, len(pairs)) > 0.05:
            return "unclear"
        if after > before:
            return "faster"
        return "slower"

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
        sign = ">=" if self.higher_is_better else "<="
        stopped = ", stopped early" if self.stopped else ""
        lines = [f"Race to {self.metric} {sign} {self.target:g}{stopped}"]
        width = max(map(len, self.arms), default=0)
        for arm in self.arms:
            runs = self.of(arm)
            low, high = self.interval(arm)
            times = f"{format_seconds(self.median(arm)):>8} [{format_seconds(low)}, {format_seconds(high)}]"
            errors = "".join(sorted({f" ({run.error})" for run in runs if run.error}))
            arrived = f"reached by {sum(run.reached for run in runs)} of {len(runs)} seeds{errors}"
            lines.append(
                f"{arm:{width}}  median {times}  {self.median(arm, 'steps'):>6g} steps  {arrived}"
            )
        for arm in self.arms[1:]:
            ratio, low, high = self.speedup(arm)
            told = "never arrived"
            if not math.isnan(ratio):
                told = (
                    f"{ratio:.2f}x [{low:.2f}, {high:.2f}] as fast to the target as "
                    f"{self.arms[0]}: {self.verdict(arm)}"
                )
            lines.append(f"{arm:{width}}  {told}")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return report.race(self)


def race(
    arms: Mapping[str, Callable[[], Any]],
    *,
    target: float,
    steps: int,
    every: int = 1,
    seeds: int | None = None,
    metric: str = "metric",
    higher_is_better: bool = True,
    threads: int | None = 1,
    on_update: Callable[[RaceResult], None] | None = None,
    stop: threading.Event | None = None,
) -> RaceResult:
    """Train each arm on each seed until its metric reaches ``target``, or for ``steps`` steps at most.

    ``arms`` maps a name to a function that returns a fresh ``Workload(step, samples, evaluate=...)``; the first is the
    baseline. The metric is taken, untimed, after each ``every`` steps. A metric that is not finite ends that run: it
    diverged. A run that ends out of memory never arrives. The default is five seeds (two in the test size). An
    interrupt, or ``stop.set()``, returns the runs finished so far.
    """
    seeds = pick(cpu=5, test=2) if seeds is None else seeds
    for name, value in {"steps": steps, "every": every, "seeds": seeds}.items():
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{name}={value!r}: use a positive whole number")
    if not arms:
        raise ValueError("arms={}: a race needs at least one arm, {'name': make_workload}")
    if not math.isfinite(target):
        raise ValueError(f"target={target!r}: use a finite number, fixed before the race")
    runs: list[RaceRun] = []
    stopped = False
    bar = progress(total=seeds * len(arms), desc="race", unit="run")
    try:
        with measuring(threads):
            for (
                name,
                make,
            ) in (
                arms.items()
            ):  # the first steps of a process pay for thread pools and kernel caches: nobody's time
                with (
                    contextlib.closing(LocalArm(make, name, seed=0)) as arm,
                    _survive_out_of_memory(),
                ):
                    if not (stop and stop.is_set()):
                        arm.start()
            for seed in range(seeds):
                # The order alternates, so that no arm always runs on the machine that the other one has warmed up.
                for name in list(arms)[:: -1 if seed % 2 else 1]:
                    run = _train(
                        name, arms[name], seed, target, steps, every, higher_is_better, stop
                    )
                    if run is None:
                        stopped = True
                        return _result(arms, runs, target, metric, higher_is_better, stopped)
                    runs.append(run)
                    bar.update()
                    if on_update:
                        on_update(_result(arms, runs, target, metric, higher_is_better, stopped))
    except KeyboardInterrupt:
        if not runs:
            raise
        stopped = True
    finally:
        bar.close()
    return _result(arms, runs, target, metric, higher_is_better, stopped)


def _train(
    name: str,
    make: Callable[[], Any],
    seed: int,
    target: float,
    steps: int,
    every: int,
    higher_is_better: bool,
    stop: threading.Event | None,
) -> RaceRun | None:
    curve: list[tuple[int, float, float]] = []
    seconds, done, reached = 0.0, 0, False
    error = "out of memory"
    with contextlib.closing(LocalArm(make, name, seed=seed)) as arm, _survive_out_of_memory():
        arm.enter()
        while done < steps and not reached:
            if stop is not None and stop.is_set():
                return None
            block = min(every, steps - done)
            seconds += arm.block(block)
            done += block
            value = arm.evaluate()
            curve.append((done, seconds, value))
            if not math.isfinite(value):
                break
            reached = value >= target if higher_is_better else value <= target
        error = ""
    return RaceRun(name, seed, tuple(curve), reached, error or None)


@contextlib.contextmanager
def _survive_out_of_memory() -> Iterator[None]:
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise


def _result(
    arms: Any, runs: list[RaceRun], target: float, metric: str, higher: bool, stopped: bool
) -> RaceResult:
    order = {name: position for position, name in enumerate(arms)}
    return RaceResult(
        tuple(sorted(runs, key=lambda run: (order[run.arm], run.seed))),
        target,
        metric,
        higher,
        stopped,
    )


def _ratio(before: float, after: float) -> float:
    if math.isinf(after):
        return 0.0
    return before / after


def _all_finite(ratios: tuple[float, ...]) -> bool:
    return all(0 < ratio < math.inf for ratio in ratios)


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
