"""The whole of a diagnosis: look at one step and its lines, then experiment while time lasts.

The experiments that work on the largest part of a step come first. Where a step is so slow that few
fit into the budget, the first ones get a few steps each, and what was not tried says so. All that
the step reaches is put back after each experiment, so that none trains on what another left.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from labkit import pick
from labkit.busy import Others, cores
from labkit.comparing import budget, measuring
from labkit.device import is_out_of_memory, release_memory
from labkit.restore import giving_back, preserve_state, restoring
from labkit.restore.reach import generators_of
from labkit.text import format_bytes, format_seconds
from whyslow import experiments, loading, remedies
from whyslow.experiment import STEPS, Experiment
from whyslow.findings import Diagnosis, Finding, found, ranked
from whyslow.lines import cause_of
from whyslow.loading import LEAST_STEPS, Stream, ahead, end_workers, own_loader, stream
from whyslow.report import Report
from whyslow.shares import Tally, share_of
from whyslow.stacks import COMPILING, LOADING, LOGGING, OWN, UPDATE, VALIDATION, Stack, own
from whyslow.subject import MEMORY_STEPS, Subject, mapped, memory_of, tensors_of
from whyslow.watching import Watch

# Parts of the budget: running steps on batches as they come, and repeating one experiment.
STREAMING, LONGEST = 0.2, 0.15
# Of a step that takes more of the budget, memory is not counted: that takes four.
COUNTED = 1 / 20
# A slow step may take the diagnosis so far beyond its budget, for the sake of the first experiment.
BEYOND = 1.5
# Steps that an experiment in blocks takes at least.
MANY = 12
# One compilation is no habit; a little work of one's own is in every step.
COMPILATIONS, LITTLE = 2, 0.08
# A validation that takes more is told. It is no finding: it may be meant so.
MUCH = 1 / 3

# The reader's: of a batch, or of nothing.
Step = Callable[..., object]


def diagnose(step: Step, batches: Any = None, *, seconds: float | None = None) -> Diagnosis:
    """Find out what makes a training step slow: ``whyslow.diagnose(step, batches=loader)``.

    ``step(batch)`` does one training step; without ``batches``, ``step()`` gets its own.
    ``batches`` is a DataLoader, or whatever else gives such batches again and again. ``seconds`` is
    the budget, 20 by default. Experiments on the largest part of the step come first.

    Returns a `Diagnosis`. Models, optimizers, random numbers, torch's switches and the variables of
    the step are as before, and files that it writes are not. TypeError for a step that cannot be
    called and batches that can be read only once, ValueError for a step on a card that is not
    torch's current one, or that trains in a generator function, which cannot be put back; what the
    first step raises comes through, and so does an interrupt, which says where a step or a loader
    hangs.
    """
    if not callable(step):
        raise TypeError(f"step={step!r} cannot be called: pass a function that does one step")
    if hasattr(batches, "__next__"):
        raise TypeError(
            f"batches={batches!r} can be read only once: pass the DataLoader itself, "
            "or list(...) of a few batches"
        )
    seconds = budget(pick(cpu=20.0, test=4.0) if seconds is None else seconds)
    return Session(step, batches, seconds).run()


class Session:
    """One diagnosis while it runs."""

    def __init__(self, step: Step, batches: Any = None, seconds: float = 1.0) -> None:
        self.subject = Subject(step, own_loader(batches))
        self.seconds, self.begin = seconds, time.perf_counter()
        self.others = Others()
        self.report = Report(Tally())
        self.found: list[Finding] = []
        # What was looked for, and why it could not be measured, or "".
        self.checked: dict[str, str] = {}
        self.notes: list[str] = []
        self.phases: dict[str, float] = {}
        # The share of waiting for batches that is no part of the step itself.
        self.waiting = 0.0
        # Whether any experiment was made.
        self.tried = False

    @property
    def left(self) -> float:
        """Seconds of the budget that are left."""
        return self.begin + self.seconds - time.perf_counter()

    def run(self) -> Diagnosis:
        """Everything, in turn; all is put back, whatever is raised."""
        call, loader = self.subject.call, self.subject.loader
        try:
            # With-statements, and no ExitStack: of that, an interrupt may leave a part undone.
            with (
                measuring(None),
                giving_back(partial(end_workers, loader)),
                restoring(call, also=generators_of(loader)) as self.restoration,
            ):
                self._look()
                self._count()
                self._stream()
                self._experiments()
        except Exception as error:
            hint = "" if loader is not None else "; a step of a batch needs batches=loader"
            name = getattr(call, "__name__", type(call).__name__)
            error.add_note(f"(while diagnosing {name!r}{hint * isinstance(error, TypeError)})")
            raise
        if busy := self.others.in_the_way(cores()):
            self.notes.append(busy)
        return Diagnosis(
            ranked(self.found),
            self.step_seconds,
            self.seconds - self.left,
            self.phases,
            (*self.notes, *self.restoration.notes),
            {name: why for name, why in self.checked.items() if why},
            tuple(name for name, why in self.checked.items() if not why),
        )

    def _look(self) -> None:
        """The first batches and steps: what is used, and how long it takes."""
        subject, before = self.subject, experiments.compilations()
        with Watch(show=False) as watch:
            subject.keep()
            probe = mapped(torch.clone, subject.batches[:1])
            versions = [each._version for each in tensors_of(probe)]
            subject.observe(probe, self.restoration.keep)
            if versions != [each._version for each in tensors_of(probe)]:
                subject.copied = True
                self.notes.append("the step writes into its batches; it was given copies")
            if subject.step_seconds < self.seconds / 2 or experiments.compilations() > before:
                # The first one has no gradients to begin with, and compiles.
                subject.observe(subject.batches, self.restoration.keep)
        self.report = watch.report

    def _count(self) -> None:
        """Memory, in a few steps more."""
        subject = self.subject
        if subject.step_seconds > COUNTED * self.seconds:
            why = self._too_slow(2 * MEMORY_STEPS)
            self.checked |= {remedies.GROWTH: why, remedies.BATCH: why}
            return
        with self._may_fail("memory of a step"):
            subject.peak, stays, share = memory_of(subject.serve(), subject.seen.device)
            self.checked[remedies.GROWTH] = ""
            how = f"by counting: {format_bytes(stays)} stay alive after each step"
            self.found.append(found(remedies.GROWTH, (share, (share, share)), how, of="memory"))

    def _too_slow(self, steps: int, more: float = 0.0) -> str:
        """Why so many steps, and ``more`` seconds, were not taken."""
        one, spent = self.subject.step_seconds, self.seconds - self.left
        wanted = math.ceil(max(1.5 * self.seconds, spent + more + steps * one))
        return f"a step takes {format_seconds(one)}, it needs more time: try seconds={wanted}"

    def _stream(self) -> None:
        """Steps on batches as they come: what is waited for, and which lines run meanwhile."""
        before = experiments.compilations()
        with preserve_state(*self.restoration.items):
            streamed = self._streamed()
            times = experiments.compilations() - before
            self.found.append(self._waits(streamed))
        self.step_seconds = self.subject.step_seconds / (1 - self.waiting)
        self.checked[remedies.RECOMPILED] = ""
        if times >= COMPILATIONS:
            how = f"by its lines: {times} compilations in warm steps"
            self.found.append(self._by_lines(remedies.RECOMPILED, (COMPILING,), how))

    def _streamed(self) -> Stream:
        """Of slow steps, the time of the first batches is enough."""
        subject = self.subject
        workers = getattr(subject.loader, "num_workers", 0)
        # The first batches of workers are those that they took to start.
        load = 0.0 if workers else max(subject.loads)
        steps = LEAST_STEPS + ahead(subject.loader)
        if steps * (subject.step_seconds + load) > 2 * STREAMING * self.seconds:
            if not workers:
                return Stream(subject.loads, [subject.step_seconds] * len(subject.loads))
            self.checked[remedies.WAITS] = self._too_slow(2 * steps)
            return Stream()
        with Watch(show=False) as watch:
            streamed = stream(subject.train, subject.loader, STREAMING * self.seconds)
        self.report = watch.report
        if streamed.works:
            subject.step_seconds = sum(streamed.works) / len(streamed.works)
        return streamed

    def _waits(self, streamed: Stream) -> Finding:
        """What waiting for data costs: by the clock, or by the lines of a step's own loader."""
        subject, self.phases = self.subject, dict(self.report.causes)
        self.checked.setdefault(remedies.WAITS, "")
        if subject.loader is not None and streamed.wholes:
            self.waiting, _ = share_of(streamed.waits, streamed.wholes)
            rest = (1 - self.waiting) / max(1 - self.phases.pop(LOADING, 0.0), 1e-9)
            others = {cause: rest * share for cause, share in self.phases.items()}
            self.phases = {LOADING: self.waiting} | others
            waits = loading.finding(subject.train, subject.loader, streamed, self._may_fail)
        else:
            loads = self.report.share(lambda stack: cause_of(stack) == LOADING)
            how = "by its lines: a loader of the step's own"
            waits = found(remedies.WAITS, loads, how, loader=remedies.loader())
        return replace(waits, where=self.report.where((LOADING,)))

    def _placed(self, finding: Finding, part: tuple[str, ...]) -> Finding:
        """With the line that takes most of the part, and as a share of all of the step."""
        scale, (low, high) = 1 - self.waiting, finding.interval
        share, interval = scale * finding.share, (scale * low, scale * high)
        return replace(finding, share=share, interval=interval, where=self.report.where(part))

    def _by_lines(self, name: str, part: tuple[str, ...], how: str) -> Finding:
        """What these causes take; of an update, in the reader's own lines, and not in torch's."""

        def is_part(stack: Stack) -> bool:
            cause = cause_of(stack)
            return cause in part and (cause != UPDATE or bool(own(stack[-1:])))

        share = self.report.share(is_part, without=LOADING)
        return self._placed(found(name, share, how, kind="AdamW"), part)

    def _own_work(self) -> Iterator[Finding]:
        """Work in the reader's own lines: no experiment is for it. Validation is none of it."""
        seen = self.subject.seen
        if not seen.roots or seen.profiled or seen.unused:
            return
        kinds = {remedies.BESIDE: (OWN, LOGGING), remedies.LOOP: (UPDATE,)}
        if any(map(experiments.is_torchs, seen.optimizers)):
            kinds = {remedies.BESIDE: (OWN, LOGGING, UPDATE)}
        how = "by the lines that ran outside of modules, loss, backward pass and optimizers"
        for name, part in kinds.items():
            self.checked.setdefault(name, "")
            finding = self._by_lines(name, part, how)
            if finding.share >= LITTLE:
                yield finding

    def _experiments(self) -> None:
        """In the order of their shares, each with its part of what is left of the time."""
        explained = 0.0
        every = self._every_experiment(experiments.EXPERIMENTS)
        for number, experiment in enumerate(every):
            explained = max(explained, self._experiment(experiment, len(every) - number))
        self.found += [each for each in self._own_work() if explained < each.share / 2]
        if (share := self.phases.get(VALIDATION, 0.0)) > MUCH:
            where = self.report.where((VALIDATION,))
            less = "less often, or on a part, may do"
            self.notes.append(f"validation is {share:.0%} of the step, {where}: {less}")
        # A larger batch changes what is learned.
        if not any(each.of == "time" for each in ranked(self.found)):
            for experiment in self._every_experiment((experiments.larger_batch,)):
                self._experiment(experiment, 1)

    def _every_experiment(self, checks: Iterable[experiments.Check]) -> list[Experiment]:
        """All that apply to the step, the largest share first. To make one may take memory."""
        every: list[Experiment] = []
        for check in checks:
            with self._may_fail(f"{check.__name__}, by experiment"):
                every += check(self.subject)
        every.sort(key=lambda each: -each.share(self.phases))
        return every

    def _experiment(self, experiment: Experiment, rest: int) -> float:
        """Run one of the ``rest``: the share of the step that it saves, or 0."""
        # The largest share may take a little more.
        left = self.left + (BEYOND - 1) * self.seconds * (not self.tried) - experiment.compiles
        steps = left / (self.subject.step_seconds * max(1, experiment.samples))
        # A single pair is only for the largest share.
        if steps < (STEPS if self.tried else STEPS - 2):
            self.checked[experiment.name] = self._too_slow(rest * STEPS, experiment.compiles)
            return 0.0
        # Less than its part, since to warm up takes time, too; but not for the largest share.
        longest = LONGEST * self.seconds
        seconds = min(longest, self.left / (rest + 0.5)) if self.tried else longest
        self.tried = True
        with preserve_state(*self.restoration.items), self._may_fail(experiment.name):
            room = seconds / self.subject.step_seconds
            few = max(1 + (steps >= STEPS), int(room - 1) // 2) if room < MANY else 0
            result = experiment.run(self.subject.serve(), seconds, few)
            # Steps may differ, as where an optimizer calls its closure as often as it needs to.
            usual = result.baseline.median
            self.subject.step_seconds = max(self.subject.step_seconds, usual)
            self.checked.setdefault(experiment.name, "")
            if experiment.cores and (busy := self.others.in_the_way(experiment.cores)):
                self.checked[experiment.name] = busy
            elif experiment.worth_naming(result):
                finding = self._placed(experiment.finding(result), experiment.part)
                self.found.append(finding)
                return finding.share
            elif result.pairs == 1:
                gain = f"{result.speedup:.2f}x"
                self.notes.append(f"{experiment.name}: only tried in one pair, {gain}")
        return 0.0

    @contextmanager
    def _may_fail(self, name: str) -> Iterator[None]:
        """What fails is told, and ends only itself."""
        try:
            yield
        except Exception as error:
            # Whatever it is: the program itself ran without this.
            text = str(error).splitlines() or [""]
            self.checked[name] = f"{type(error).__name__}: {text[0][:120]}"
            if is_out_of_memory(error):
                release_memory()
