"""Waits for data: whether another number of workers, or workers that live on, would end them."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from labkit.busy import cores
from whyslow import remedies
from whyslow.findings import LEAST_SHARE, Finding, found
from whyslow.sampling import Share, saving_of, share_of
from whyslow.subject import Stream, Subject, end_workers, own, stream

# What may fail, by its name: a dataset that is ready only in a worker, for one.
CAUSE = "another number of loader workers"
# One more worker is advised where it saves this share or more.
HELPS = 0.07
# Seconds of a stream with another number of workers.
SECONDS = 2.0
MayFail = Callable[[str], AbstractContextManager[None]]


def finding(subject: Subject, streamed: Stream, may_fail: MayFail) -> Finding:
    """What waiting for batches costs: starts of workers, where they are the larger part of it."""
    share = share_of(streamed.waits, streamed.wholes)
    starts = _restarts(subject.loader, streamed)
    if starts and starts.share > share[0] / 2:
        return starts
    if share[1][0] >= LEAST_SHARE:
        with may_fail(CAUSE):
            return cause(subject, streamed, share)
    return _waits(subject, streamed, share)


def cause(subject: Subject, streamed: Stream, share: Share) -> Finding:
    """Name what waits are due to, and what another number of workers saves.

    One more is tried where all together have too little time and there is a core, none where they
    have enough and the step waits all the same. ``share`` is of all waiting.
    """
    now, alone = getattr(subject.loader, "num_workers", 0), with_workers(subject.loader, 0)
    if not now or alone is None:
        return _waits(subject, streamed, share)
    other, name = 0, remedies.IDLE_WORKERS
    if seconds_of(alone) > now * statistics.median(streamed.works):
        other, name = now + 1, remedies.FEW_WORKERS
    if other > cores():
        return _waits(subject, streamed, share)
    saved, (low, high) = _saving(subject, streamed, other)
    if saved < HELPS if other else low < LEAST_SHARE:
        return _waits(subject, streamed, share, other)
    how = f"num_workers={other} instead of {now}; {_clock(streamed)}"
    return found(name, (saved, (low, high)), how, workers=other, now=now)


def with_workers(loader: Any, workers: int) -> Any:
    """The same loader with other workers, whatever else was set; None where it cannot be copied, or
    where its samples may come from what can be read only once.
    """
    is_known = getattr(type(loader), "__iter__", None) is DataLoader.__iter__
    if not is_known or loader.batch_sampler is None or isinstance(loader.dataset, IterableDataset):
        return None
    another = own(loader)
    another.num_workers = workers
    # Of no workers nobody is waited for.
    another.timeout = another.timeout if workers else 0
    return another


def seconds_of(loader: Any) -> float:
    """Seconds that one batch takes in this process."""
    read = Subject(print, loader)
    read.keep(loader)
    return statistics.median(read.loads)


def _saving(subject: Subject, streamed: Stream, workers: int) -> Share:
    """What a loader like this one saves with so many workers."""
    wholes = streamed.wholes
    seconds = min(SECONDS, 2 * sum(wholes))
    if not workers:
        # The loader as it is once more, so that a machine that slows down slows both.
        wholes = wholes + stream(subject.train, subject.loader, seconds).wholes
        end_workers(subject.loader)
    another = with_workers(subject.loader, workers)
    try:
        return saving_of(wholes, stream(subject.train, another, seconds).wholes)
    finally:
        end_workers(another)


def _waits(subject: Subject, streamed: Stream, share: Share, tried: int | None = None) -> Finding:
    """The finding of waits, where no other number of workers is known to help."""
    advice = remedies.loader(getattr(subject.loader, "num_workers", 0), tried)
    return found(remedies.WAITS, share, _clock(streamed), loader=advice)


def _clock(streamed: Stream) -> str:
    return f"by the clock: waiting in {len(streamed.waits)} steps of a stream"


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
