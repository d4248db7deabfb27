"""The whole of a diagnosis: look at one step, time its parts, then experiment while time lasts.

The experiments that work on the largest part of a step come first, and each gets its part of the
time that is left. Where a step is so slow that few fit into the budget, the first ones get a few
steps each, and what was not tried says so. All that the step reaches is put back at the end, and
models and optimizers after each experiment too, so that none trains on what another left.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from labkit.busy import Others, cores
from labkit.comparing import measuring
from labkit.device import is_out_of_memory, release_memory
from labkit.progress import progress
from labkit.restore import Restoration, preserve_state, restoring
from labkit.restore.reach import generators_of
from labkit.results import Comparison
from labkit.text import format_seconds
from whyslow import memory
from whyslow.changes import Change, both
from whyslow.checks import EXPERIMENTS, beside, compiled, loading, settings, update
from whyslow.experiment import STEPS, Experiment
from whyslow.findings import LEAST_SHARE, Diagnosis, Finding, ranked
from whyslow.limit import limit
from whyslow.observe import count_operators, observe, tensors_of
from whyslow.own_lines import OwnLines
from whyslow.phases import DATA, REST, UPDATE, Phases, Source, share_of_part, timed
from whyslow.remedies import BATCH, BY_SAMPLE, GROWTH, LOOP, RECOMPILED, WAITS
from whyslow.streams import LEAST_STEPS, Stream, end_started, stream, without_iterator
from whyslow.subject import Subject, copy_of

# Parts of the budget: counting memory, streaming the loader, and cutting the step.
COUNTING = 0.1
STREAMING = 0.2
CUTTING = 0.08
# The longest that one experiment is repeated.
LONGEST = 0.15
# A step that takes more of the budget is not streamed or cut, which takes twelve of them and more;
# nor, beyond the second part, are its operators and its memory counted, which takes five.
SLOW, COUNTED = 1 / 80, 1 / 20
# The part of the budget in which a step that seems slow is looked at again.
LOOKING = 0.1
# A slow step may take the diagnosis so far beyond its budget, for the sake of the first experiment.
BEYOND = 1.5
# Steps that an experiment in blocks takes at least.
MANY = 12


class Session:
    """One diagnosis while it runs."""

    def __init__(
        self,
        step: Callable[..., object],
        batches: Any,
        seconds: float,
        patience: float,
        state: tuple[Any, ...],
        first_part: str = "",
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
        self.state, self.first_part = state, first_part
        self.restoration: Restoration
        # The share of waiting for batches that is no part of the step itself.
        self.waiting = 0.0
        # The share of what was found that costs the same in a step of any batch.
        self.per_step = 0.0
        # By the clock alone: said where no experiment explains it.
        self.beside: list[Finding] = []
        self.lines = OwnLines()
        # Whether any experiment was made; else what the report says first.
        self.tried = False
        self.untried = ""

    @property
    def left(self) -> float:
        """Seconds of the budget that are left."""
        return self.begin + self.seconds - time.perf_counter()

    @property
    def slow(self) -> bool:
        """Whether few steps fit into the budget."""
        return self.subject.step_seconds > SLOW * self.seconds

    def run(self) -> Diagnosis:
        """Everything, in turn; all is put back, whatever is raised."""
        loader = self.subject.loader
        given = (*self.state, *generators_of(loader))
        advice = ", or list in model= and optimizer= what it trains"
        # With-statements, and no ExitStack: of that, an interrupt may leave a part undone.
        with (
            measuring(None),
            without_iterator(loader),
            _with_note(self.subject.call),
            restoring(self.subject.call, also=given, advice=advice) as self.restoration,
            self._bar(),
        ):
            self._look()
            # A profiler would watch what counts as well, which takes many times as long.
            with settings.not_profiled() if self.subject.seen.profiled else nullcontext():
                self._count()
            self._cut()
            self._experiments()
        self._tell()
        made = dict.fromkeys(self.looked_for)
        return Diagnosis(
            ranked(self.found),
            self.step_seconds,
            time.perf_counter() - self.begin,
            self.phases,
            tuple(self.notes),
            self.unmeasured,
            tuple(name for name in made if name not in self.unmeasured),
            self.untried,
        )

    @contextmanager
    def _bar(self) -> Iterator[None]:
        with progress(total=self.seconds, unit="s", desc="diagnosing", delay=0) as bar:
            self.advance = lambda: bar.update(min(bar.total, self.seconds - self.left) - bar.n)
            yield

    def _look(self) -> None:
        """The first steps: what is used, and how long it takes."""
        subject = self.subject
        if subject.takes_batches:
            with limit(self.patience, "loading the first batches"):
                subject.keep(subject.loader)
            end_started(subject.loader)
        probe = [copy_of(batch) for batch in subject.batches[:1]]
        versions = [each._version for each in tensors_of(probe)]
        before = compiled.codes()
        self._observe(subject.serve(probe), "the first step")
        if versions != [each._version for each in tensors_of(probe)]:
            subject.copied = True
            self.notes.append("the step writes into its batches; it was given copies")
        if subject.step_seconds < self.seconds / 2 or compiled.codes() != before:
            # The first one has no gradients to begin with, and compiles: the second tells more.
            self._observe(subject.serve(), "the second step")
        looks = [subject.step_seconds]
        while self.slow and sum(looks) + subject.step_seconds < LOOKING * self.seconds:
            # Another program may have taken the time.
            self._observe(subject.serve(), "a step")
            looks.append(subject.step_seconds)
            subject.step_seconds = sum(looks) / len(looks)
        self.step_seconds = subject.step_seconds
        self.advance()

    def _observe(self, step: Callable[[], object], name: str) -> None:
        with limit(self.patience, name), self.lines.seen():
            self.subject.seen = observe(step, self.restoration.keep)
        [self.subject.step_seconds] = self.subject.seen.wholes

    def _count(self) -> None:
        """Operators and memory, in a few steps more."""
        subject = self.subject
        if subject.step_seconds > COUNTED * self.seconds:
            self.unmeasured |= dict.fromkeys((GROWTH, BATCH), self._too_slow(memory.STEPS))
            return
        step = subject.serve()
        with self._may_fail("operators, one by one"):
            count_operators(step, subject.seen)
        with self._may_fail("memory of a step"):
            use = memory.use_of(step, subject.seen.device, COUNTING * self.seconds)
            subject.peak = use.peak
            self.looked_for.append(GROWTH)
            self.found += memory.findings(use)
        self.advance()

    def _too_slow(self, steps: int) -> str:
        wanted = math.ceil(2 * steps * self.subject.step_seconds + self.seconds - self.left)
        return f"a step takes {format_seconds(self.subject.step_seconds)}; try seconds={wanted}"

    def _cut(self) -> None:
        """Streaming, and the phases of a step: by the clock."""
        subject = self.subject
        with compiled.watched() as compilations, self._kept():
            streamed, source = self._streamed(), Source.of(subject.loader)
            compiling = list(compilations)
            self.advance()
            phases = self._timed()
            if not subject.takes_batches:
                # Of a step with loaders of its own: the slowest of them is to blame.
                streamed, source = phases.stream(), phases.slowest_loader()
                compiling = list(compilations)
            self.looked_for.append(WAITS)
            self.found += loading.findings(subject, streamed, source, self._may_fail)
        if streamed.wholes:
            self.step_seconds = sum(streamed.wholes) / len(streamed.wholes)
        self._from_phases(phases, streamed)
        self.looked_for.append(RECOMPILED)
        self.found += compiled.again(compiling, streamed.wholes)
        self.advance()

    def _timed(self) -> Phases:
        """The phases of steps on kept batches; of slow ones, those of the last that was seen."""
        subject = self.subject
        if self.slow:
            return subject.seen
        around = partial(limit, self.patience, "a step")
        seconds = CUTTING * self.seconds
        with self.lines.seen():
            phases = timed(subject.serve(), seconds, most=2 * seconds, around=around)
        subject.step_seconds = sum(phases.wholes) / len(phases.steps)
        return phases

    def _streamed(self) -> Stream:
        """Steps on batches as they come; of slow ones, the time of the first batches is enough."""
        subject = self.subject
        if not subject.takes_batches:
            return Stream()
        workers = getattr(subject.loader, "num_workers", 0)
        one = subject.step_seconds
        if not workers:
            # Else the first batches are those that the workers took to start.
            one += max(subject.loads)
        if 7 * one > 2 * STREAMING * self.seconds:
            if workers:
                self.unmeasured[WAITS] = self._too_slow(LEAST_STEPS)
                return Stream()
            return Stream(subject.loads, [subject.step_seconds] * len(subject.loads))
        with limit(self.patience, "reading from the loader"):
            return stream(subject.train, subject.loader, STREAMING * self.seconds)

    def _from_phases(self, phases: Phases, streamed: Stream) -> None:
        subject = self.subject
        self.phases = phases.shares()
        if subject.takes_batches and streamed.wholes:
            # Of the time with waiting for data, as everything that is said.
            self.waiting = sum(streamed.waits) / sum(streamed.wholes)
            shares = {name: (1 - self.waiting) * share for name, share in self.phases.items()}
            self.phases = {DATA: self.waiting} | shares
        # torch's own functions are timed on tensors like these: of a kind that they may not take.
        with self._may_fail(LOOP):
            self.found += self._by_clock(update.by_hand(subject, phases), UPDATE)
        self.looked_for += beside.looked_for(subject)
        self.beside += self._by_clock(beside.findings(subject, phases), REST)

    def _by_clock(self, findings: Iterable[Finding], part: str) -> Iterator[Finding]:
        for finding in findings:
            if finding.name != BY_SAMPLE and finding.interval[0] >= LEAST_SHARE:
                self.per_step += finding.share
            yield self._placed(finding, part)

    def _placed(self, finding: Finding, part: str) -> Finding:
        """With the line that takes most of the part, and as a share of all of the step."""
        return _scaled(replace(finding, where=self.lines.where(part)), 1 - self.waiting)

    def _experiments(self) -> None:
        """In the order of their shares, each with its part of what is left of the time.

        What changes the learning comes last, with all else mended.
        """
        every = self._every_experiment()
        saved: dict[str, tuple[float, Experiment]] = {}
        for number, experiment in enumerate(every):
            around: Change = nullcontext
            remains = 1.0
            if experiment.last:
                mended = [each for _, each in saved.values() if each.step is None]
                around = both(*(each.change for each in mended if not each.compiles))
                remains = math.prod(1 - saved[each.name][0] for each in mended)
            share = self._experiment(experiment, len(every) - number, around, remains)
            # Of several by one name, the one that saves most.
            if share > saved.get(experiment.name, (0.0,))[0]:
                saved[experiment.name] = share, experiment
        shares = [share for share, each in saved.values() if not each.last]
        explained = max(shares, default=0.0)
        self.found += [each for each in self.beside if explained < each.share / 2]

    def _every_experiment(self) -> list[Experiment]:
        """All that apply to the step: those on the part that was asked for, then the largest share
        first. To make one may take memory.
        """
        every: list[Experiment] = []
        for check in EXPERIMENTS:
            name = check.__module__.rpartition(".")[2]
            with self._may_fail(f"{name}, by experiment"):
                every += check(self.subject)
        every.sort(key=lambda each: -share_of_part(each.part, self.phases))
        return sorted(every, key=lambda each: (each.last, each.part != self.first_part))

    def _experiment(
        self, experiment: Experiment, rest: int, around: Change, remains: float
    ) -> float:
        """Run one of the ``rest``; the share of the step that it saves, 0 where that is not sure.

        ``remains`` is the part of the step that is left in ``around``.
        """
        pairs = self._pairs(experiment)
        if not pairs:
            self._not_tried(experiment, rest)
            return 0.0
        first, self.tried = not self.tried, True
        step = self.subject.serve()
        # Less than its part, since to warm up takes time, too; but not for the largest share.
        longest = LONGEST * self.seconds
        seconds = longest if first else min(longest, self.left / (rest + 0.5))
        with self._kept(), self._may_fail(experiment.name), experiment.whole():
            others = Others()
            if MANY * self.subject.step_seconds > seconds:
                room = int(seconds / self.subject.step_seconds - 1) // 2
                result = experiment.few(step, max(pairs, min(MANY, room)), around)
            else:
                result = experiment.run(step, seconds, around)
            # Steps may differ, as where an optimizer calls its closure as often as it needs to.
            usual = result.baseline.median
            self.subject.step_seconds = max(self.subject.step_seconds, usual)
            self.looked_for.append(experiment.name)
            self.advance()
            busy = others.in_the_way(experiment.cores) if experiment.cores else None
            if busy is not None:
                self.unmeasured[experiment.name] = busy
            elif experiment.worth_naming(result):
                return self._name(experiment, result, remains)
            elif result.pairs == 1:
                self.notes.append(
                    f"{experiment.name}: only tried in one pair, {result.speedup:.2f}x"
                )
        return 0.0

    def _pairs(self, experiment: Experiment) -> int:
        """How many pairs of steps there is time for: 2 and more, 1 for the first, or 0."""
        # The largest share may take a little more.
        left = self.left + (BEYOND - 1) * self.seconds * (not self.tried) - experiment.compiles
        step = self.subject.step_seconds * max(1, experiment.samples)
        if STEPS * step <= left:
            return 2
        return int(not self.tried and (STEPS - 2) * step <= left)

    def _not_tried(self, experiment: Experiment, rest: int) -> None:
        spent = self.seconds - self.left
        needed = spent + experiment.compiles + rest * STEPS * self.subject.step_seconds
        why = f"it needs more time: try seconds={math.ceil(max(1.5 * self.seconds, needed))}"
        self.unmeasured[experiment.name] = why
        if not (self.tried or self.untried or experiment.compiles):
            self.untried = f"Not even the first experiment fitted ({experiment.name}; {why})"

    def _name(self, experiment: Experiment, result: Comparison, remains: float) -> float:
        finding = _scaled(experiment.finding(result), remains)
        if experiment.last:
            # A larger batch would also spread what has a remedy of its own.
            finding = _less(finding, self.per_step * (1 - 1 / experiment.samples))
        self.found.append(self._placed(finding, experiment.part))
        return finding.share

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """Models and optimizers as they were before."""
        with preserve_state(*self.restoration.items):
            yield

    @contextmanager
    def _may_fail(self, name: str) -> Iterator[None]:
        """What fails, or takes too long, is told, and ends only itself."""
        try:
            with limit(self.patience, name):
                yield
        except Exception as error:
            # Whatever it is: the program itself ran without this.
            text = str(error).splitlines() or [""]
            self.unmeasured[name] = f"{type(error).__name__}: {text[0][:120]}"
            if is_out_of_memory(error):
                release_memory()

    def _tell(self) -> None:
        busy = self.others.in_the_way(cores())
        if busy is not None:
            self.notes.append(busy)
        if self.subject.seen.written:
            names = ", ".join(dict.fromkeys(self.subject.seen.written))
            self.notes.append(f"each step writes a file, also while it was diagnosed: {names}")
        self.notes += self.restoration.notes


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
