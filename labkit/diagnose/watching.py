"""A with-block around a loop of one's own: where its time goes, by the clock, as it runs.

Nothing is changed in the loop, so nothing is found by experiment: `labkit.diagnose` on a step says
more. A step ends where the next batch is asked for, or where a forward pass follows an update.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any

import torch
from torch import nn

from labkit.diagnose.checks import loading as waits
from labkit.diagnose.checks import recompiles, update
from labkit.diagnose.events import listening
from labkit.diagnose.failing import may_fail
from labkit.diagnose.findings import Diagnosis, Finding, ranked
from labkit.diagnose.observe import Seen
from labkit.diagnose.phases import Phases, loaders_told
from labkit.preserve import preserve_flags, preserve_rng, preserve_state
from labkit.reach import generators_of

# The first steps allocate and compile: they are not counted, where there are more.
WARM_UP = 2


class Watch(Phases):
    """``with labkit.diagnose.watch() as found:`` around a loop; ``found.diagnosis`` afterwards.

    At an accelerator every phase is waited for, which makes the loop slower while it is watched.
    RuntimeError when ``diagnosis`` is asked for inside the block; ValueError from the first step on
    a card that is not torch's current one, whose work would not be waited for.
    """

    def __init__(self) -> None:
        super().__init__()
        self._open: Any = None
        self._seen = Seen()
        self._compilations = recompiles.Compilations()
        # How many have compiled during the warm-up.
        self._first_compiled = 0
        self._busy = False
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
        if self._busy:
            self.cut("end")
        self._seconds = time.perf_counter() - self._seconds
        if error is None:
            # torch's own no_grad, interrupted at its end, leaves gradients off.
            with preserve_flags(), preserve_rng():
                self._diagnosis = self._judge()

    @contextmanager
    def _listening(self) -> Iterator[None]:
        with listening(self), loaders_told(self), recompiles.watched() as self._compilations:
            yield

    @property
    def diagnosis(self) -> Diagnosis:
        """What was found, once the block is left."""
        if self._diagnosis is None:
            raise RuntimeError("the block still runs, or failed: ask when it is done")
        return self._diagnosis

    def __str__(self) -> str:
        # One without findings is as good as any, and empty.
        return "the block still runs" if self._diagnosis is None else str(self._diagnosis)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.diagnosis._repr_html_()

    def cut(self, event: str) -> None:
        super().cut(event)
        if event == "end" and len(self.steps) <= WARM_UP:
            self._first_compiled = len(self._compilations.seconds)

    def forward_begins(self, root: nn.Module, inputs: tuple[Any, ...]) -> None:
        if self._busy and self._last[0] in ("update end", "zero end"):
            self._next_step()
        self._seen.forward_begins(root, inputs)
        super().forward_begins(root, inputs)

    def forward_ends(self, root: nn.Module, output: Any) -> None:
        super().forward_ends(root, output)
        self._seen.forward_ends(root, output)

    def backward_begins(self) -> None:
        super().backward_begins()
        self._seen.backwards += 1
        self._busy = True

    def update_begins(self, optimizer: torch.optim.Optimizer) -> None:
        super().update_begins(optimizer)
        self._seen.update_begins(optimizer)

    def _next_step(self) -> None:
        self.cut("end")
        self.cut("begin")
        self._busy = False

    def loader_begins(self, loader: Any) -> None:
        if self._busy:
            self._next_step()
        super().loader_begins(loader)

    def _judge(self) -> Diagnosis:
        if len(self.steps) > 3 * WARM_UP:
            del self.steps[:WARM_UP]
        wholes = self.wholes
        found: list[Finding] = []
        unmeasured: dict[str, str] = {}
        failing = partial(may_fail, unmeasured=unmeasured)
        if wholes:
            # A few batches are read to find the cause of waits: the next epoch is drawn as without.
            with preserve_state(*generators_of(self.loader)):
                waiting = waits.inside(self, failing)
            found += [waiting] if waiting else []
            # It allocates what a clipped model has: on a full card that fails.
            with failing(update.BY_CLOCK):
                found += update.by_clock(self._seen, self)
            again = recompiles.finding(self._compilations.seconds[self._first_compiled :], wholes)
            found += [again] if again else []
        mean = sum(wholes) / len(wholes) if wholes else 0.0
        return Diagnosis(
            ranked(found), mean, self._seconds, self.shares(), tuple(self._notes()), unmeasured
        )

    def _notes(self) -> list[str]:
        seen = self._seen
        notes = []
        if seen.anomaly:
            notes.append("anomaly mode is on; labkit.diagnose(step) measures what it costs")
        if seen.profiled:
            notes.append("a profiler records; labkit.diagnose(step) measures what it costs")
        if seen.unused:
            notes.append("forward passes in evaluation mode record a graph: use torch.no_grad()")
        return notes
