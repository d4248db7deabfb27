"""When the batches of an epoch were loaded, waited for and trained on, in the loop that is timed.

A data set stamps each sample with the thread that made it and with the time; a loop over batches
takes the stamps off again. Processes share one clock: `time.perf_counter` counts from the start of
the machine. What it costs, about 0.1 ms per batch, both sides of a comparison pay alike.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean
from threading import get_native_id
from typing import Any, NamedTuple

import torch
from torch.utils.data import Dataset

clock = time.perf_counter
# So many epochs of a setting are kept: one of them is a typical one.
FEW = 40


class Loader(NamedTuple):
    """Who loads: a "worker" process, a "thread" beside the training, or "training" itself."""

    kind: str
    number: int = 0


TRAINING = Loader("training")


class Batch(NamedTuple):
    """One batch: who loads it; and, in seconds from the begin of its epoch, its load, and when
    training wants it, takes it and is done with it.
    """

    loader: Loader
    begin: float
    end: float
    want: float
    take: float
    done: float


@dataclass(frozen=True)
class Epoch:
    """The batches of one epoch in their order, and the seconds that it took."""

    batches: tuple[Batch, ...]
    seconds: float

    @property
    def load(self) -> float:
        """Mean seconds that loading a batch took."""
        return fmean(batch.end - batch.begin for batch in self.batches)

    @property
    def train(self) -> float:
        """Mean seconds that training on a batch took."""
        return fmean(batch.done - batch.take for batch in self.batches)

    @property
    def waits(self) -> float:
        """Seconds in which nothing was trained."""
        return self.seconds - self.train * len(self.batches)

    @property
    def loaders(self) -> list[Loader]:
        """Those that loaded beside the training."""
        return sorted({batch.loader for batch in self.batches} - {TRAINING})


class Stamped(Dataset[Any]):
    """A data set whose samples end with a stamp: process, thread, from when to when."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        begin = clock()
        sample = self._dataset[index]
        stamp = (os.getpid(), get_native_id(), begin, clock())
        return *sample, torch.tensor(stamp, dtype=torch.float64)


class Epochs:
    """The epochs of each setting that was run, the newest few of them.

    >>> epochs, loader = Epochs(), [[torch.ones(2), torch.tensor([[7.0, 7.0, 0.1, 0.2]])]]
    >>> [inputs.sum().item() for (inputs,) in epochs.watch(loader, workers=1)]
    [2.0]
    >>> len(epochs.of({"workers": 1, "width": 8}).batches)
    1
    """

    def __init__(self) -> None:
        self._noted: dict[tuple[tuple[str, Any], ...], list[Epoch]] = {}

    def watch(self, batches: Iterable[Any], **settings: Any) -> Iterator[list[Any]]:
        """The batches of a `Stamped` data set without their stamps, noted under ``settings``.

        An epoch without batches, or that is left early, is not noted.
        """
        began = want = clock()
        noted = []
        for *batch, stamps in batches:
            take = clock()
            yield batch
            done = clock()
            process, thread, begin, _ = stamps[0].tolist()
            times = (begin, stamps[-1, 3].item(), want, take, done)
            loader = _loader(int(process), int(thread))
            noted.append(Batch(loader, *(each - began for each in times)))
            want = done
        if not noted:
            return
        key = tuple(settings.items())
        kept = self._noted.pop(key, [])
        self._noted[key] = [*kept[1 - FEW :], Epoch(tuple(noted), clock() - began)]

    def of(self, settings: Mapping[str, Any], seconds: float | None = None) -> Epoch | None:
        """The epoch noted under any of these settings that took most nearly ``seconds``.

        The newest one without.
        """
        for key, epochs in reversed(self._noted.items()):
            if all(settings.get(name) == value for name, value in key):
                if seconds is None:
                    return epochs[-1]
                return min(epochs, key=lambda epoch: abs(epoch.seconds - seconds))
        return None


def _loader(process: int, thread: int) -> Loader:
    """Who loaded, as the thread that trains sees it."""
    if process != os.getpid():
        return Loader("worker", process)
    return TRAINING if thread == get_native_id() else Loader("thread", thread)
