"""Switches that are set otherwise than a training needs: debugging tools, recomputation, cuDNN."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from labkit.restore.attributes import exchanged, patched
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
        yield Experiment(ANOMALY, "the same step without it", no_anomaly)
    if seen.profiled:
        how = "the same step while the profiler does not record"
        yield Experiment(PROFILER, how, not_profiled, part=ALL)
    if seen.deterministic or (on_cuda and torch.backends.cudnn.deterministic):
        how = "the same step with torch's own choice of algorithms"
        yield Experiment(DETERMINISTIC, how, not_deterministic, part=ALL)
    if on_cuda and seen.images and not torch.backends.cudnn.benchmark:
        yield Experiment(NO_SEARCH, "cudnn.benchmark = True", searching)
    if seen.recomputed and room_for(subject, KEPT):
        how = "the same step, with activations kept instead of computed twice"
        yield Experiment(RECOMPUTED, how, not_recomputed, part=MODEL)


@contextmanager
def no_anomaly() -> Iterator[None]:
    """Anomaly mode off, also where the step itself would switch it on."""
    before = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    torch.autograd.set_detect_anomaly(False)
    try:
        with patched(torch, "set_anomaly_enabled", _nothing):
            yield
    finally:
        torch.autograd.set_detect_anomaly(*before)


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
        instead = [(kinds[0], name, _nothing) for name in ("start", "stop", "step")]
        for kind in kinds:
            instead += [(kind, "__enter__", _itself), (kind, "__exit__", _nothing)]
        with exchanged(instead):
            yield
    finally:
        for each in running:
            each.toggle_collection_dynamic(True, each.activities)


@contextmanager
def not_deterministic() -> Iterator[None]:
    """torch chooses its algorithms, and leaves new memory as it is."""
    before = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    cudnn = torch.backends.cudnn
    cudnn_before = cudnn.deterministic
    torch.use_deterministic_algorithms(False)
    cudnn.deterministic = False
    try:
        with patched(torch, "use_deterministic_algorithms", _nothing):
            yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warns)
        cudnn.deterministic = cudnn_before


@contextmanager
def searching() -> Iterator[None]:
    """cuDNN tries its plans for each new shape."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


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


def _nothing(*args: Any, **keywords: Any) -> None:
    """Stands for what switches something on or off."""


def _itself(self: Any) -> Any:
    return self
