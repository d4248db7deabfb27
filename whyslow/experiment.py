"""An experiment: the reader's own step as it is, against the same step with one thing changed.

The change is a context that is entered around each block of steps, so that entering it is no part
of any time: a switch is flipped, a method is exchanged. Both sides train the same model in turn.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn

from labkit.alternating import alternate
from labkit.arm import LocalArm
from labkit.restore import giving_back, preserve_flags
from labkit.restore.attributes import exchanged
from labkit.results import Comparison, Measurement, Workload
from labkit.results.statistics import BUILD_SPREAD, estimate
from labkit.stages import UNWATCHED, Stages
from labkit.text import format_seconds
from whyslow import stacks
from whyslow.findings import LEAST_SHARE, Finding, Interval, found
from whyslow.shares import means_of

# Steps of the shortest experiment: one that warms up, and A B B A.
STEPS = 5

# The parts of a step that an experiment works on, by the causes of their time. Values are read and
# batches copied in lines of the reader's own. All: of any cause.
MODEL, UPDATE = (stacks.FORWARD, stacks.BACKWARD), (stacks.UPDATE,)
HOST, ALL = (stacks.HOST, stacks.OWN), ()

Step = Callable[[], object]
Change = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Experiment:
    """``change`` is what the candidate runs in; ``step`` what it runs, where that differs.

    ``part`` of a step is what it may shorten. ``words`` complete the remedy. ``samples`` is how
    many times the samples of a step it works on. Below a share of ``least`` nothing is named.
    ``cores`` have to be free, where a busy machine would give another answer. ``compiles`` is how
    many seconds the first step is expected to compile; what was compiled is given up at the end.
    """

    name: str
    how: str
    change: Change = nullcontext
    step: Step | None = None
    part: tuple[str, ...] = MODEL
    words: Mapping[str, Any] = field(default_factory=dict)
    samples: float = 1
    least: float = LEAST_SHARE
    cores: int = 0
    compiles: float = 0.0

    def finding(self, result: Comparison) -> Finding:
        """What ``result`` says: the share of the step that the change saves."""
        low, high = _interval(result)
        interval = 1 - 1 / low, 1 - 1 / high
        how = f"by experiment: {self.how}"
        saved = result.baseline.median - result.candidate.median
        if self.compiles and saved > 0:
            cold = result.candidate.cold or 0.0
            pays = f"which pays after {cold / saved:,.0f} steps"
            how += f"; compiling took {format_seconds(cold)}, {pays}"
        return found(self.name, (1 - 1 / result.speedup, interval), how, **self.words)

    def worth_naming(self, result: Comparison) -> bool:
        """Whether the saving is sure, and ``least`` or more."""
        if result.pairs < 2 or result.error:
            return False
        return 1 - 1 / _interval(result)[0] >= self.least

    def share(self, shares: Mapping[str, float]) -> float:
        """The share of the step that it works on; of all of it, the largest part, which it may be
        the cause of.
        """
        parts = [self.part] if self.part else [MODEL, UPDATE, HOST, (stacks.LOADING,)]
        return max(sum(shares.get(cause, 0.0) for cause in part) for part in parts)

    def run(self, baseline: Step, seconds: float, pairs: int = 0) -> Comparison:
        """Time both sides in turn for ``seconds``; or in so many ``pairs``, whatever that takes."""
        before = _Changed(Workload(baseline), nullcontext, "as it is")
        workload = Workload(self.step or baseline, self.samples)
        after = _Changed(workload, self.change, self.name, before)
        uncompiled = giving_back(torch.compiler.reset) if self.compiles else nullcontext()
        with uncompiled, closing(before), closing(after):
            if pairs:
                return _one_by_one(before, after, pairs)
            return alternate(
                before, after, seconds=seconds, on_update=None, stop=None, most_builds=1
            )


def _one_by_one(before: LocalArm, after: LocalArm, pairs: int) -> Comparison:
    """One step warms up, then A B, B A and so on."""
    before.enter()
    cold = after.start()
    times: dict[LocalArm, list[float]] = {before: [], after: []}
    for number in range(pairs):
        for arm in (before, after) if number % 2 == 0 else (after, before):
            times[arm].append(arm.block(1))
    return Comparison(
        Measurement(before.label, times=tuple(times[before])),
        Measurement(after.label, times=tuple(times[after]), samples=after.samples, cold=cold),
        after.device,
    )


def _interval(result: Comparison) -> Interval:
    """The 95 % interval of the speed-up; from few pairs of steps, too."""
    logs = means_of([math.log(ratio) for ratio in result.ratios], statistics.median)
    return estimate(logs, BUILD_SPREAD).interval


class _Changed(LocalArm):
    """An arm whose blocks run in the context of a change."""

    def __init__(
        self, workload: Workload, change: Change, label: str, before: LocalArm | None = None
    ) -> None:
        super().__init__(lambda: workload, label)
        self._change, self._before, self._begun = change, before, False

    def start(self, stages: Stages = UNWATCHED) -> float:
        with self._change():
            return super().start(stages)

    def check(self) -> None:
        """Of its first step alone, on a training that is whole: repeated on few batches it may
        diverge later, and each step takes the time that it took.
        """
        whole = self._before is None or self._before.lost() is None
        if whole and not self._begun:
            super().check()

    def block(self, steps: int) -> float:
        self._begun = True
        with self._change():
            return super().block(steps)


@contextmanager
def forwards(roots: Iterable[nn.Module], instead: Callable[..., Any]) -> Iterator[None]:
    """The forward pass of each root is ``instead(root, forward, *args, **keywords)``."""
    with exchanged((root, "forward", partial(instead, root, root.forward)) for root in roots):
        yield


@contextmanager
def switched(switch: Callable[[], object], *setters: str) -> Iterator[None]:
    """torch's switches as ``switch()`` sets them, also where the step calls these ``setters``."""
    with preserve_flags():
        switch()
        with exchanged((torch, name, nothing) for name in setters):
            yield


def nothing(*args: Any, **keywords: Any) -> None:
    """Stands for what switches something on or off."""
