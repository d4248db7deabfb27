"""Waits for data: by streaming the reader's own loader."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from labkit.device import synchronize
from whyslow.checks.blame import NOTEBOOK, cause, without_cause
from whyslow.checks.streaming import Stream, ahead, stream
from whyslow.clock import share_of
from whyslow.failing import MayFail
from whyslow.findings import LEAST_SHARE, Finding, Interval
from whyslow.phases import Phases
from whyslow.subject import Subject

# What may fail: a dataset that is ready only in a worker, for one.
CAUSE = "what makes the loader slow"


def finding(subject: Subject, seconds: float, may_fail: MayFail) -> tuple[Finding | None, Stream]:
    """What waiting for batches costs, and which part of the loader is to blame."""
    loader = subject.loader
    skip = ahead(loader, getattr(loader, "num_workers", 0))
    found = stream(subject.train, loader, seconds, skip)
    if not found.waits:
        return _restarts(loader, found, subject), found
    share, interval = share_of(found.waits, found.wholes)
    restarts = _restarts(loader, found, subject)
    if interval[0] < LEAST_SHARE:
        return restarts, found
    waits = _blamed(subject.train, loader, found, (share, interval), may_fail)
    if restarts is not None and restarts.share > waits.share:
        return restarts, found
    return waits, found


def inside(phases: Phases, may_fail: MayFail) -> Finding | None:
    """What a step waits for batches of a loader of its own: of several, the slowest."""
    loader, waited = phases.slowest_loader()
    wholes = phases.wholes
    share, interval = share_of(waited, wholes)
    if interval[0] < LEAST_SHARE:
        return None
    works = [whole - wait for whole, wait in zip(wholes, waited, strict=True)]
    waits = Stream(waited, works)
    found = _blamed(None, loader, waits, (share, interval), may_fail)
    return replace(found, how=f"{found.how}; {_described(loader)}")


def _described(loader: Any) -> str:
    """Which one it is, in the reader's own words."""
    if loader is None:
        return "of a DataLoader that was begun before"
    names = [f"{name}={getattr(loader, name, None)}" for name in ("batch_size", "num_workers")]
    dataset = type(getattr(loader, "dataset", None)).__name__
    return f"of DataLoader({dataset}, {', '.join(names)})"


def _blamed(
    step: Callable[[Any], object] | None,
    loader: Any,
    found: Stream,
    cost: tuple[float, Interval],
    may_fail: MayFail,
) -> Finding:
    """The waits by their cause; by themselves where it cannot be found."""
    with may_fail(CAUSE):
        return cause(step, loader, found, *cost)
    return without_cause(found, *cost)


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
    synchronize()
    begin = time.perf_counter()
    step()
    synchronize()
    return time.perf_counter() - begin
