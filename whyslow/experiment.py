"""An experiment: the reader's own step as it is, against the same step with one thing changed.

The change is a context that is entered around each block of steps, so that entering it is no part
of any time: a switch is flipped, a method of one object is exchanged. Both sides train the same
model in turn; what they do to it is put back after each experiment.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from torch.overrides import TorchFunctionMode

from labkit.alternating import alternate
from labkit.arm import LocalArm
from labkit.results import Comparison, Measurement, Workload
from labkit.results.statistics import BUILD_SPREAD, estimate, runs_of
from labkit.stages import UNWATCHED, Stages
from labkit.text import format_seconds
from whyslow.changes import Change, both
from whyslow.clock import MANY
from whyslow.findings import LEAST_SHARE, Finding, Interval, found
from whyslow.phases import MODEL

# Steps of the shortest experiment: one that warms up, and A B B A.
STEPS = 5

Step = Callable[[], object]


@dataclass(frozen=True)
class Experiment:
    """``change`` is what the candidate runs in; ``step`` what it runs, where that differs.

    ``part`` of a step is what it may shorten: see `whyslow.phases.PARTS`. ``words`` complete the
    remedy. ``samples`` is how many times the samples of a step it works on. ``least`` is the share
    below which nothing is said. ``last`` is for what changes what is learned: it is measured with
    all else mended. ``control`` is what the baseline runs in, where the change costs time by
    itself, ``whole`` what all of the experiment does. ``cores`` is how many must be free, where a
    machine that others use would give another answer. ``compiles`` is how many seconds the
    candidate's first step is expected to compile; it is paid once.
    """

    name: str
    how: str
    change: Change = nullcontext
    step: Step | None = None
    part: str = MODEL
    words: Mapping[str, object] = field(default_factory=dict)
    samples: float = 1
    least: float = LEAST_SHARE
    last: bool = False
    control: Change = nullcontext
    whole: Change = nullcontext
    cores: int = 0
    compiles: float = 0.0

    def finding(self, result: Comparison) -> Finding:
        """What ``result`` says: the share of the step that the change saves."""
        low, high = _interval(result)
        interval = 1 - 1 / low, 1 - 1 / high
        how = f"by experiment: {self.how}"
        if self.compiles:
            how += _pays_after(result)
        return found(self.name, 1 - 1 / result.speedup, interval, how, self.words, self.last)

    def worth_naming(self, result: Comparison) -> bool:
        """Whether the saving is sure, and ``least`` or more."""
        if result.pairs < 2 or result.baseline.error or result.candidate.error:
            return False
        return 1 - 1 / _interval(result)[0] >= self.least

    def run(self, baseline: Step, seconds: float, around: Change = nullcontext) -> Comparison:
        """Time both sides in turn for about ``seconds``, each in the context of ``around``."""
        with self._sides(baseline, around) as (before, after):
            return alternate(
                before, after, seconds=seconds, on_update=_silent, stop=None, most_builds=1
            )

    def few(self, baseline: Step, pairs: int, around: Change = nullcontext) -> Comparison:
        """The same of steps that are too slow for blocks: one warms up, then A B, B A and so on."""
        one: list[float] = []
        other: list[float] = []
        with self._sides(baseline, around) as (before, after):
            before.enter()
            cold = after.start()
            for number in range(pairs):
                sides = [(before, one), (after, other)]
                for arm, times in sides if number % 2 == 0 else sides[::-1]:
                    times.append(arm.block(1))
            after.check()
            return Comparison(
                Measurement("as it is", times=tuple(one)),
                Measurement(self.name, times=tuple(other), samples=self.samples, cold=cold),
                after.device,
            )

    @contextmanager
    def _sides(self, baseline: Step, around: Change) -> Iterator[tuple[LocalArm, LocalArm]]:
        before = _Changed(baseline, both(around, self.control), "as it is")
        after = _Changed(self.step or baseline, both(around, self.change), self.name, self.samples)
        try:
            yield before, after
        finally:
            before.close()
            after.close()


def _pays_after(result: Comparison) -> str:
    """What the first step cost, beside what each later one saves."""
    saved = result.baseline.median - result.candidate.median
    cold = result.candidate.cold or 0.0
    if saved <= 0:
        return ""
    return f"; compiling took {format_seconds(cold)}, which pays after {cold / saved:,.0f} steps"


def _interval(result: Comparison) -> Interval:
    """The 95 % interval of the speed-up; from few pairs of steps, too."""
    logs = [math.log(ratio) for ratio in result.ratios]
    if len(logs) >= MANY:
        logs = [statistics.median(run) for run in runs_of(logs)]
    return estimate(logs, BUILD_SPREAD).interval


class Idle(TorchFunctionMode):
    """Looks at every call of torch's Python API, and changes nothing."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


class _Changed(LocalArm):
    """An arm whose blocks run in the context of a change."""

    def __init__(self, step: Step, change: Change, label: str, samples: float = 1) -> None:
        super().__init__(lambda: Workload(step, samples), label)
        self._change = change

    def start(self, stages: Stages = UNWATCHED) -> float:
        with self._change():
            return super().start(stages)

    def block(self, steps: int) -> float:
        with self._change():
            return super().block(steps)


def _silent(partial: Comparison) -> None:
    """No progress is shown for a single experiment."""
