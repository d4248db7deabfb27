"""Where the time of a step goes, by the clock: data, forward, backward, clipping, update, the rest.

The step is cut where it enters and leaves its modules, its backward pass and its optimizer. On an
accelerator each cut waits for the device, so that its work counts where it was asked for; the step
takes longer that way, and only shares are used.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from labkit.device import synchronize
from whyslow.events import Listener, listening

# From one cut to the next; what is between two modules belongs to the forward pass.
_NAMES = {
    ("begin", "forward"): "before",
    ("forward", "forward end"): "forward",
    ("forward end", "forward"): "forward",
    ("forward end", "backward"): "forward",
    ("begin", "backward"): "forward",
    ("load end", "backward"): "forward",
    ("backward", "backward end"): "backward",
    ("backward end", "update"): "after backward",
    # An update by hand.
    ("backward end", "end"): "after backward",
    ("update", "update end"): "update",
    ("update end", "update"): "update",
    # A closure that the optimizer calls: its forward and backward pass are within the update.
    ("update", "forward"): "before",
    ("backward end", "update end"): "update",
    ("load end", "forward"): "before",
    ("begin", "load"): "before",
    # Gradients may be zeroed before the forward pass, before the backward pass, or at the end.
    ("zero", "zero end"): "update",
    ("begin", "zero"): "before",
    ("load end", "zero"): "before",
    ("zero end", "forward"): "before",
    ("zero end", "load"): "before",
    ("forward end", "zero"): "forward",
    ("zero end", "backward"): "forward",
    ("backward end", "zero"): "after backward",
}


# Loaders that are alike, as one that is made anew for each epoch: their class, and their settings.
Kind = tuple[object, ...]


class Phases(Listener):
    """Seconds of each phase of a step; ``cut("begin")`` and ``cut("end")`` stand around it.

    ``steps`` has one entry a step, and so has ``waits``: seconds by the kind of the loader.
    """

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []
        self.waits: list[dict[Kind, float]] = []
        self._last = ("", 0.0)
        self._now: dict[str, float] = defaultdict(float)
        self._waiting: dict[Kind, float] = defaultdict(float)
        self._asked: Any = None
        # Of each kind: seconds of this pass, and of the longest, with its loader.
        self._passes: dict[Kind, float] = defaultdict(float)
        self._longest: dict[Kind, tuple[float, Any]] = {}
        self._updates = 0

    def cut(self, event: str) -> None:
        """One event of the step, now."""
        synchronize()
        now = time.perf_counter()
        before, since = self._last
        if event == "begin":
            self._now, self._waiting = defaultdict(float), defaultdict(float)
            self._updates = 0
        else:
            self._now[self._name(before, event)] += now - since
        if before == "load":
            self._waits(now - since)
        if event == "end":
            self.steps.append(dict(self._now))
            self.waits.append(dict(self._waiting))
        self._last = event, time.perf_counter()

    def _waits(self, seconds: float) -> None:
        kind = _kind_of(self._asked)
        self._waiting[kind] += seconds
        self._passes[kind] += seconds
        if self._passes[kind] >= self._longest.get(kind, (0.0, None))[0]:
            self._longest[kind] = self._passes[kind], self._asked

    def slowest_loader(self) -> tuple[Any, list[float]]:
        """The loader that was waited for longest, and for how long in each step.

        None for one that is not known: its iterator was made before.
        """
        sums: dict[Kind, float] = defaultdict(float)
        for step in self.waits:
            for kind, seconds in step.items():
                sums[kind] += seconds
        if not sums:
            return None, [0.0] * len(self.steps)
        worst = max(sums, key=lambda kind: sums[kind])
        return self._longest[worst][1], [step.get(worst, 0.0) for step in self.waits]

    def _name(self, before: str, event: str) -> str:
        if before == "load":
            return "data"
        name = _NAMES.get((before, event), "rest")
        # Between two passes of a closure the optimizer itself works.
        if self._updates and name in ("after backward", "rest"):
            return "update"
        return name

    def forward_begins(self, root: nn.Module, inputs: tuple[Any, ...]) -> None:
        self.cut("forward")

    def forward_ends(self, root: nn.Module, output: Any) -> None:
        self.cut("forward end")

    def backward_begins(self) -> None:
        self.cut("backward")

    def backward_ends(self) -> None:
        self.cut("backward end")

    def update_begins(self, optimizer: torch.optim.Optimizer) -> None:
        self.cut("update")
        self._updates += 1

    def update_ends(self, optimizer: torch.optim.Optimizer) -> None:
        self.cut("update end")
        self._updates = max(0, self._updates - 1)

    def zeroing_begins(self) -> None:
        self.cut("zero")

    def zeroing_ends(self) -> None:
        self.cut("zero end")

    @property
    def wholes(self) -> list[float]:
        """Seconds of each step."""
        return [sum(step.values()) for step in self.steps]

    def loader_begins(self, loader: Any, anew: bool) -> None:
        self.cut("load")
        self._asked = loader
        if anew:
            self._passes[_kind_of(loader)] = 0.0

    def loader_ends(self) -> None:
        self.cut("load end")

    def shares(self) -> dict[str, float]:
        """The share of each phase in the time of all steps, in their order."""
        sums: dict[str, float] = defaultdict(float)
        for step in self.steps:
            for name, seconds in step.items():
                sums[name] += seconds
        whole = sum(sums.values()) or 1.0
        order = ["data", "before", "forward", "backward", "after backward", "update", "rest"]
        return {name: sums[name] / whole for name in order if name in sums}


def _kind_of(loader: Any) -> Kind:
    if loader is None:
        return ()
    kinds = type(loader), *(type(getattr(loader, name, None)) for name in ("dataset", "sampler"))
    return *kinds, *(getattr(loader, name, None) for name in ("batch_size", "num_workers"))


def timed(
    step: Callable[[], object],
    seconds: float,
    least: int = 6,
    around: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Phases:
    """The phases of steps that are run for ``seconds``, and ``least`` times at least.

    Each runs in the context of ``around``, which is no part of its time.
    """
    phases = Phases()
    end = time.perf_counter() + seconds
    with listening(phases):
        while len(phases.steps) < least or time.perf_counter() < end:
            with around():
                phases.cut("begin")
                step()
                phases.cut("end")
    return phases
