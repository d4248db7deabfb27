"""The memory of a step: its peak, what is left of it afterwards, and for how much more is room."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from labkit.memory import StorageTracker
from labkit.restore.memory import free_bytes
from labkit.text import format_bytes
from whyslow.findings import Finding, found
from whyslow.remedies import GROWTH
from whyslow.subject import Subject

# Steps of which the growth is taken: of the last ones, since the first make gradients and state.
STEPS = 4
# Of the free memory an experiment may take so much.
SAFE = 0.4


class Use(NamedTuple):
    """Bytes: the ``peak`` of a step, what it ``adds`` at most, and what ``stays`` after each."""

    peak: int
    adds: int
    stays: int


def use_of(step: Callable[[], object], device: str) -> Use:
    """The memory of `STEPS` steps; they are real ones."""
    kept: list[int] = []
    with StorageTracker(device) as tracker:
        for _ in range(STEPS):
            step()
            gc.collect()
            tracker.record()
            # Older tensors that a step uses for the first time, as another batch, are no growth.
            kept.append(tracker.current - tracker.existing)
    stays = (kept[-1] - kept[0]) / (STEPS - 1)
    # Where something stays, the peak is that of the last step: what the others left is not its own.
    adds = max(1, tracker.peak - tracker.existing - kept[-2])
    return Use(tracker.peak, adds, max(0, round(stays)))


def findings(use: Use) -> Iterator[Finding]:
    """What stays of each step, as a share of what a step makes."""
    if use.stays:
        share = min(1.0, use.stays / use.adds)
        how = f"by counting: {format_bytes(use.stays)} stay alive after each step"
        yield replace(found(GROWTH, share, (share, share), how), of="memory")


def room_for(subject: Subject, times: float) -> bool:
    """Whether a step of so many times the memory takes less than `SAFE` of what is free.

    What is unknown, of the step or of the device, means no.
    """
    free, peak = free_bytes(subject.seen.device), subject.peak
    return free is not None and peak is not None and times * peak < SAFE * free
