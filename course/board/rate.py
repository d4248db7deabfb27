"""How fast the slow script is here, and whether that can be trusted."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import suppress

import torch

from course.board.measure import (
    FEW,
    THREADS,
    TIMED,
    Limit,
    OutOfTime,
    Tell,
    look,
    prepared,
    read_images,
    small_epoch,
)
from course.speedrun import batch_size
from labkit.busy import Others

# Of a shorter time the system's counters say too little.
COUNTED = 1.0


class Rate(float):
    """Images per second; ``notice`` says that other programs disturbed it, "" where none did."""

    notice: str

    def __new__(cls, rate: float, notice: str = "") -> Rate:
        made = super().__new__(cls, rate)
        made.notice = notice
        return made


class Beside:
    """What other programs take while something is measured, counted from when it is made."""

    def __init__(self) -> None:
        self._others, self._begin = Others(), time.monotonic()

    def notice(self) -> str:
        """The panel's sentence; "" where the cores were free, or the time was too short to say."""
        if time.monotonic() - self._begin <= COUNTED:
            return ""
        return self._others.notice(THREADS or torch.get_num_threads())


def images_per_second(
    seconds: float = 5.0,
    switches: Collection[str] = (),
    *,
    stop: threading.Event | None = None,
    tell: Tell | None = None,
) -> Rate:
    """Train (and validate) small epochs for ``seconds``, after a first one; images a second.

    Without switches it is the slow script. Where a single batch takes as long, that is all. After
    ``stop.set()`` it is what is known by then, or nan; ``tell`` is told how far it is.
    """
    beside, limit, rate = Beside(), Limit(stop=stop, tell=tell), math.nan
    limit.begin("timing the slow script")
    with prepared(), suppress(OutOfTime):
        for found in _rates(seconds, switches, limit):
            rate = found
            limit.report()
    return Rate(rate, beside.notice())


def _rates(seconds: float, switches: Collection[str], limit: Limit) -> Iterator[float]:
    """The rate as it is known so far, after each epoch."""
    task = small_epoch(min(batch_size(frozenset(switches)), TIMED.images))
    for each in (TIMED, task, small_epoch(FEW)):
        read_images(each)
    # It only loads libraries.
    look(tuple(switches), small_epoch(FEW), limit)
    first = look(tuple(switches), task, limit)
    yield task.images / first
    if first >= seconds:
        return
    if first * TIMED.images < seconds * task.images:
        task = TIMED
    run = limit.train(switches, task)
    next(run)
    begin, done = time.perf_counter(), 0
    while not done or time.perf_counter() - begin < seconds:
        next(run)
        done += task.images
        yield done / (time.perf_counter() - begin)
