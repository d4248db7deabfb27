"""Switches that are set otherwise than a training needs: tools, recomputation, cuDNN, threads."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.backends import cudnn

from labkit.busy import cores
from labkit.restore.attributes import exchanged
from whyslow import remedies
from whyslow.experiment import ALL, Change, Experiment, nothing, switched
from whyslow.findings import LEAST_SHARE
from whyslow.observe import recomputers
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
        yield Experiment(remedies.ANOMALY, "the same step without it", change)
    if seen.profiled:
        how = "the same step while the profiler does not record"
        yield Experiment(remedies.PROFILER, how, not_profiled, part=ALL)
    if seen.deterministic or (on_cuda and cudnn.deterministic):
        how = "the same step with torch's own choice of algorithms"
        change = partial(switched, _choose_freely, "use_deterministic_algorithms")
        yield Experiment(remedies.DETERMINISTIC, how, change, part=ALL)
    if on_cuda and seen.images and not cudnn.benchmark:
        change = partial(switched, partial(setattr, cudnn, "benchmark", True))
        yield Experiment(remedies.NO_SEARCH, "cudnn.benchmark = True", change)
    if seen.recomputed and subject.has_room(KEPT):
        how = "the same step, with activations kept instead of computed twice"
        yield Experiment(remedies.RECOMPUTED, how, not_recomputed)


def _choose_freely() -> None:
    torch.use_deterministic_algorithms(False)
    cudnn.deterministic = False


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
        instead: list[Any] = [(kinds[0], name, nothing) for name in ("start", "stop", "step")]
        for kind in kinds:
            instead += [(kind, "__enter__", lambda self: self), (kind, "__exit__", nothing)]
        with exchanged(instead):
            yield
    finally:
        for each in running:
            each.toggle_collection_dynamic(True, each.activities)


@contextmanager
def not_recomputed() -> Iterator[None]:
    """``checkpoint(function, ...)`` only calls the function."""

    def passes(*args: Any, **keywords: Any) -> Iterator[None]:
        # torch runs this up to its yield, calls the function, and ends it.
        yield

    def calls(function: Any, preserve: bool, *args: Any) -> Any:
        # In the place of the autograd function that recomputes.
        return function(*args)

    instead = {"apply": calls}
    with exchanged((owner, name, instead.get(name, passes)) for owner, name in recomputers()):
        yield


def threads(subject: Subject) -> Iterator[Experiment]:
    """As many threads as there are cores, and one, where there are others now."""
    now = torch.get_num_threads()
    for count in sorted({cores(), 1} - {now}, reverse=True) if subject.seen.device == "cpu" else ():
        name = remedies.FEW_THREADS
        if count < now:
            name = remedies.MANY_THREADS if now > cores() else remedies.SMALL_WORK
        yield Experiment(
            name,
            f"{count} threads instead of {now}, on {cores()} cores",
            _set_to(count),
            part=ALL,
            words={"threads": count},
            # One thread of several cores: beside other programs that alone looks better.
            least=0.1 if name == remedies.SMALL_WORK else LEAST_SHARE,
            cores=max(now, count),
        )


def _set_to(count: int) -> Change:
    return partial(switched, partial(torch.set_num_threads, count), "set_num_threads")
