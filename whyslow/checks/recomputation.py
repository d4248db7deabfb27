"""Activations that are computed twice, though there is memory to keep them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.utils.checkpoint as recomputing

from labkit.restore.attributes import exchanged
from whyslow.experiment import Experiment
from whyslow.memory import room_for
from whyslow.observe import RECOMPUTERS
from whyslow.subject import Subject

# Keeping what was recomputed takes at most about so many times the memory of a step.
TIMES = 8


def experiments(subject: Subject) -> Iterator[Experiment]:
    """The same model without activation checkpointing, where there is room for it."""
    if not subject.seen.recomputed or not room_for(subject, TIMES):
        return
    yield Experiment(
        "checkpointing that is not needed",
        "by experiment: the same step, with activations kept instead of computed twice",
        "Call the block itself instead of torch.utils.checkpoint.checkpoint(block, ...):\n"
        "there is memory to keep its activations.",
        "11_activation_checkpointing",
        kept,
    )


@contextmanager
def kept() -> Iterator[None]:
    """``checkpoint(function, ...)`` only calls the function."""
    instead: dict[str, Any] = dict.fromkeys(RECOMPUTERS, _passes)
    instead["CheckpointFunction"] = _Calls
    with exchanged(
        (recomputing, name, value) for name, value in instead.items() if hasattr(recomputing, name)
    ):
        yield


def _passes(*args: Any, **keywords: Any) -> Iterator[None]:
    """torch runs this up to its yield, calls the function, and ends it."""
    yield


class _Calls:
    """In the place of the autograd function that recomputes."""

    @staticmethod
    def apply(function: Any, preserve: bool, *args: Any) -> Any:
        """The value of ``function``."""
        return function(*args)
