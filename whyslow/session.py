"""The whole of a diagnosis: look at one step, time its parts, then experiment while time lasts.

First each experiment gets a short run. Those that may save something get a longer one, the most
promising first. Everything that the step reaches is put back at the end, and the models and
optimizers after each experiment too, so that none trains on what another left.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from labkit.busy import Others, cores
from labkit.comparing import measuring
from labkit.device import synchronize
from labkit.progress import progress
from labkit.restore import Restoration, preserve_state, restoring
from labkit.restore.reach import generators_of
from whyslow import memory
from whyslow.checks import (
    EXPERIMENTS,
    blame,
    loading,
    recompiles,
    samples,
    streaming,
    update,
)
from whyslow.experiment import Change, Experiment, both
from whyslow.failing import may_fail
from whyslow.findings import LEAST_SHARE, Diagnosis, Finding, ranked
from whyslow.limit import limit
from whyslow.observe import count_operators, observe
from whyslow.phases import Phases, timed
from whyslow.subject import Subject, copy_of

# Parts of the budget: streaming the loader, cutting the step, and one experiment of each kind.
STREAMING = 0.2
CUTTING = 0.08
SCREENING = 0.025
# What `update` looks for.
PARAMETERS = "loops over parameters"
# The longest that one experiment is repeated.
LONGEST = 0.15


class Session:
    """One diagnosis while it runs."""

    def __init__(
        self,
        step: Callable[..., object],
        batches: Any,
        seconds: float,
        patience: float,
        state: tuple[Any, ...],
    ) -> None:
        self.subject = Subject(step, batches)
        self.seconds, self.patience = seconds, patience
        self.begin = time.perf_counter()
        self.others = Others()
        self.found: list[Finding] = []
        self.unmeasured: dict[str, str] = {}
        self.notes: list[str] = []
        # The checks that were made, by what they look for.
        self.looked_for: list[str] = []
        self.step_seconds = math.nan
        self.phases: dict[str, float] = {}
        self.state = state
        self.restoration: Restoration
        # The share of waiting for batches that is no part of the step itself.
        self.waiting = 0.0
        # The share of what was found that costs the same in a step of any batch.
        self.per_step = 0.0
        # By the clock alone: said where no experiment explains it.
        self.beside: list[Finding] = []

    @property
    def left(self) -> float:
        """Seconds of the budget that are left."""
        return self.begin + self.seconds - time.perf_counter()

    def run(self) -> Diagnosis:
        """Everything, in turn; all is put back, whatever is raised."""
        loader = self.subject.loader
        given = (*self.state, *generators_of(loader))
        beside = ", or list in model= and optimizer= what it trains"
        # With-statements, and no ExitStack: of that, an interrupt may leave a part undone.
        with (
            measuring(None),
            streaming.without_iterator(loader),
            _with_note(self.subject.call),
            restoring(self.subject.call, also=given, advice=beside) as self.restoration,
            self._bar(),
        ):
            self._look()
            self._cut()
            self._experiments()
        self._tell()
        return Diagnosis(
            ranked(self.found),
            self.step_seconds,
            time.perf_counter() - self.begin,
            self.phases,
            tuple(self.notes),
            self.unmeasured,
            tuple(self._looked_for()),
        )

    def _looked_for(self) -> Iterator[str]:
        for name in dict.fromkeys(self.looked_for):
            if name not in self.unmeasured:
                yield name

    @contextmanager
    def _bar(self) -> Iterator[None]:
        with progress(total=self.seconds, unit="s", desc="diagnosing", delay=0) as bar:
            self.advance = lambda: bar.update(min(bar.total, self.seconds - self.left) - bar.n)
            yield

    def _look(self) -> None:
        """The first steps: what is used, and how much memory."""
        subject = self.subject
        if subject.takes_batches:
            with limit(self.patience, "loading the first batches"):
                subject.keep(subject.loader)
            streaming.end_started(subject.loader)
        probe = [copy_of(batch) for batch in subject.batches[:1]]
        versions = [each._version for each in _tensors(probe)]

        with limit(self.patience, "the first step"):
            subject.seen = observe(subject.serve(probe), self.restoration.keep)
        if versions != [each._version for each in _tensors(probe)]:
            subject.copied = True
            self.notes.append("the step writes into its batches; it was given copies")
        # The first step has no gradients to begin with, and compiles: the second one tells more.
        step = subject.serve()
        synchronize()
        begin = time.perf_counter()
        with limit(self.patience, "the second step"):
            subject.seen = observe(step, self.restoration.keep)
            synchronize()
        self.step_seconds = time.perf_counter() - begin
        self.advance()
        with self._may_fail("operators, one by one"):
            count_operators(step, subject.seen)
        with self._may_fail("memory of a step"):
            use = memory.use_of(step, subject.seen.device)
            subject.peak = use.peak
            self.looked_for.append(memory.NAME)
            leak = memory.finding(use)
            if leak is not None:
                self.found.append(leak)
        self.advance()

    def _cut(self) -> None:
        """Streaming, and the phases of a step: by the clock."""
        subject = self.subject
        with recompiles.watched() as compilations, self._kept():
            waiting = None
            if subject.takes_batches:
                with limit(self.patience, "reading from the loader"):
                    seconds = STREAMING * self.seconds
                    waiting, found = loading.finding(subject, seconds, self._may_fail)
                wholes = found.wholes
                if wholes:
                    self.step_seconds = sum(wholes) / len(wholes)
            self.advance()
            before = len(compilations.seconds)
            limited = partial(limit, self.patience, "a step")
            phases = timed(subject.serve(), CUTTING * self.seconds, around=limited)
            if not subject.takes_batches:
                wholes = phases.wholes
                self.step_seconds = sum(wholes) / len(wholes)
                before = len(compilations.seconds)
                waiting = loading.inside(phases, self._may_fail)
        if waiting is not None:
            self.found.append(waiting)
        self._from_phases(phases, wholes)
        self.looked_for += [blame.NAME, recompiles.NAME]
        again = recompiles.finding(compilations.seconds[:before], wholes)
        if again is not None:
            self.found.append(again)
        self.advance()

    def _from_phases(self, phases: Phases, wholes: list[float]) -> None:
        subject = self.subject
        shares = phases.shares()
        alone = sum(phases.wholes) / len(phases.steps)
        scale = 1.0
        if subject.takes_batches and wholes:
            # Of the time with waiting for data, as everything that is said.
            scale = min(1.0, alone * len(wholes) / sum(wholes))
            shares = {name: scale * share for name, share in shares.items()}
            self.waiting = 1 - scale
            shares = {"data": self.waiting} | shares
        self.phases = shares
        # torch's own functions are timed on tensors like these: of a kind that they may not take.
        with self._may_fail(PARAMETERS):
            if update.trained(subject.seen) > 1:
                self.looked_for.append(PARAMETERS)
            for finding in update.findings(subject, phases):
                self.found.append(_scaled(finding, scale))
                if finding.interval[0] >= LEAST_SHARE:
                    self.per_step += finding.share
        self.looked_for += samples.looked_for(subject)
        for finding in samples.findings(subject, phases):
            self.beside.append(_scaled(finding, scale))
            if finding.name == samples.BESIDE:
                self.per_step += finding.share

    def _experiments(self) -> None:
        """Short runs of all, then longer ones of those that may save something."""
        every = self._every_experiment()
        promising: list[tuple[float, Experiment]] = []
        for experiment in every:
            if not experiment.last:
                promising += self._screened(experiment, nullcontext)
        promising.sort(key=lambda pair: -pair[0])
        saved: dict[str, tuple[float, Experiment]] = {}
        for number, (_, experiment) in enumerate(promising):
            rest = self.left / (len(promising) - number + 1)
            share = self._experiment(experiment, rest, nullcontext, 1.0)
            if share > saved.get(experiment.name, (0.0,))[0]:
                saved[experiment.name] = share, experiment
        explained = max((share for share, _ in saved.values()), default=0.0)
        self.found += [each for each in self.beside if explained < each.share / 2]
        mended = both(*(each.change for _, each in saved.values() if each.step is None))
        remains = math.prod(1 - share for share, each in saved.values() if each.step is None)
        for experiment in every:
            if experiment.last:
                for _ in self._screened(experiment, mended):
                    self._experiment(experiment, self.left, mended, remains)

    def _every_experiment(self) -> list[Experiment]:
        """All that apply to the step. To make one may take memory, as for a larger batch."""
        every: list[Experiment] = []
        for check in EXPERIMENTS:
            name = check.__module__.rpartition(".")[2].replace("_", " ")
            with self._may_fail(f"{name}, by experiment"):
                every += check(self.subject)
        return every

    def _screened(self, experiment: Experiment, around: Change) -> list[tuple[float, Experiment]]:
        """What an experiment may save at most, by a short run; nothing where that is too little."""
        if self.left < 2 * self.step_seconds:
            self.unmeasured[experiment.name] = "the time was over; seconds= takes more"
            return []
        share = 0.0
        with self._kept(), self._may_fail(experiment.name):
            share = experiment.glance(self.subject.serve(), SCREENING * self.seconds, around)
            self.looked_for.append(experiment.name)
        self.advance()
        # Four blocks say little: what comes near to the least share goes on.
        if share < experiment.least / 2:
            return []
        return [(share, experiment)]

    def _experiment(
        self, experiment: Experiment, seconds: float, around: Change, remains: float
    ) -> float:
        """Run an experiment; the share of the step that it saves, 0 where that is not sure.

        ``remains`` is the part of the step that is left when both sides run in ``around``.
        """
        seconds = min(LONGEST * self.seconds, max(SCREENING * self.seconds, seconds))
        with self._kept(), self._may_fail(experiment.name):
            others = Others()
            result = experiment.run(self.subject.serve(), seconds, around)
            self.advance()
            busy = others.in_the_way(experiment.cores) if experiment.cores else None
            if busy is not None:
                self.unmeasured[experiment.name] = busy
                return 0.0
            if experiment.worth_naming(result):
                finding = _scaled(experiment.finding(result), remains)
                if experiment.last:
                    # A larger batch would also spread what has a remedy of its own.
                    finding = _less(finding, self.per_step * (1 - 1 / experiment.samples))
                self.found.append(_scaled(finding, 1 - self.waiting))
                return finding.share
        return 0.0

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """Models and optimizers as they were before."""
        with preserve_state(*self.restoration.items):
            yield

    @contextmanager
    def _may_fail(self, name: str) -> Iterator[None]:
        """What fails, or takes too long, is told, and ends only itself."""
        with may_fail(name, self.unmeasured), limit(self.patience, name):
            yield

    def _tell(self) -> None:
        busy = self.others.in_the_way(cores())
        if busy is not None:
            self.notes.append(busy)
        if self.subject.seen.written:
            names = ", ".join(dict.fromkeys(self.subject.seen.written))
            self.notes.append(f"each step writes a file, also while it was diagnosed: {names}")
        self.notes += self.restoration.notes


def _tensors(batches: list[Any]) -> list[torch.Tensor]:
    return [each for each in tree_leaves(batches) if isinstance(each, torch.Tensor)]


def _less(finding: Finding, share: float) -> Finding:
    """The finding without a share that another one has told."""
    low, high = finding.interval
    interval = max(0.0, low - share), max(0.0, high - share)
    return replace(finding, share=max(0.0, finding.share - share), interval=interval)


def _scaled(finding: Finding, scale: float) -> Finding:
    """A share of the step alone as a share of the step with its wait for data."""
    low, high = finding.interval
    return replace(finding, share=scale * finding.share, interval=(scale * low, scale * high))


@contextmanager
def _with_note(call: Any) -> Iterator[None]:
    """An error of the step says that it is the step's own."""
    try:
        yield
    except Exception as error:
        name = getattr(call, "__name__", type(call).__name__)
        error.add_note(f"(while diagnosing {name!r})")
        raise
