"""Race to a target: for techniques that change what is learned, where time per step says nothing.

Every side trains from the same seeds until its metric reaches a target that was fixed beforehand.
Evaluation is not timed. What comes of it is a `labkit.results.RaceResult`.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from labkit.arm import LocalArm
from labkit.comparing import measuring
from labkit.device import pick, survive
from labkit.progress import progress
from labkit.results import RaceResult, RaceRun, Workload
from labkit.stages import Halted, OnStage, Stages


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
    on_stage: OnStage | None = None,
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
    five times a second, ``on_stage`` what is prepared before the first run. An interrupt, or
    ``stop.set()``, returns the runs finished so far. Times are in seconds of training.

    TypeError for what makes no Workload; ValueError for counts that are not positive whole numbers,
    a target that is no finite number, no side at all, a workload without ``evaluate``, and a loss
    on a card that is not the current one; Busy while another measurement is running. What a step
    raises comes through.

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
    # Who is told needs no bar.
    hidden = {"disable": True} if on_update else {}
    bar = progress(total=seeds * len(arms), desc="race", unit="run", **hidden)
    try:
        with measuring(threads):
            job.warm_up(Stages(on_stage, stop))
            for result in job.run(seeds):
                bar.update()
                if on_update:
                    on_update(result)
    except Halted:
        job.stopped = True
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
    if not isinstance(target, int | float) or not math.isfinite(target):
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

    def warm_up(self, stages: Stages) -> None:
        """Build each side once and run a step: thread pools and kernel caches are nobody's time."""
        for number, (name, make) in enumerate(self.arms.items(), 1):
            with contextlib.closing(LocalArm(make, name, seed=0)) as arm, survive():
                arm.start(stages.of(number, len(self.arms)))

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
                if self.stop is not None and self.stop.is_set():
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

    def result(self) -> RaceResult:
        """What there is now, by side and seed."""
        order = list(self.arms)
        runs = sorted(self.runs, key=lambda run: (order.index(run.arm), run.seed))
        return RaceResult(
            tuple(runs), self.target, self.metric, self.higher_is_better, self.stopped
        )
