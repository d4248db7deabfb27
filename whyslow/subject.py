"""The program under diagnosis: its step, a few of its batches, and what was seen of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_map

from labkit.restore.memory import bytes_of
from whyslow.observe import Seen, tensors_of

# Batches that are kept for experiments: so many, and so many bytes.
KEPT_BATCHES = 4
KEPT_BYTES = 2**28


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

    @property
    def takes_batches(self) -> bool:
        """Whether the step is called with a batch."""
        return self.loader is not None

    def serve(self, batches: list[Any] | None = None) -> Callable[[], object]:
        """A step of no arguments, on kept batches in turn."""
        if not self.takes_batches:
            return self.call
        served, turn = batches or self.batches, 0

        def step() -> object:
            nonlocal turn
            turn += 1
            return self.train(served[turn % len(served)])

        return step

    def train(self, batch: Any) -> object:
        """One step on this batch."""
        return self.call(copy_of(batch) if self.copied else batch)

    def keep(self, source: Iterable[Any]) -> None:
        """Take the first batches of ``source``. ValueError where it has none."""
        size = 0
        asked = time.perf_counter()
        for batch in source:
            self.loads.append(time.perf_counter() - asked)
            self.batches.append(batch)
            size += sum(map(bytes_of, tensors_of(batch)))
            if len(self.batches) >= KEPT_BATCHES or size >= KEPT_BYTES:
                break
            asked = time.perf_counter()
        if not self.batches:
            raise ValueError(f"batches={source!r} is empty: a diagnosis needs at least one batch")


def copy_of(batch: Any) -> Any:
    """The batch with tensors of its own."""
    return tree_map(lambda each: each.clone() if isinstance(each, torch.Tensor) else each, batch)
