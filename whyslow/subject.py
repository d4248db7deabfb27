"""The program under diagnosis: its step, its batches, and what was seen of both."""

from __future__ import annotations

import copy
import gc
import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader

from labkit.device import synchronize
from labkit.memory import StorageTracker
from labkit.restore.memory import bytes_of, free_bytes
from labkit.text import format_bytes
from whyslow import remedies
from whyslow.findings import Finding, found
from whyslow.observe import Seen, mapped, tensors_of

# Batches that are kept for experiments: so many, and so many bytes.
KEPT_BATCHES = 4
KEPT_BYTES = 2**28
# Of the free memory an experiment may take so much.
SAFE = 0.4


@dataclass
class Subject:
    """``call`` is the reader's function, ``loader`` what its batches come from (None: none do).

    ``batches`` are kept ones, which experiments serve again and again: as copies where the step
    writes into them; each came after so many seconds of ``loads``. ``step_seconds`` is how long a
    step works, ``peak`` its memory in bytes; None where it was not measured.
    """

    call: Callable[..., object]
    loader: Any = None
    batches: list[Any] = field(default_factory=list)
    seen: Seen = field(default_factory=Seen)
    peak: int | None = None
    copied: bool = False
    loads: list[float] = field(default_factory=list)
    step_seconds: float = math.nan

    @property
    def takes_batches(self) -> bool:
        """Whether the step is called with a batch."""
        return self.loader is not None

    def serve(self, batches: list[Any] | None = None) -> Callable[[], object]:
        """A step of no arguments, on kept batches in turn."""
        if not self.takes_batches:
            return self.call
        served = itertools.cycle(batches or self.batches)
        return lambda: self.train(next(served))

    def train(self, batch: Any) -> object:
        """One step on this batch, where it takes one."""
        if not self.takes_batches:
            return self.call()
        return self.call(mapped(torch.clone, batch) if self.copied else batch)

    def keep(self, source: Iterable[Any]) -> None:
        """Take the first batches of ``source``. ValueError where it has none."""
        size, asked = 0, time.perf_counter()
        for batch in one_pass(source):
            self.loads.append(time.perf_counter() - asked)
            self.batches.append(batch)
            size += sum(map(bytes_of, tensors_of(batch)))
            if len(self.batches) >= KEPT_BATCHES or size >= KEPT_BYTES:
                break
            asked = time.perf_counter()
        if not self.batches:
            raise ValueError(f"batches={source!r} is empty: a diagnosis needs at least one batch")

    def has_room(self, times: float) -> bool:
        """Whether a step of so many times the memory takes less than `SAFE` of what is free.

        What is unknown, of the step or of the device, means no.
        """
        free = free_bytes(self.seen.device)
        return free is not None and self.peak is not None and times * self.peak < SAFE * free


# Steps of which a wait is taken at least.
LEAST_STEPS = 6


@dataclass
class Stream:
    """Seconds of each step of a stream: waiting for its batch, and working on it.

    ``starts`` are the waits for the first batch of each pass over the loader.
    """

    waits: list[float] = field(default_factory=list)
    works: list[float] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)

    @property
    def wholes(self) -> list[float]:
        """Seconds of each step with its wait."""
        return [wait + work for wait, work in zip(self.waits, self.works, strict=True)]


def stream(step: Callable[[Any], object], loader: Any, seconds: float) -> Stream:
    """Run the loader for ``seconds``, and for `LEAST_STEPS` where they take no longer than twice
    that.

    What lies between two passes over the loader, such as workers that start, is waiting. Batches
    that were loaded before the first step was done say nothing of those after them.
    """
    found, skip = Stream(), ahead(loader)
    begin = asked = time.perf_counter()
    for number, (first, batch) in enumerate(_endless(loader)):
        began = time.perf_counter()
        if first:
            found.starts.append(began - asked)
        step(batch)
        synchronize()
        done = time.perf_counter()
        if number >= skip:
            found.waits.append(began - asked)
            found.works.append(done - began)
        enough = len(found.works) >= LEAST_STEPS or done - begin > 2 * seconds
        if found.works and enough and done - begin > seconds:
            break
        asked = time.perf_counter()
    return found


def _endless(loader: Any) -> Iterator[tuple[bool, Any]]:
    """Its batches again and again, as long as there are any, and whether each is the first of its
    pass; without a loader, no batches.
    """
    some = True
    while some:
        some = False
        for batch in (None,) if loader is None else one_pass(loader):
            yield not some, batch
            some = True


def one_pass(loader: Iterable[Any]) -> Iterator[Any]:
    """Its batches. Workers that were started for this pass alone end with it: else they do when the
    iterator is collected, at any time, and that may wait for them for seconds.
    """
    iterator: Any = iter(loader)
    try:
        yield from iterator
    finally:
        lives_on = iterator is getattr(loader, "_iterator", None)
        if hasattr(iterator, "_shutdown_workers") and not lives_on:
            iterator._shutdown_workers()


def ahead(loader: Any) -> int:
    """How many batches are there before the first step is done."""
    workers = getattr(loader, "num_workers", 0)
    if not workers:
        return int(loader is not None)
    return workers * (getattr(loader, "prefetch_factor", None) or 2) + 1


def own(loader: Any) -> Any:
    """The same loader with iterators and workers of its own: those in use are left alone."""
    if isinstance(loader, DataLoader):
        loader = copy.copy(loader)
        loader._iterator = None
    return loader


def end_workers(loader: Any) -> None:
    """End workers that outlive their iterator."""
    iterator: Any = getattr(loader, "_iterator", None)
    if iterator is not None:
        iterator._shutdown_workers()
        loader._iterator = None


# Steps of which the memory is taken: the first ones make gradients and state.
MEMORY_STEPS = 4


class Use(NamedTuple):
    """Bytes: the ``peak`` of a step, what it ``adds`` at most, and what ``stays`` after each."""

    peak: int
    adds: int
    stays: int


def use_of(step: Callable[[], object], device: str) -> Use:
    """The memory of `MEMORY_STEPS` steps; they are real ones."""
    kept: list[int] = []
    with StorageTracker(device) as tracker:
        for _ in range(MEMORY_STEPS):
            step()
            gc.collect()
            tracker.record()
            # Older tensors that a step uses for the first time, as another batch, are no growth.
            kept.append(tracker.current - tracker.existing)
    stays = (kept[-1] - kept[0]) / (MEMORY_STEPS - 1)
    # Where something stays, the peak is that of the last step: what the others left is not its own.
    adds = max(1, tracker.peak - tracker.existing - kept[-2])
    return Use(tracker.peak, adds, max(0, round(stays)))


def growth(use: Use) -> Iterator[Finding]:
    """What stays of each step, as a share of what a step makes."""
    if use.stays:
        share = min(1.0, use.stays / use.adds)
        how = f"by counting: {format_bytes(use.stays)} stay alive after each step"
        yield replace(found(remedies.GROWTH, (share, (share, share)), how), of="memory")
