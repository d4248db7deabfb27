"""Waits for data: which part of the loader they are due to, and how much a remedy takes away."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from torch.utils.data import BatchSampler, IterableDataset

from labkit.busy import cores
from whyslow.clock import saving_of, share_of
from whyslow.findings import LEAST_SHARE, Finding, Interval, found
from whyslow.phases import Source
from whyslow.remedies import COLLATE, FEW_WORKERS, IDLE_WORKERS, RESTARTS, SAMPLES, WAITS
from whyslow.streams import Stream, end_started, stream, with_workers
from whyslow.subject import Subject

# What may fail, by its name: a dataset that is ready only in a worker, for one.
CAUSE = "what makes the loader slow"
# One more worker is advised where it saves this share or more.
HELPS = 0.07
# Seconds of a stream with another number of workers.
SECONDS = 2.0
Share = tuple[float, Interval]
MayFail = Callable[[str], AbstractContextManager[None]]


def findings(
    subject: Subject, streamed: Stream, source: Source, may_fail: MayFail
) -> Iterator[Finding]:
    """What waiting for batches of ``source`` costs: the larger one of waits and of starts."""
    both = [each for each in (_restarts(subject, streamed),) if each is not None]
    share = share_of(streamed.waits, streamed.wholes)
    if share[1][0] >= LEAST_SHARE:
        waits = _only_waits(streamed, share)
        with may_fail(CAUSE):
            waits = cause(subject, source, streamed, share)
        both.append(waits)
    if both:
        yield max(both, key=lambda each: each.share)


@dataclass(frozen=True)
class Parts:
    """Seconds that one batch takes in the loader: reading samples, and putting them together."""

    samples: float
    collate: float


def parts_of(source: Source, times: int = 3) -> Parts | None:
    """Load a few batches in this process, part by part; None for a loader of another kind."""
    dataset = source.dataset
    # torch gives an IterableDataset a __getitem__ that only raises.
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__"):
        return None
    if not isinstance(source.batches, BatchSampler):
        return None
    read, joined = [], []
    for _, indices in zip(range(times), source.batches, strict=False):
        begin = time.perf_counter()
        if hasattr(dataset, "__getitems__"):
            samples = dataset.__getitems__(indices)
        else:
            samples = [dataset[index] for index in indices]
        middle = time.perf_counter()
        source.collate(samples)
        joined.append(time.perf_counter() - middle)
        read.append(middle - begin)
    return Parts(statistics.median(read), statistics.median(joined)) if read else None


def cause(subject: Subject, source: Source, streamed: Stream, share: Share) -> Finding:
    """Name what waits are due to. ``share`` is of all waiting, a finding's only what it can save.

    Another number of workers is tried: one more where all together have too little time and there
    is a core, none where they have enough and the step waits all the same.
    """
    parts = parts_of(source)
    if parts is None:
        return _only_waits(streamed, share)
    if source.workers:
        load, work = parts.samples + parts.collate, statistics.median(streamed.works)
        short = load > source.workers * work
        other = source.workers + 1 if short else 0
        saving = _tried(subject, streamed, other)
        least = HELPS if short else LEAST_SHARE
        if saving is not None and (saving[0] if short else saving[1][0]) >= least:
            how = f"num_workers={other} instead of {source.workers}; {_clock(streamed)}"
            words = {"workers": other, "now": source.workers}
            return found(FEW_WORKERS if short else IDLE_WORKERS, *saving, how, words)
    return _by_parts(parts, source.workers, streamed, share)


def _tried(subject: Subject, streamed: Stream, workers: int) -> Share | None:
    """What a loader like this one saves with so many workers; None where it cannot be tried."""
    another = with_workers(subject.loader, workers)
    if another is None or workers > cores():
        return None
    wholes = list(streamed.wholes)
    seconds = min(SECONDS, 2 * sum(wholes))
    if not workers:
        # The loader as it is once more, so that a machine that slows down slows both.
        wholes += stream(subject.train, subject.loader, seconds).wholes
        end_started(subject.loader)
    try:
        again = stream(subject.train, another, seconds)
    finally:
        end_started(another)
    return saving_of(wholes, again.wholes) if again.wholes else None


def _by_parts(parts: Parts, workers: int, streamed: Stream, share: Share) -> Finding:
    """Once the larger part takes no time, nobody waits for it: what else is waited for stays."""
    larger = max(parts.samples, parts.collate)
    if workers:
        gone = min(1.0, larger / max(statistics.mean(streamed.waits), 1e-9))
    else:
        gone = larger / (parts.samples + parts.collate)
    read, joined = 1e3 * parts.samples, 1e3 * parts.collate
    how = f"{_clock(streamed)}; a batch takes {read:.1f} ms to read, "
    how += f"{joined:.1f} ms to put together"
    name = COLLATE if parts.collate > parts.samples else SAMPLES
    of_all, (low, high) = share
    words = {"workers": max(1, min(cores(), workers + 1))}
    return found(name, gone * of_all, (gone * low, gone * high), how, words)


def _only_waits(streamed: Stream, share: Share) -> Finding:
    """The finding of waits, where nothing is known of the loader."""
    return found(WAITS, *share, _clock(streamed))


def _clock(streamed: Stream) -> str:
    return f"by the clock: waiting in {len(streamed.waits)} steps of a stream"


def _restarts(subject: Subject, streamed: Stream) -> Finding | None:
    """Workers that are started again for every pass over the data."""
    loader = subject.loader
    if not getattr(loader, "num_workers", 0) or getattr(loader, "persistent_workers", False):
        return None
    if not hasattr(loader, "__len__") or not streamed.starts or len(loader) < 1:
        return None
    usual = statistics.median(streamed.waits or [0.0])
    work = statistics.median(streamed.works or [subject.step_seconds])
    ends = statistics.median(streamed.ends or [0.0])
    lost = [max(0.0, start + ends - usual) for start in streamed.starts]
    epochs = [each + len(loader) * (usual + work) for each in lost]
    share, interval = share_of(lost, epochs)
    if len(lost) < 4:
        # Few starts were seen: they scatter by about a third.
        interval = share / 1.5, min(1.0, share * 1.5)
    before = f"{statistics.median(lost):.2f} s before the first batch of an epoch"
    return found(RESTARTS, share, interval, f"by the clock: {before} of {len(loader)}")
