"""Tools for debugging that were left on."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from labkit.restore.attributes import exchanged, patched
from whyslow.experiment import Experiment
from whyslow.subject import Subject


def experiments(subject: Subject) -> Iterator[Experiment]:
    """Anomaly mode, a profiler, deterministic algorithms: each off, where it is on."""
    seen = subject.seen
    if seen.anomaly:
        yield Experiment(
            "anomaly mode left on",
            "by experiment: the same step without it",
            "Remove torch.autograd.set_detect_anomaly(True) and detect_anomaly():\n"
            "switch it on only to search for a nan.",
            "17_debug_tools",
            no_anomaly,
        )
    if seen.profiled:
        yield Experiment(
            "profiler left on",
            "by experiment: the same step while the profiler does not record",
            "Profile a few steps, with torch.profiler.schedule(wait, warmup, active),\n"
            "and leave the with-block, or call stop().",
            "17_debug_tools",
            not_profiled,
        )
    if seen.deterministic or _slow_convolutions(subject):
        yield Experiment(
            "deterministic algorithms left on",
            "by experiment: the same step with torch's own choice of algorithms",
            "torch.use_deterministic_algorithms(False) and cudnn.deterministic = False:\n"
            "seeds alone repeat a run closely enough for most purposes.",
            "09_cudnn_benchmark",
            not_deterministic,
        )
    if seen.device == "cuda" and seen.images and not torch.backends.cudnn.benchmark:
        yield Experiment(
            "cuDNN does not search for its fastest plans",
            "by experiment: cudnn.benchmark = True",
            "torch.backends.cudnn.benchmark = True, before the first step;\n"
            "it pays where the shapes of the batches stay the same.",
            "09_cudnn_benchmark",
            searching,
        )


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


def _slow_convolutions(subject: Subject) -> bool:
    return subject.seen.device == "cuda" and torch.backends.cudnn.deterministic


def _nothing(*args: Any, **keywords: Any) -> None:
    """Stands for what switches something on or off."""


def _itself(self: Any) -> Any:
    return self
