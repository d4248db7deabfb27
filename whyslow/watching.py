"""A with-block around a loop of one's own: where its time goes, by the clock, as it runs.

Nothing is changed in the loop, so nothing is found by experiment: `whyslow.diagnose` on a step says
more. A step is one update of an optimizer: it ends where, after it, a batch is asked for or a pass
begins. Where no optimizer is called, it is one batch of a DataLoader with a backward pass.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any

import torch
from torch import nn

from labkit.restore import preserve_flags, preserve_rng, preserve_state
from labkit.restore.reach import generators_of
from labkit.text import format_seconds
from whyslow.checks import EXPERIMENTS, recompiles, update
from whyslow.checks import loading as waits
from whyslow.events import listening
from whyslow.failing import may_fail
from whyslow.findings import LEAST_SHARE, Diagnosis, Finding, ranked
from whyslow.observe import Seen
from whyslow.phases import Phases

# The first steps allocate and compile: they are not counted, where there are more.
WARM_UP = 2
# A step that takes so many times the median had other work in it.
LONG = 10
# What is looked for, and what only `whyslow.diagnose` looks for.
WAITS = "waits for batches of a DataLoader"
COMPILING = "compiling again"
UNSEEN = ("loops over samples", "memory that grows", *EXPERIMENTS.values())


class Watch(Phases):
    """``with whyslow.watch() as found:`` around a loop; ``found.diagnosis`` afterwards.

    A loop that fails, or is interrupted, prints to stderr what was found of it. At an accelerator
    every phase is waited for, which makes the loop slower while it is watched. RuntimeError when
    ``diagnosis`` is asked for inside the block; ValueError from the first step on a card that is
    not torch's current one, whose work would not be waited for.
    """

    def __init__(self) -> None:
        super().__init__()
        self._open: Any = None
        self._seen = Seen()
        self._compilations = recompiles.Compilations()
        # How many have compiled during the warm-up.
        self._first_compiled = 0
        # Since the last cut: whether a backward pass, and whether the leader's update was seen.
        self._busy = self._updated = False
        # The optimizer whose updates are steps, and others that were called after it.
        self._leader: torch.optim.Optimizer | None = None
        self._others: list[torch.optim.Optimizer] = []
        # Of whole steps.
        self._backwards = 0
        self._seconds = 0.0
        self._diagnosis: Diagnosis | None = None

    def __enter__(self) -> Watch:
        self._seconds = time.perf_counter()
        self.cut("begin")
        # The last of all: nothing is left open when an interrupt comes before the block.
        self._open = self._listening()
        self._open.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._open.__exit__(None, None, None)
        finally:
            # Where an interrupt came before its end, nobody else holds it: it ends here.
            self._open = None
        if error is None and self._is_step():
            self.cut("end")
        self._seconds = time.perf_counter() - self._seconds
        if error is None:
            self._diagnosis = self._kept()
        else:
            self._report(error)

    def _kept(self, failed: str = "") -> Diagnosis:
        """What is found; torch's own no_grad, interrupted at its end, leaves gradients off."""
        with preserve_flags(), preserve_rng():
            return self._judge(failed)

    def _report(self, error: BaseException) -> None:
        """Nobody may come to ask: it is printed. What fails here must not hide the error."""
        try:
            self._diagnosis = self._kept(type(error).__name__)
            print(f"whyslow.watch: {self}", file=sys.stderr)
        except Exception as failure:
            error.add_note(f"whyslow.watch could not say what it found: {failure!r}")

    @contextmanager
    def _listening(self) -> Iterator[None]:
        with listening(self), recompiles.watched() as self._compilations:
            yield

    @property
    def diagnosis(self) -> Diagnosis:
        """What was found, once the block is left."""
        if self._diagnosis is None:
            raise RuntimeError("the block still runs: ask when it is done")
        return self._diagnosis

    def __str__(self) -> str:
        # One without findings is as good as any, and empty.
        return "the block still runs" if self._diagnosis is None else str(self._diagnosis)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.diagnosis._repr_html_()

    def cut(self, event: str) -> None:
        super().cut(event)
        if event == "end":
            self._backwards = self._seen.backwards
        if event == "end" and len(self.steps) <= WARM_UP:
            self._first_compiled = len(self._compilations.seconds)

    def forward_begins(self, root: nn.Module, inputs: tuple[Any, ...]) -> None:
        if self._updated:
            self._next_step()
        self._seen.forward_begins(root, inputs)
        super().forward_begins(root, inputs)

    def forward_ends(self, root: nn.Module, output: Any) -> None:
        super().forward_ends(root, output)
        self._seen.forward_ends(root, output)

    def backward_begins(self) -> None:
        if self._updated:
            # A model of functions alone: nothing told of its forward pass.
            self._next_step()
        super().backward_begins()
        self._seen.backwards += 1
        self._busy = True

    def update_begins(self, optimizer: torch.optim.Optimizer) -> None:
        super().update_begins(optimizer)
        self._seen.update_begins(optimizer)

    def update_ends(self, optimizer: torch.optim.Optimizer) -> None:
        super().update_ends(optimizer)
        if self._leads(optimizer):
            self._updated, self._others = True, []

    def _leads(self, optimizer: torch.optim.Optimizer) -> bool:
        """Of several optimizers the first, until another is called twice without it."""
        if self._leader is None:
            # Batches of its first step were taken for steps of a loop without an optimizer.
            self.forget(len(self.steps))
        if self._leader is None or any(optimizer is each for each in self._others):
            self._leader = optimizer
        self._others.append(optimizer)
        return optimizer is self._leader

    def loader_begins(self, loader: Any, anew: bool) -> None:
        if self._is_step():
            self._next_step()
        super().loader_begins(loader, anew)

    def _is_step(self) -> bool:
        """Whether what came since the last cut is a whole step."""
        by_hand = self._leader is None and self._busy and "data" in self._now
        return self._updated or by_hand

    def _next_step(self) -> None:
        self.cut("end")
        self.cut("begin")
        self._busy = self._updated = False

    def _judge(self, failed: str = "") -> Diagnosis:
        """What was found. Of a loop that ``failed``, by the name of its error, nothing is read."""
        counted = self._counted()
        if len(self.steps) > 3 * WARM_UP:
            self.forget(WARM_UP)
        counted += self._uneven()
        wholes = self.wholes
        unmeasured: dict[str, str] = {}
        found = self._find(unmeasured, failed) if wholes else []
        looked_for = [WAITS, COMPILING]
        if update.applies(self._seen) and update.BY_CLOCK not in unmeasured:
            looked_for.append(update.BY_CLOCK)
        mean = sum(wholes) / len(wholes) if wholes else 0.0
        return Diagnosis(
            ranked(found),
            mean,
            self._seconds,
            self.shares(),
            tuple(self._notes()),
            unmeasured,
            tuple(looked_for),
            UNSEEN,
            tuple(counted),
        )

    def _find(self, unmeasured: dict[str, str], failed: str) -> list[Finding]:
        found: list[Finding] = []
        failing = partial(may_fail, unmeasured=unmeasured)
        # A few batches are read to find the cause of waits: the next epoch is drawn as without.
        with preserve_state(*generators_of(self.slowest_loader()[0])):
            waiting = waits.inside(self, failing, reads=not failed)
        if waiting is not None:
            found.append(waiting)
            if failed:
                unmeasured[waits.CAUSE] = f"the loop ended with {failed}"
        # It allocates what a clipped model has: on a full card that fails.
        with failing(update.BY_CLOCK):
            found += update.by_clock(self._seen, self)
        seconds = self._compilations.seconds[self._first_compiled :]
        again = recompiles.finding(seconds, self.wholes)
        return found + ([again] if again else [])

    def _counted(self) -> list[str]:
        """What was taken for a step, and the time that is in none."""
        seen, wholes = self._seen.backwards, self.wholes
        if not wholes:
            return [f"{seen} backward passes were seen"] if seen else []
        each = ""
        if self._backwards > 1.05 * len(wholes):
            each = f", with {self._backwards / len(wholes):.1f} backward passes"
        notes = [f"a step is {self._what_a_step_is()}{each}; {len(wholes)} were seen"]
        outside = 1 - sum(wholes) / max(self._seconds, 1e-9)
        if outside >= LEAST_SHARE:
            notes.append(f"{outside:.0%} of the time is outside of these steps")
        return notes

    def _uneven(self) -> list[str]:
        """The time that is in few steps."""
        wholes = self.wholes
        if not wholes:
            return []
        usual = statistics.median(wholes)
        slow = [whole for whole in wholes if whole > LONG * usual]
        share = sum(slow) / sum(wholes)
        if share < LEAST_SHARE:
            return []
        return [
            f"{share:.0%} of their time is in {len(slow)} that took more than {LONG} times the "
            f"median ({format_seconds(usual)}), as with an evaluation between two steps"
        ]

    def _what_a_step_is(self) -> str:
        if self._leader is None:
            return "one batch of a DataLoader, since no optimizer's step() was called"
        name, count = type(self._leader).__name__, len(self._seen.optimizers)
        others = f", one of {count} optimizers" if count > 1 else ""
        return f"one update of {name}{others}"

    def _notes(self) -> list[str]:
        seen = self._seen
        notes = []
        if seen.anomaly:
            notes.append("anomaly mode is on; whyslow.diagnose(step) measures what it costs")
        if seen.profiled:
            notes.append("a profiler records; whyslow.diagnose(step) measures what it costs")
        if seen.unused:
            notes.append("forward passes in evaluation mode record a graph: use torch.no_grad()")
        return notes
