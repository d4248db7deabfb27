"""Where the time of a step goes, by the clock: data, forward, backward, clipping, update, the rest.

On an accelerator each phase ends with a wait for the device, so that its work counts where it was
asked for; the step takes longer that way, and only shares are used.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from labkit.device import synchronize
from whyslow.events import (
    BACKWARD,
    DATA,
    FORWARD,
    IN_LOADER,
    UPDATE,
    ZEROING,
    Listener,
    listening,
)
from whyslow.streams import Stream

# What lies between them. Operators of zeroing are no update, and its time is part of one.
BEFORE, AFTER_BACKWARD, REST = "before", "after backward", "rest"
PHASES = (DATA, BEFORE, FORWARD, BACKWARD, AFTER_BACKWARD, UPDATE, REST)
# What an experiment works on, with the phases that it can shorten.
MODEL, HOST, ALL = "model", "host", "all"
PARTS = {
    DATA: (DATA,),
    MODEL: (FORWARD, BACKWARD),
    UPDATE: (UPDATE, AFTER_BACKWARD),
    # Where values are read and batches copied.
    HOST: (BEFORE, REST),
}


@dataclass(frozen=True)
class Source:
    """What a loader reads, in which order, and how it makes batches of it."""

    dataset: Any = None
    batches: Any = None
    collate: Any = None
    workers: int = 0

    @classmethod
    def of(cls, loader: Any) -> Source:
        """Of a DataLoader, or of an iterator of one; of another kind nothing is known."""
        names = ("dataset", "batch_sampler", "collate_fn", "num_workers")
        if hasattr(loader, "_index_sampler") and not hasattr(loader, "batch_sampler"):
            names = ("_dataset", "_index_sampler", "_collate_fn", "_num_workers")
        dataset, batches, collate, workers = (getattr(loader, name, None) for name in names)
        return cls(dataset, batches, collate, workers or 0)


class Phases(Listener):
    """Seconds of each phase; ``steps`` has one entry a step, between `begin` and `end`.

    What is between two modules belongs to the forward pass. A closure that an optimizer calls has a
    forward and a backward pass within the update.
    """

    def __init__(self) -> None:
        self.phase = BEFORE
        self.steps: list[dict[str, float]] = []
        self._updates = 0
        # Where the step was when it asked for a batch, or zeroed its gradients.
        self._was = BEFORE
        self._now: dict[str, float] = defaultdict(float)
        self._since = 0.0
        self._asked = Source()
        # Seconds of waiting, by the dataset: a loader may be made anew for each epoch.
        self._waits: dict[int, float] = defaultdict(float)
        self._sources: dict[int, Source] = {}

    def begins(self, what: str, item: Any, values: Any) -> None:
        if what == IN_LOADER:
            return
        if what in (ZEROING, DATA):
            self._was = self.phase
        elif what == BACKWARD and self.phase == BEFORE:
            # Of a model without modules.
            self.phase = FORWARD
        elif what == UPDATE:
            self._updates += 1
            if self.phase == REST:
                # From one optimizer to the next.
                self.phase = UPDATE
        self._enter(what)
        if what == DATA:
            self._asked = Source.of(item)

    def ends(self, what: str, item: Any, values: Any) -> None:
        if what == BACKWARD:
            self._enter(UPDATE if self._updates else AFTER_BACKWARD)
        elif what == UPDATE:
            self._updates = max(0, self._updates - 1)
            self._enter(REST)
        elif what in (ZEROING, DATA):
            self._enter(self._was)

    def _enter(self, phase: str) -> None:
        synchronize()
        seconds = time.perf_counter() - self._since
        self._now[UPDATE if self.phase == ZEROING else self.phase] += seconds
        if self.phase == DATA:
            key = id(self._asked.dataset)
            self._waits[key] += seconds
            self._sources[key] = self._asked
        self.phase = phase
        self._since = time.perf_counter()

    def begin(self) -> None:
        """A step begins."""
        synchronize()
        self.phase, self._updates, self._now = BEFORE, 0, defaultdict(float)
        self._since = time.perf_counter()

    def end(self) -> None:
        """It is done."""
        self._enter(REST)
        self.steps.append(dict(self._now))

    def slowest_loader(self) -> Source:
        """What the loader reads that was waited for longest."""
        if not self._waits:
            return Source()
        return self._sources[max(self._waits, key=lambda key: self._waits[key])]

    def stream(self) -> Stream:
        """The same steps by what they wait for batches of their own."""
        waits = [step.get(DATA, 0.0) for step in self.steps]
        works = [whole - wait for whole, wait in zip(self.wholes, waits, strict=True)]
        return Stream(waits, works)

    @property
    def wholes(self) -> list[float]:
        """Seconds of each step."""
        return [sum(step.values()) for step in self.steps]

    def shares(self) -> dict[str, float]:
        """The share of each phase in the time of all steps, in their order."""
        whole = sum(self.wholes) or 1.0
        sums = {name: sum(step.get(name, 0.0) for step in self.steps) for name in PHASES}
        return {name: seconds / whole for name, seconds in sums.items() if seconds}


def timed(
    step: Callable[[], object],
    seconds: float,
    least: int = 6,
    most: float = math.inf,
    around: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Phases:
    """The phases of steps that are run for ``seconds``, and ``least`` times at least, but not
    for more than ``most`` seconds.

    Each runs in the context of ``around``, which is no part of its time.
    """
    phases = Phases()
    begin = time.perf_counter()
    with listening(phases):
        while True:
            with around():
                phases.begin()
                step()
                phases.end()
            spent = time.perf_counter() - begin
            if spent >= most or (spent >= seconds and len(phases.steps) >= least):
                return phases


def share_of_part(part: str, shares: dict[str, float]) -> float:
    """The share of the time that an experiment on ``part`` works on.

    One on all of the step competes with the largest part: it may be the cause of that.
    """
    sums = {name: sum(shares.get(each, 0.0) for each in PARTS[name]) for name in PARTS}
    return max(sums.values()) if part == ALL else sums[part]
