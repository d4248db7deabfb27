"""Which part of a loader its waits are due to, and how much of them a remedy takes away."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from labkit.busy import cores
from whyslow.checks.streaming import Stream, ahead, end_started, stream
from whyslow.clock import saving_of
from whyslow.findings import LEAST_SHARE, Finding, Interval

NOTEBOOK = "04_data_loading"
NAME = "waits for data"
# One more worker is advised where it saves this share or more.
HELPS = 0.07
# Seconds of a stream with another number of workers.
SECONDS = 2.0
Saving = tuple[float, Interval]

_ANY = (
    "Load ahead in worker processes: DataLoader(..., num_workers=1) and more;\n"
    "or keep what fits in memory as tensors, decoded once."
)


@dataclass(frozen=True)
class Parts:
    """Seconds that one batch takes in the loader: reading samples, and putting them together."""

    samples: float
    collate: float


def parts_of(loader: Any, times: int = 3) -> Parts | None:
    """Load a few batches in this process, part by part; None for a loader of another kind."""
    if not isinstance(loader, DataLoader) or loader.batch_sampler is None:
        return None
    dataset = loader.dataset
    # torch gives an IterableDataset a __getitem__ that only raises.
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__"):
        return None
    if not isinstance(loader.batch_sampler, BatchSampler):
        return None
    read, joined = [], []
    batches = iter(loader.batch_sampler)
    for _ in range(times):
        indices = next(batches, None)
        if indices is None:
            break
        begin = time.perf_counter()
        if hasattr(dataset, "__getitems__"):
            samples = dataset.__getitems__(indices)
        else:
            samples = [dataset[index] for index in indices]
        middle = time.perf_counter()
        loader.collate_fn(samples)
        joined.append(time.perf_counter() - middle)
        read.append(middle - begin)
    if not read:
        return None
    return Parts(statistics.median(read), statistics.median(joined))


def cause(
    step: Callable[[Any], object] | None,
    loader: Any,
    found: Stream,
    share: float,
    interval: Interval,
) -> Finding:
    """Name what waits are due to. ``share`` is of all waiting, a finding's only what it can save.

    With ``step``, another number of workers is tried: one more where all together have too little
    time, none where they have enough and the step waits all the same.
    """
    parts = parts_of(loader)
    if parts is None:
        return without_cause(found, share, interval)
    waits = _clock(found)
    read, joined = 1e3 * parts.samples, 1e3 * parts.collate
    waits += f"; a batch takes {read:.1f} ms to read, {joined:.1f} ms to put together"
    workers = getattr(loader, "num_workers", 0)
    if workers:
        load, work = parts.samples + parts.collate, statistics.median(found.works)
        short = load > workers * work
        saving = (_one_more if short else _none)(step, loader, found, load)
        if saving is not None:
            return _workers(workers, short, saving, f"{waits}; {share:.0%} is waiting")
    # Once the part takes no time, nobody waits for it: whatever else is waited for stays.
    gone = min(1.0, max(parts.samples, parts.collate) / max(statistics.mean(found.waits), 1e-9))
    if not workers:
        gone = max(parts.samples, parts.collate) / (parts.samples + parts.collate)
    if parts.collate > parts.samples:
        name = "slow collate function"
        remedy = "Put samples together by torch.stack or torch.utils.data.default_collate,\n"
        remedy += "once for the batch, without a loop over values; or num_workers=1 and more."
    else:
        name = "slow samples in the dataset"
        remedy = "Decode and transform once, ahead, or a whole batch at a time with tensors;\n"
        remedy += f"or num_workers={max(1, workers + 1)}: processes that load while the step runs."
    low, high = interval
    return Finding(name, gone * share, (gone * low, gone * high), waits, remedy, NOTEBOOK)


def without_cause(found: Stream, share: float, interval: Interval) -> Finding:
    """The finding of waits, where nothing is known of the loader."""
    return Finding(NAME, share, interval, _clock(found), _ANY, NOTEBOOK)


def _clock(found: Stream) -> str:
    return f"by the clock: waiting in {len(found.waits)} steps of a stream"


def _workers(workers: int, short: bool, saving: Saving, how: str) -> Finding:
    """The finding that there are too few of them, or too many."""
    if short:
        name, other = "too few loader workers", workers + 1
        remedy = f"DataLoader(..., num_workers={other}) instead of {workers}, and perhaps more:\n"
        remedy += "a batch takes longer to load than all workers together have time for."
    else:
        name, other = "loader workers that cost more than they save", 0
        remedy = "DataLoader(..., num_workers=0): a batch is made in less time than it takes\n"
        remedy += "to hand it over from another process; or give the workers more to do."
    how = f"num_workers={other} instead of {workers}; {how}"
    return Finding(name, *saving, how, remedy, NOTEBOOK)


def _one_more(
    step: Callable[[Any], object] | None, loader: Any, found: Stream, load: float
) -> Saving | None:
    """What one more worker saves: by experiment where one is possible; None for too little."""
    workers = loader.num_workers
    saving = _tried(step, loader, workers + 1, found.wholes)
    if saving is None and workers < cores():
        # A worker more has a batch ready after this time, or when the step is done.
        least = max(statistics.median(found.works), load / (workers + 1))
        saving = saving_of(found.wholes, [least] * len(found.wholes))
    return saving if saving is not None and saving[0] >= HELPS else None


def _none(
    step: Callable[[Any], object] | None, loader: Any, found: Stream, load: float
) -> Saving | None:
    """What is saved where each batch is made between two steps; None where that is not sure."""
    wholes = list(found.wholes)
    saving = None
    if step is not None:
        # The loader as it is once more, so that a machine that slows down slows both.
        seconds = min(SECONDS, 2 * sum(wholes))
        again = stream(step, loader, seconds, ahead(loader, loader.num_workers))
        end_started(loader)
        saving = _tried(step, loader, 0, wholes + again.wholes)
    if saving is None:
        saving = saving_of(wholes, [load + work for work in found.works])
    return saving if saving[1][0] >= LEAST_SHARE else None


def _tried(
    step: Callable[[Any], object] | None, loader: Any, workers: int, wholes: list[float]
) -> Saving | None:
    """What a loader like this one saves with so many workers; None where it cannot be tried."""
    another = _with_workers(loader, workers)
    if another is None or step is None:
        return None
    seconds = min(SECONDS, 2 * sum(wholes))
    try:
        again = stream(step, another, seconds, ahead(another, workers))
    finally:
        end_started(another)
    return saving_of(wholes, again.wholes) if again.wholes else None


def _with_workers(loader: Any, workers: int) -> Any:
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
