"""A number of CPU threads that does not suit the cores."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from labkit.busy import cores
from whyslow.changes import Change, switched
from whyslow.experiment import Experiment
from whyslow.findings import LEAST_SHARE
from whyslow.phases import ALL
from whyslow.remedies import FEW_THREADS, MANY_THREADS, SMALL_WORK
from whyslow.subject import Subject


def experiments(subject: Subject) -> Iterator[Experiment]:
    """As many threads as there are cores, and one, where there are others now."""
    if subject.seen.device != "cpu":
        return
    now = torch.get_num_threads()
    for count in dict.fromkeys((cores(), 1)):
        if count == now:
            continue
        name = FEW_THREADS
        if count < now:
            name = MANY_THREADS if now > cores() else SMALL_WORK
        yield Experiment(
            name,
            f"{count} threads instead of {now}, on {cores()} cores",
            _set_to(count),
            part=ALL,
            words={"threads": count},
            # One thread of several cores: beside other programs that alone looks better.
            least=0.1 if name == SMALL_WORK else LEAST_SHARE,
            cores=max(now, count),
        )


def _set_to(count: int) -> Change:
    return partial(switched, partial(torch.set_num_threads, count), "set_num_threads")
