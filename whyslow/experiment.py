"""An experiment: the reader's own step as it is, against the same step with one thing changed.

The change is a context that is entered around each block of steps, so that entering it is no part
of any time: a switch is flipped, a method of one object is exchanged. Both sides train the same
model in turn; what they do to it is put back after each experiment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from torch.overrides import TorchFunctionMode

from labkit.alternating import alternate
from labkit.arm import LocalArm
from labkit.results import Comparison, Workload
from labkit.results.statistics import BUILD_SPREAD
from labkit.stages import UNWATCHED, Stages
from whyslow.clock import interval_of
from whyslow.findings import LEAST_SHARE, Finding, Interval

# A B B A so many times, where a step is short enough for it.
REPEATS = 3

Change = Callable[[], AbstractContextManager[Any]]
Step = Callable[[], object]


@dataclass(frozen=True)
class Experiment:
    """``change`` is what the candidate runs in; ``step`` what it runs, where that differs.

    ``samples`` is how many times the samples of a step it works on. ``least`` is the share below
    which nothing is said. ``last`` is for what changes what is learned: it is measured with all
    else mended. ``control`` is what the baseline runs in, where the change costs time by itself.
    ``cores`` is how many must be free, where a machine that others use would give another answer.
    """

    name: str
    how: str
    remedy: str
    notebook: str
    change: Change = nullcontext
    step: Step | None = None
    samples: float = 1
    least: float = LEAST_SHARE
    last: bool = False
    control: Change = nullcontext
    cores: int = 0

    def finding(self, result: Comparison) -> Finding:
        """What ``result`` says: the share of the step that the change saves."""
        low, high = _interval(result)
        return Finding(
            self.name,
            1 - 1 / result.speedup,
            (1 - 1 / low, 1 - 1 / high),
            self.how,
            self.remedy,
            self.notebook,
            learns=self.last,
        )

    def worth_naming(self, result: Comparison) -> bool:
        """Whether the saving is sure, and ``least`` or more."""
        if result.pairs < 2 or result.baseline.error or result.candidate.error:
            return False
        return 1 - 1 / _interval(result)[0] >= self.least

    def run(self, baseline: Step, seconds: float, around: Change = nullcontext) -> Comparison:
        """Time both sides in turn for about ``seconds``, each in the context of ``around``."""
        before = _Changed(baseline, both(around, self.control), "as it is")
        after = _Changed(self.step or baseline, both(around, self.change), self.name, self.samples)
        try:
            return alternate(
                before, after, seconds=seconds, on_update=_silent, stop=None, most_builds=1
            )
        finally:
            before.close()
            after.close()

    def glance(self, baseline: Step, seconds: float, around: Change = nullcontext) -> float:
        """A first idea of the share that it saves, of blocks A B B A; at least six steps.

        What another program takes only makes a block longer: the shortest of each side count.
        """
        before = _Changed(baseline, both(around, self.control), "as it is")
        after = _Changed(self.step or baseline, both(around, self.change), self.name, self.samples)
        try:
            usual = before.start()
            after.start()
            steps = max(1, round(seconds / 4 / max(usual, 1e-6)))
            times = min(REPEATS, steps)
            one, other = [], []
            for _ in range(times):
                one.append(before.block(steps // times))
                other += [after.block(steps // times), after.block(steps // times)]
                one.append(before.block(steps // times))
        finally:
            before.close()
            after.close()
        return 1 - min(other) / min(one) / self.samples


def both(*changes: Change) -> Change:
    """All of these changes at once, the first outermost."""

    @contextmanager
    def changed() -> Iterator[None]:
        if not changes:
            yield
            return
        with changes[0](), both(*changes[1:])():
            yield

    return changed


def _interval(result: Comparison) -> Interval:
    allowance = BUILD_SPREAD.get(result.device, BUILD_SPREAD["cpu"])
    return interval_of(result.ratios, allowance)


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
