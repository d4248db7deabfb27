"""Batches of the reader's own loader, one step after the other, and the time of each."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch.utils.data import DataLoader

from labkit.device import synchronize
from labkit.restore import giving_back

# Steps of which a wait is taken at least.
LEAST_STEPS = 6


@dataclass
class Stream:
    """Seconds of each step of a stream: waiting for its batch, and working on it.

    ``starts`` are the seconds from the beginning of each pass over the loader to its first batch,
    ``ends`` those from its last batch to its end.
    """

    waits: list[float] = field(default_factory=list)
    works: list[float] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)

    @property
    def wholes(self) -> list[float]:
        """Seconds of each step with its wait."""
        return [wait + work for wait, work in zip(self.waits, self.works, strict=True)]


def stream(step: Callable[[Any], object], loader: Any, seconds: float) -> Stream:
    """Run the loader for ``seconds``, and for `LEAST_STEPS` at least.

    Batches that were loaded before the first step was done say nothing of those after them.
    """
    found, skip = Stream(), ahead(loader)
    begin = time.perf_counter()
    while True:
        started = time.perf_counter()
        iterator = iter(loader)
        number = 0
        try:
            while True:
                asked = time.perf_counter()
                try:
                    batch = next(iterator)
                except StopIteration:
                    found.ends.append(time.perf_counter() - asked)
                    break
                came = time.perf_counter()
                step(batch)
                synchronize()
                done = time.perf_counter()
                number += 1
                if number == 1:
                    found.starts.append(came - started)
                if number > skip:
                    found.waits.append(came - asked)
                    found.works.append(done - came)
                if done - begin > seconds and len(found.waits) >= LEAST_STEPS:
                    return found
                if done - begin > 2 * seconds and found.starts:
                    return found
        finally:
            _end_workers(loader, iterator)
        if number == 0 or (number <= skip and len(found.starts) >= 3):
            return found


def _end_workers(loader: Any, iterator: Any) -> None:
    """End worker processes that were started for ``iterator`` alone."""
    ends = getattr(iterator, "_shutdown_workers", None)
    if ends is not None and not getattr(loader, "persistent_workers", False):
        ends()


def ahead(loader: Any) -> int:
    """How many batches are there before the first step is done."""
    workers = getattr(loader, "num_workers", 0)
    if not workers:
        return 1
    return workers * (getattr(loader, "prefetch_factor", None) or 2) + 1


def with_workers(loader: Any, workers: int) -> Any:
    """The same loader with other workers, whatever else was set; None where it cannot be copied."""
    own = getattr(type(loader), "__iter__", None) is DataLoader.__iter__
    if not own or loader.batch_sampler is None:
        return None
    another = copy.copy(loader)
    another._iterator = None
    another.num_workers = workers
    if not workers:
        # Nobody to wait for.
        another.timeout = 0
    return another


@contextmanager
def without_iterator(loader: Any) -> Iterator[None]:
    """A loader with workers that live on is asked afresh inside: those that it has are kept."""
    before = getattr(loader, "_iterator", None)
    in_use = hasattr(before, "_shutdown_workers")

    def put_back() -> None:
        # Once more does no harm: its own workers are no others.
        if getattr(loader, "_iterator", None) is not before:
            end_started(loader)
        if in_use:
            loader._iterator = before

    with giving_back(put_back):
        if in_use:
            loader._iterator = None
        yield


def end_started(loader: Any) -> None:
    """End workers that outlive their iterator, which the diagnosis started."""
    iterator = getattr(loader, "_iterator", None)
    if iterator is not None and hasattr(iterator, "_shutdown_workers"):
        iterator._shutdown_workers()
        loader._iterator = None
