"""Waits for data: by streaming the reader's own loader, and by taking it apart."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch.utils.data import BatchSampler, DataLoader

from labkit.device import synchronize
from labkit.diagnose.clock import share_of
from labkit.diagnose.findings import LEAST_SHARE, Finding
from labkit.diagnose.phases import Phases
from labkit.diagnose.subject import Subject, cores
from labkit.preserve import giving_back

NOTEBOOK = "04_data_loading"
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


def stream(step: Callable[[Any], object], loader: Any, seconds: float, skip: int) -> Stream:
    """Run the loader for ``seconds``; the first ``skip`` batches of each pass were loaded ahead."""
    found = Stream()
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
                if done - begin > 4 * seconds and found.starts:
                    return found
        finally:
            end_workers(loader, iterator)
        if number == 0 or (number <= skip and len(found.starts) >= 3):
            return found


def end_workers(loader: Any, iterator: Any) -> None:
    """End worker processes that were started for ``iterator`` alone."""
    ends = getattr(iterator, "_shutdown_workers", None)
    if ends is not None and not getattr(loader, "persistent_workers", False):
        ends()


def finding(subject: Subject, seconds: float) -> tuple[Finding | None, Stream]:
    """What waiting for batches costs, and which part of the loader is to blame."""
    loader = subject.loader
    workers = getattr(loader, "num_workers", 0)
    skip = 1
    if workers:
        skip = workers * (getattr(loader, "prefetch_factor", None) or 2) + 1
    found = stream(subject.train, loader, seconds, skip)
    if not found.waits:
        return _restarts(loader, found, subject), found
    share, interval = share_of(found.waits, found.wholes)
    restarts = _restarts(loader, found, subject)
    if interval[0] < LEAST_SHARE:
        return restarts, found
    waits = cause(subject.train, loader, found, share, interval)
    if restarts is not None and restarts.share > waits.share:
        return restarts, found
    return waits, found


def inside(phases: Phases) -> Finding | None:
    """What a step waits for batches of a loader of its own."""
    waited = [step.get("data", 0.0) for step in phases.steps]
    wholes = phases.wholes
    share, interval = share_of(waited, wholes)
    if phases.loader is None or interval[0] < LEAST_SHARE:
        return None
    works = [whole - wait for whole, wait in zip(wholes, waited, strict=True)]
    return cause(None, phases.loader, Stream(waited, works), share, interval)


def _restarts(loader: Any, found: Stream, subject: Subject) -> Finding | None:
    """Workers that are started again for every pass over the data."""
    if not getattr(loader, "num_workers", 0) or getattr(loader, "persistent_workers", False):
        return None
    if not hasattr(loader, "__len__") or not found.starts or len(loader) < 1:
        return None
    usual = statistics.median(found.waits) if found.waits else 0.0
    work = statistics.median(found.works) if found.works else _work(subject)
    ends = statistics.median(found.ends) if found.ends else 0.0
    lost = [max(0.0, start + ends - usual) for start in found.starts]
    epochs = [each + len(loader) * (usual + work) for each in lost]
    share, interval = share_of(lost, epochs)
    if len(lost) < 4:
        # Few starts were seen: they scatter by about a third.
        interval = share / 1.5, min(1.0, share * 1.5)
    return Finding(
        "loader workers started again every epoch",
        share,
        interval,
        f"by the clock: {statistics.median(lost):.2f} s before the first batch of an epoch "
        f"of {len(loader)}",
        "DataLoader(..., persistent_workers=True), made once before the first epoch:\n"
        "its workers live on, and load ahead for the next epoch.",
        NOTEBOOK,
    )


def _work(subject: Subject) -> float:
    step = subject.serve()
    step()
    begin = time.perf_counter()
    step()
    synchronize()
    return time.perf_counter() - begin


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
    if not hasattr(dataset, "__getitem__") or not isinstance(loader.batch_sampler, BatchSampler):
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
    interval: tuple[float, float],
) -> Finding:
    """Name the part of the loader that waits are due to.

    With ``step``, one more worker is tried.
    """
    how = f"by the clock: waiting in {len(found.waits)} steps of a stream"
    workers = getattr(loader, "num_workers", 0)
    parts = parts_of(loader)
    if parts is None:
        name, remedy = "waits for data", _ANY
        return Finding(name, share, interval, how, remedy, NOTEBOOK)
    read, joined = 1e3 * parts.samples, 1e3 * parts.collate
    how += f"; a batch takes {read:.1f} ms to read, {joined:.1f} ms to put together"
    work = statistics.median(found.works)
    wanted = -(-(parts.samples + parts.collate) // max(work, 1e-9))
    if workers and wanted > workers and _another_helps(step, loader, found):
        name = "too few loader workers"
        remedy = f"DataLoader(..., num_workers={workers + 1}) instead of {workers}, or more:\n"
        remedy += "a batch takes longer to load than all workers together have time for."
    elif parts.collate > parts.samples:
        name = "slow collate function"
        remedy = "Put samples together by torch.stack or torch.utils.data.default_collate,\n"
        remedy += "once for the batch, without a loop over values; or num_workers=1 and more."
    else:
        name = "slow samples in the dataset"
        remedy = "Decode and transform once, ahead, or a whole batch at a time with tensors;\n"
        remedy += f"or num_workers={max(1, workers + 1)}: processes that load while the step runs."
    return Finding(name, share, interval, how, remedy, NOTEBOOK)


_ANY = (
    "Load ahead in worker processes: DataLoader(..., num_workers=1) and more;\n"
    "or keep what fits in memory as tensors, decoded once."
)


def _another_helps(step: Callable[[Any], object] | None, loader: Any, found: Stream) -> bool:
    """Whether one more worker shortens the wait: by experiment, with a loader like this one."""
    workers = loader.num_workers
    another = _with_workers(loader, workers + 1)
    if another is None or step is None:
        return workers < cores()
    seconds = min(2.0, 2 * sum(found.wholes))
    skip = (workers + 1) * (loader.prefetch_factor or 2) + 1
    try:
        again = stream(step, another, seconds, skip)
    finally:
        end_started(another)
    if not again.waits:
        return workers < cores()
    return statistics.mean(again.wholes) < 0.93 * statistics.mean(found.wholes)


def _with_workers(loader: Any, workers: int) -> Any:
    """The same loader with other workers, whatever else was set; None where it cannot be copied."""
    own = getattr(type(loader), "__iter__", None) is DataLoader.__iter__
    if not own or loader.batch_sampler is None:
        return None
    another = copy.copy(loader)
    another._iterator = None
    another.num_workers = workers
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
