"""Waits for data: how long they are, and whether other workers, or those that live on, end them."""

from __future__ import annotations

import copy
import itertools
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from labkit.busy import cores
from labkit.device import synchronize
from whyslow import remedies
from whyslow.findings import LEAST_SHARE, Finding, found
from whyslow.shares import in_words, saving_of, share_of

# Steps of which a wait is taken at least.
LEAST_STEPS = 6
# What may fail, by its name: a dataset that is ready only in a worker, for one.
CAUSE = "another number of loader workers"
# Another number is advised where it saves this share or more.
HELPS = 0.07
# Seconds of a stream with another number of workers, and batches that are timed without any.
SECONDS, ALONE = 2.0, 4


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
    """Run the loader for ``seconds``; for `LEAST_STEPS` where that takes no longer than twice."""
    found, begin = Stream(), time.perf_counter()
    # What was loaded before the first step was done says nothing of what comes after.
    skip = ahead(loader)
    for number, (first, wait, batch) in enumerate(timed(loader, again=True)):
        began = time.perf_counter()
        step(batch)
        synchronize()
        done = time.perf_counter()
        if first:
            found.starts.append(wait)
        if number >= skip:
            found.waits.append(wait)
            found.works.append(done - began)
        enough = len(found.works) >= LEAST_STEPS or done - begin > 2 * seconds
        if found.works and enough and done - begin > seconds:
            break
    return found


def timed(loader: Any, again: bool = False) -> Iterator[tuple[bool, float, Any]]:
    """Its batches, whether each is the first of its pass, and the seconds of waiting for it and for
    what lies between two passes; ``again`` and again, as long as there are any.
    """
    asked, some = time.perf_counter(), True
    while some:
        some = False
        for batch in (None,) if loader is None else _one_pass(loader):
            yield not some, time.perf_counter() - asked, batch
            asked, some = time.perf_counter(), again


def _one_pass(loader: Iterable[Any]) -> Iterator[Any]:
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
    return workers * (getattr(loader, "prefetch_factor", None) or 2) + (loader is not None)


def own_loader(loader: Any) -> Any:
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


def finding(
    step: Callable[[Any], object],
    loader: Any,
    streamed: Stream,
    may_fail: Callable[[str], AbstractContextManager[None]],
) -> Finding:
    """What waiting for batches costs, and what another number of workers saves; or what starts of
    workers cost, where they are the larger part of it.
    """
    share = share_of(streamed.waits, streamed.wholes)
    starts = _restarts(loader, streamed)
    if starts and starts.share > share[0] / 2:
        return starts
    advice = remedies.loader(getattr(loader, "num_workers", 0))
    if share[1][0] >= LEAST_SHARE:
        with may_fail(CAUSE):
            advice = _tried(step, loader, streamed) or advice
    how = f"by the clock: waiting in {len(streamed.waits)} steps of a stream"
    return found(remedies.WAITS, share, how, loader=advice)


def _tried(step: Callable[[Any], object], loader: Any, streamed: Stream) -> str:
    """What another number of workers saves, in words; "" where none can be tried."""
    now, alone = getattr(loader, "num_workers", 0), with_workers(loader, 0)
    if not now or alone is None:
        return ""
    # None, where all together have time enough and the step waits all the same.
    other = now + 1 if seconds_of(alone) > now * statistics.median(streamed.works) else 0
    if other > cores():
        return ""
    another = with_workers(loader, other)
    try:
        changed = stream(step, another, min(SECONDS, 2 * sum(streamed.wholes)))
    finally:
        end_workers(another)
    saving = saving_of(streamed.wholes, changed.wholes)
    saved, (low, _) = saving
    if saved >= HELPS and low >= LEAST_SHARE:
        share, interval = in_words(saving)
        instead = f"DataLoader(..., num_workers={other}) instead of {now}"
        return f"{instead} saves {share} of the time {interval}."
    return f"num_workers={other} instead of {now} was tried: it saves little or nothing."


def with_workers(loader: Any, workers: int) -> Any:
    """The same loader with other workers, whatever else was set; None where it cannot be copied, or
    where its samples may come from what can be read only once.
    """
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return None
    another = own_loader(loader)
    another.num_workers = workers
    # Of no workers nobody is waited for.
    another.timeout = another.timeout if workers else 0
    return another


def seconds_of(loader: Any) -> float:
    """Seconds that one batch takes in this process."""
    return statistics.median(wait for _, wait, _ in itertools.islice(timed(loader), ALONE))


def _restarts(loader: Any, streamed: Stream) -> Finding | None:
    """Workers that are started again for every pass over the data."""
    if not getattr(loader, "num_workers", 0) or getattr(loader, "persistent_workers", False):
        return None
    try:
        steps = len(loader)
    except TypeError:
        # Nobody knows how long an epoch is.
        return None
    usual = statistics.median(streamed.waits)
    # From the second one on, workers of the pass before have to end, too.
    starts = streamed.starts[1:] or streamed.starts or [usual]
    lost = max(0.0, statistics.median(starts) - usual)
    share = lost / (lost + steps * (usual + statistics.median(streamed.works)))
    # Few starts are seen: they scatter by about a third.
    interval = share / 1.5, min(1.0, share * 1.5)
    how = f"by the clock: {lost:.2f} s before the first batch of an epoch of {steps}"
    return found(remedies.RESTARTS, (share, interval), how)
