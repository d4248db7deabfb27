"""The program under diagnosis: its step, its batches, and what was seen of both."""

from __future__ import annotations

import gc
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from labkit.memory import StorageTracker
from labkit.restore.memory import bytes_of, free_bytes
from whyslow.loading import timed
from whyslow.observe import Seen, mapped, tensors_of

# Batches that are kept for experiments: so many, and so many bytes.
KEPT_BATCHES, KEPT_BYTES = 4, 2**28
# Of the free memory an experiment may take so much.
SAFE = 0.4
# Steps of which the memory is taken: the first ones make gradients and state.
MEMORY_STEPS = 4


@dataclass
class Subject:
    """``call`` is the reader's function, ``loader`` what its batches come from (None: none do).

    ``batches`` are kept ones, which experiments serve again and again: as copies where the step
    writes into them; each came after so many seconds of ``loads``. ``step_seconds`` is how long a
    step works, ``peak`` its memory in bytes; None where it was not measured.
    """

    call: Callable[..., object]
    loader: Any = None
    batches: list[Any] = field(default_factory=list)
    seen: Seen = field(default_factory=Seen)
    peak: int | None = None
    copied: bool = False
    loads: list[float] = field(default_factory=list)
    step_seconds: float = math.nan

    def serve(self, batches: list[Any] | None = None) -> Callable[[], object]:
        """A step of no arguments, on kept batches in turn."""
        if self.loader is None:
            return self.call
        served = itertools.cycle(batches or self.batches)
        return lambda: self.train(next(served))

    def train(self, batch: Any) -> object:
        """One step on this batch, where it takes one."""
        if self.loader is None:
            return self.call()
        return self.call(mapped(torch.clone, batch) if self.copied else batch)

    def keep(self) -> None:
        """Take the first batches of the loader. ValueError where it has none."""
        size = 0
        for _, seconds, batch in timed(self.loader):
            self.loads.append(seconds)
            self.batches.append(batch)
            size += sum(map(bytes_of, tensors_of(batch)))
            if len(self.batches) >= KEPT_BATCHES or size >= KEPT_BYTES:
                return
        if not self.batches:
            raise ValueError(
                f"batches={self.loader!r} is empty: a diagnosis needs at least one batch"
            )

    def has_room(self, times: float) -> bool:
        """Whether a step of so many times the memory takes less than `SAFE` of what is free.

        What is unknown, of the step or of the device, means no.
        """
        free = free_bytes(self.seen.device)
        return free is not None and self.peak is not None and times * self.peak < SAFE * free


def memory_of(step: Callable[[], object], device: str) -> tuple[int, int, float]:
    """Of real steps: bytes of the peak, bytes that stay after each, and which share that is of what
    a step makes.
    """
    kept: list[int] = []
    with StorageTracker(device) as tracker:
        for _ in range(MEMORY_STEPS):
            step()
            gc.collect()
            tracker.record()
            # Older tensors that a step uses for the first time, as another batch, are no growth.
            kept.append(tracker.current - tracker.existing)
    stays = max(0, round((kept[-1] - kept[0]) / (MEMORY_STEPS - 1)))
    # Where something stays, the peak is that of the last step: what the others left is not its own.
    makes = max(1, tracker.peak - tracker.existing - kept[-2])
    return tracker.peak, stays, min(1.0, stays / makes)
