"""The program under diagnosis: its step, its batches, and what was seen of both.

A step is seen by torch's global hooks. What the step itself calls, and not another module, is a
*root*; what a DataLoader calls to make a batch is none.
"""

from __future__ import annotations

import gc
import itertools
import math
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as module_hooks
from torch.optim import optimizer as optimizer_hooks
from torch.utils._pytree import tree_leaves, tree_map_only

from labkit.device import check_current, synchronize
from labkit.memory import StorageTracker
from labkit.restore import giving_back
from labkit.restore.memory import bytes_of, free_bytes
from whyslow.loading import timed
from whyslow.stacks import LOADING, mark_of

# Batches that are kept for experiments: so many, and so many bytes.
KEPT_BATCHES, KEPT_BYTES = 4, 2**28
# Of the free memory an experiment may take so much.
SAFE = 0.4
# Steps of which the memory is taken: the first ones make gradients and state.
MEMORY_STEPS = 4
# What calls a module with its hooks.
_CALL = nn.Module._call_impl.__code__


@dataclass
class Seen:
    """What one step did, in so many ``seconds``, in the thread that makes this.

    ``roots``: modules that the step itself calls. ``unused``: roots in evaluation mode that record
    a graph. ``device``: the accelerator that it works on, or cpu. ``on_new`` is given what has a
    state, before it is first used.
    """

    roots: list[nn.Module] = field(default_factory=list)
    optimizers: list[torch.optim.Optimizer] = field(default_factory=list)
    unused: list[nn.Module] = field(default_factory=list)
    device: str = "cpu"
    seconds: float = 0.0
    recomputed: bool = False
    lower_precision: bool = False
    anomaly: bool = False
    profiled: bool = False
    images: bool = False
    on_new: Callable[[Any], None] = lambda item: None
    _thread: int = field(default_factory=threading.get_ident)

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Of all roots, each once."""
        return list(dict.fromkeys(each for root in self.roots for each in root.parameters()))

    @property
    def compiled(self) -> bool:
        """Whether a root is compiled code."""
        kinds = [type(module).__name__ for root in self.roots for module in root.modules()]
        return "OptimizedModule" in kinds

    def is_here(self) -> bool:
        """Whether it is the step itself that runs, forward."""
        here = threading.get_ident() == self._thread and not _goes_back()
        return here and not torch.compiler.is_compiling()

    def enters(self, module: Any, inputs: Any) -> None:
        """A hook before a module's forward pass."""
        # Checkpointing computes it again within the backward pass.
        self.recomputed |= _goes_back()
        if not self.is_here():
            return
        callers = [frame.f_code for frame, _ in traceback.walk_stack(sys._getframe())]
        if sum(code is _CALL for code in callers) > 1:
            return
        if LOADING in map(mark_of, callers):
            # No root of the step; but a norm in it has a state that is put back.
            self.on_new(module)
            return
        self._add(self.roots, module)
        trained = any(each.requires_grad for each in module.parameters())
        if trained and not module.training and torch.is_grad_enabled():
            self.unused.append(module)
        tensors = tensors_of(inputs)
        for device in {each.device for each in (*module.parameters(), *tensors)}:
            check_current(device)
            if device.type not in ("cpu", "meta"):
                self.device = device.type
        self.images |= any(each.dim() == 4 for each in tensors)
        self.lower_precision |= torch.is_autocast_enabled(self.device)
        self.anomaly |= torch.is_anomaly_enabled()
        self.profiled |= torch.autograd._profiler_enabled()

    def updates(self, optimizer: Any, *_: Any) -> None:
        """A hook before an optimizer's step, which may be in the hook of a gradient."""
        if self.is_here() or _goes_back():
            self._add(self.optimizers, optimizer)

    def _add(self, known: list[Any], item: Any) -> None:
        if not any(item is each for each in known):
            self.on_new(item)
            known.append(item)


def _goes_back() -> bool:
    """Whether this thread is in a backward pass; an accelerator's is in one of autograd's."""
    return torch._C._current_graph_task_id() != -1


@contextmanager
def _listening(seen: Seen) -> Iterator[None]:
    """Tell ``seen`` what this thread's steps do inside, and the hooks of their gradients."""
    handles: list[Any] = []

    def remove() -> None:
        for handle in handles:
            handle.remove()

    with giving_back(remove):
        handles.append(module_hooks.register_module_forward_pre_hook(seen.enters))
        handles.append(optimizer_hooks.register_optimizer_step_pre_hook(seen.updates))
        yield


def tensors_of(values: Any) -> list[torch.Tensor]:
    """All tensors in a batch, or in whatever else."""
    return [each for each in tree_leaves(values) if isinstance(each, torch.Tensor)]


# A batch, or whatever else, with each of its tensors as a function makes it.
mapped = partial(tree_map_only, torch.Tensor)


def observe(step: Callable[[], object], on_new: Callable[[Any], None]) -> Seen:
    """Run one step and say what it did; ``on_new`` is that of `Seen`."""
    seen = Seen(on_new=on_new)
    with _listening(seen):
        synchronize()
        begin = time.perf_counter()
        step()
        synchronize()
        seen.seconds = time.perf_counter() - begin
    return seen


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

    def observe(self, batches: list[Any], on_new: Callable[[Any], None]) -> None:
        """See what a step does on the first of these; ``on_new`` is that of `Seen`."""
        self.seen = observe(self.serve(batches), on_new)
        self.step_seconds = self.seen.seconds

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
        """Whether so many times the memory of a step is sure to be less than `SAFE` of the free."""
        free = free_bytes(self.seen.device)
        return free is not None and self.peak is not None and times * self.peak < SAFE * free


def memory_of(step: Callable[[], object], device: str) -> tuple[int, int, float]:
    """Of real steps: bytes at the peak, those that stay after each, and their share of all made."""
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
