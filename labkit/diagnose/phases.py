"""Where the time of a step goes, by the clock: data, forward, backward, clipping, update, the rest.

The step is cut where it enters and leaves its modules, its backward pass and its optimizer. On an
accelerator each cut waits for the device, so that its work counts where it was asked for; the step
takes longer that way, and only shares are used.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data import dataloader as loading

from labkit.device import synchronize
from labkit.diagnose.events import Listener, listening
from labkit.patches import patched

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


class Phases(Listener):
    """Seconds of each phase of a step; ``cut("begin")`` and ``cut("end")`` stand around it.

    ``steps`` has one entry a step.
    """

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []
        self.loader: Any = None
        self._last = ("", 0.0)
        self._now: dict[str, float] = defaultdict(float)

    def cut(self, event: str) -> None:
        """One event of the step, now."""
        synchronize()
        now = time.perf_counter()
        before, since = self._last
        if event == "begin":
            self._now = defaultdict(float)
        else:
            self._now[self._name(before, event)] += now - since
        if event == "end":
            self.steps.append(dict(self._now))
        self._last = event, time.perf_counter()

    def _name(self, before: str, event: str) -> str:
        if before == "load":
            return "data"
        return _NAMES.get((before, event), "rest")

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

    def update_ends(self, optimizer: torch.optim.Optimizer) -> None:
        self.cut("update end")

    def zeroing_begins(self) -> None:
        self.cut("zero")

    def zeroing_ends(self) -> None:
        self.cut("zero end")

    @property
    def wholes(self) -> list[float]:
        """Seconds of each step."""
        return [sum(step.values()) for step in self.steps]

    def loader_begins(self, loader: Any) -> None:
        """A batch, or a new pass over a loader, is asked for; None for a batch."""
        self.loader = loader if loader is not None else self.loader
        self.cut("load")

    def loader_ends(self) -> None:
        """It has come."""
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


@contextmanager
def loaders_told(phases: Phases) -> Iterator[None]:
    """Tell ``phases`` what this thread asks of any DataLoader inside."""
    kind: Any = loading._BaseDataLoaderIter
    thread = threading.get_ident()

    def begins(loader: Any) -> Any:
        if threading.get_ident() != thread:
            return start(loader)
        phases.loader_begins(loader)
        try:
            return start(loader)
        finally:
            phases.loader_ends()

    def asks(iterator: Any) -> Any:
        if threading.get_ident() != thread:
            return ask(iterator)
        phases.loader_begins(None)
        try:
            return ask(iterator)
        finally:
            phases.loader_ends()

    start, ask = DataLoader.__iter__, kind.__next__
    with patched(DataLoader, "__iter__", begins), patched(kind, "__next__", asks):
        yield


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
    with listening(phases), loaders_told(phases):
        while len(phases.steps) < least or time.perf_counter() < end:
            with around():
                phases.cut("begin")
                step()
                phases.cut("end")
    return phases
