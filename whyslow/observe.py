"""One step, looked at: which models and optimizers it uses, and what is switched on in it.

All by torch's global hooks, and by exchanges of what has none. What the step itself calls, and not
another module, is a *root*; what a DataLoader calls to make a batch, such as transforms, is none.
"""

from __future__ import annotations

import builtins
import io
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.utils.checkpoint as recomputing
from torch import nn
from torch.nn.modules import module as module_hooks
from torch.optim import optimizer as optimizer_hooks
from torch.utils._pytree import tree_leaves, tree_map

from labkit.device import check_current, synchronize
from labkit.restore import giving_back
from labkit.restore.attributes import exchanged
from whyslow.stacks import LOADING, stack_of


@dataclass
class Seen:
    """What one step did, in so many ``seconds``, in the thread that makes this.

    ``roots``: modules that the step itself calls. ``unused``: roots in evaluation mode that
    recorded a graph. ``on_new`` is given what has a state, before it is first used.
    """

    roots: list[nn.Module] = field(default_factory=list)
    optimizers: list[torch.optim.Optimizer] = field(default_factory=list)
    unused: list[nn.Module] = field(default_factory=list)
    devices: set[torch.device] = field(default_factory=set)
    seconds: float = 0.0
    backwards: int = 0
    recomputed: int = 0
    lower_precision: bool = False
    anomaly: bool = False
    deterministic: bool = False
    profiled: bool = False
    images: bool = False
    written: list[str] = field(default_factory=list)
    on_new: Callable[[Any], None] = lambda item: None
    _thread: int = field(default_factory=threading.get_ident)
    _depth: int = 0
    _loads: bool = False

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Of all roots, each once."""
        return list(dict.fromkeys(each for root in self.roots for each in root.parameters()))

    @property
    def device(self) -> str:
        """The accelerator that the step works on, or cpu."""
        others = sorted({each.type for each in self.devices} - {"cpu", "meta"})
        return others[0] if others else "cpu"

    @property
    def compiled(self) -> bool:
        """Whether a root is compiled code."""
        kinds = [type(module).__name__ for root in self.roots for module in root.modules()]
        return "OptimizedModule" in kinds

    def _is_here(self) -> bool:
        return threading.get_ident() == self._thread and not torch.compiler.is_compiling()

    def enters(self, module: Any, inputs: Any) -> None:
        """A hook before a module's forward pass."""
        if not self._is_here():
            return
        self._depth += 1
        if self._depth > 1:
            return
        self._loads = LOADING in stack_of(sys._getframe(1))
        if self._loads:
            # No root of the step; but a norm in it has a state that is put back.
            self.on_new(module)
            return
        self._add(self.roots, module)
        tensors = tensors_of(inputs)
        for device in {each.device for each in (*module.parameters(), *tensors)} - self.devices:
            check_current(device)
            self.devices.add(device)
        self.images |= any(each.dim() == 4 for each in tensors)
        self.lower_precision |= torch.is_autocast_enabled(self.device)
        self.anomaly |= torch.is_anomaly_enabled()
        self.deterministic |= torch.are_deterministic_algorithms_enabled()
        self.profiled |= torch.autograd._profiler_enabled()

    def _add(self, known: list[Any], item: Any) -> None:
        if not any(item is each for each in known):
            self.on_new(item)
            known.append(item)

    def leaves(self, module: Any, inputs: Any, output: Any) -> None:
        """A hook behind it."""
        if not self._is_here():
            return
        self._depth = max(0, self._depth - 1)
        evaluates = not module.training and torch.is_grad_enabled()
        if self._depth or self._loads or not evaluates:
            return
        if any(each.requires_grad for each in tensors_of(output)):
            self.unused.append(module)

    def updates(self, optimizer: Any, *_: Any) -> None:
        """A hook before an optimizer's step."""
        # On an accelerator the hooks of gradients, and an optimizer in them, run in a thread of
        # autograd's: so Python calls one that it has not started.
        foreign = isinstance(threading.current_thread(), threading._DummyThread)
        if self._is_here() or (foreign and self.backwards):
            self._add(self.optimizers, optimizer)

    def goes_back(self, *_: Any, **__: Any) -> None:
        """Before a backward pass."""
        self.backwards += self._is_here()

    def recomputes(self, *_: Any, **__: Any) -> None:
        """Before a call whose activations are computed again in the backward pass."""
        self.recomputed += 1

    def opens(self, file: Any, mode: str = "r", *_: Any, **__: Any) -> None:
        """Before a file is opened."""
        if set(mode) & set("wax+") and isinstance(file, (str, os.PathLike)):
            self.written.append(str(file))


def _telling(owner: Any, name: str, tell: Callable[..., None]) -> tuple[Any, str, Any]:
    """The change by which ``owner.name`` first tells what it is called with."""
    does = getattr(owner, name)

    def told(*args: Any, **keywords: Any) -> Any:
        tell(*args, **keywords)
        return does(*args, **keywords)

    return owner, name, told


@contextmanager
def _listening(seen: Seen) -> Iterator[None]:
    """Tell ``seen`` what this thread's steps do inside, and the hooks of their gradients."""
    handles: list[Any] = []

    def remove() -> None:
        for handle in handles:
            handle.remove()

    changes = [
        _telling(torch.autograd, "backward", seen.goes_back),
        _telling(builtins, "open", seen.opens),
        _telling(io, "open", seen.opens),
        # Its arguments may be given by name.
        _telling(torch, "save", lambda obj, f, *_, **__: seen.opens(f, "w")),
        *(_telling(*each, seen.recomputes) for each in recomputers()),
    ]
    # No ExitStack: of its callbacks, an interrupt may leave some undone.
    with giving_back(remove), exchanged(changes):
        handles.append(module_hooks.register_module_forward_pre_hook(seen.enters))
        handles.append(module_hooks.register_module_forward_hook(seen.leaves, always_call=True))
        handles.append(optimizer_hooks.register_optimizer_step_pre_hook(seen.updates))
        yield


def recomputers() -> Iterator[tuple[Any, str]]:
    """What torch.utils looks up when it is asked to recompute, by version."""
    for name in ("", "_impl"):
        function = f"_checkpoint_without_reentrant_generator{name}"
        if hasattr(recomputing, function):
            yield recomputing, function
    yield recomputing.CheckpointFunction, "apply"


def tensors_of(values: Any) -> list[torch.Tensor]:
    """All tensors in a batch, or in whatever else."""
    return [each for each in tree_leaves(values) if isinstance(each, torch.Tensor)]


def mapped(values: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """A batch, or whatever else, with each of its tensors as ``change`` makes it."""
    return tree_map(lambda each: change(each) if isinstance(each, torch.Tensor) else each, values)


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
