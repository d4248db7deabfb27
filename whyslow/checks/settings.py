"""Switches that are set otherwise than a training needs: debugging tools, recomputation, cuDNN."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from labkit.restore.attributes import exchanged
from whyslow.changes import nothing, switched
from whyslow.experiment import Experiment
from whyslow.memory import room_for
from whyslow.observe import recomputers
from whyslow.phases import ALL, MODEL
from whyslow.remedies import ANOMALY, DETERMINISTIC, NO_SEARCH, PROFILER, RECOMPUTED
from whyslow.subject import Subject

# Keeping what was recomputed takes at most about so many times the memory of a step.
KEPT = 8


def experiments(subject: Subject) -> Iterator[Experiment]:
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
        change = partial(switched, _not_deterministic, "use_deterministic_algorithms")
        yield Experiment(DETERMINISTIC, how, change, part=ALL)
    if on_cuda and seen.images and not torch.backends.cudnn.benchmark:
        search = partial(setattr, torch.backends.cudnn, "benchmark", True)
        yield Experiment(NO_SEARCH, "cudnn.benchmark = True", partial(switched, search))
    if seen.recomputed and room_for(subject, KEPT):
        how = "the same step, with activations kept instead of computed twice"
        yield Experiment(RECOMPUTED, how, not_recomputed, part=MODEL)


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


def _not_deterministic() -> None:
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.deterministic = False


@contextmanager
def not_recomputed() -> Iterator[None]:
    """``checkpoint(function, ...)`` only calls the function."""
    with exchanged(
        (owner, name, _calls if name == "apply" else _passes) for owner, name in recomputers()
    ):
        yield


def _passes(*args: Any, **keywords: Any) -> Iterator[None]:
    """torch runs this up to its yield, calls the function, and ends it."""
    yield


def _calls(function: Any, preserve: bool, *args: Any) -> Any:
    """In the place of the autograd function that recomputes."""
    return function(*args)


def _itself(self: Any) -> Any:
    return self
