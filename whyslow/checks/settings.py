"""Switches that are set otherwise than a training needs: tools, recomputation, cuDNN, threads."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from labkit.busy import cores
from labkit.restore.attributes import exchanged
from whyslow.experiment import ALL, Change, Experiment, nothing, switched
from whyslow.findings import LEAST_SHARE
from whyslow.memory import room_for
from whyslow.observe import recomputers
from whyslow.remedies import (
    ANOMALY,
    DETERMINISTIC,
    FEW_THREADS,
    MANY_THREADS,
    NO_SEARCH,
    PROFILER,
    RECOMPUTED,
    SMALL_WORK,
)
from whyslow.subject import Subject

# Keeping what was recomputed takes at most about so many times the memory of a step.
KEPT = 8


def switches(subject: Subject) -> Iterator[Experiment]:
    """Each the other way, where it is set so that it may cost time."""
    seen = subject.seen
    on_cuda = seen.device == "cuda"
    if seen.anomaly:
        off = partial(torch.autograd.set_detect_anomaly, False)
        change = partial(switched, off, "set_anomaly_enabled")
        yield Experiment(ANOMALY, "the same step without it", change)
    if seen.profiled:
        how = "the same step while the profiler does not record"
        yield Experiment(PROFILER, how, not_profiled, part=ALL)
    if seen.deterministic or (on_cuda and torch.backends.cudnn.deterministic):
        how = "the same step with torch's own choice of algorithms"

        def free() -> None:
            torch.use_deterministic_algorithms(False)
            torch.backends.cudnn.deterministic = False

        change = partial(switched, free, "use_deterministic_algorithms")
        yield Experiment(DETERMINISTIC, how, change, part=ALL)
    if on_cuda and seen.images and not torch.backends.cudnn.benchmark:
        search = partial(setattr, torch.backends.cudnn, "benchmark", True)
        yield Experiment(NO_SEARCH, "cudnn.benchmark = True", partial(switched, search))
    if seen.recomputed and room_for(subject, KEPT):
        how = "the same step, with activations kept instead of computed twice"
        yield Experiment(RECOMPUTED, how, not_recomputed)


@contextmanager
def not_profiled() -> Iterator[None]:
    """No profiler records, neither one that runs already nor one that the step begins."""
    kinds: tuple[Any, ...] = (torch.profiler.profile, torch.autograd.profiler.profile)
    running = []
    if torch.autograd._profiler_enabled():
        # A frozen heap hides nothing from get_objects().
        running = [each for each in gc.get_objects() if type(each) is kinds[0] and each.profiler]
    for each in running:
        each.toggle_collection_dynamic(False, each.activities)
    try:
        instead = [(kinds[0], name, nothing) for name in ("start", "stop", "step")]
        for kind in kinds:
            instead += [(kind, "__enter__", _itself), (kind, "__exit__", nothing)]
        with exchanged(instead):
            yield
    finally:
        for each in running:
            each.toggle_collection_dynamic(True, each.activities)


def _itself(self: Any) -> Any:
    return self


@contextmanager
def not_recomputed() -> Iterator[None]:
    """``checkpoint(function, ...)`` only calls the function."""

    def passes(*args: Any, **keywords: Any) -> Iterator[None]:
        # torch runs this up to its yield, calls the function, and ends it.
        yield

    def calls(function: Any, preserve: bool, *args: Any) -> Any:
        # In the place of the autograd function that recomputes.
        return function(*args)

    with exchanged(
        (owner, name, calls if name == "apply" else passes) for owner, name in recomputers()
    ):
        yield


def threads(subject: Subject) -> Iterator[Experiment]:
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
