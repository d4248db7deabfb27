"""One step, looked at: which models and optimizers it uses, and what is switched on in it.

All by torch's global hooks, and by exchanges of what has none. What the step itself calls, and not
another module, is a *root*; what a DataLoader calls to make a batch, such as transforms, is none.
"""

from __future__ import annotations

import builtins
import functools
import io
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
import torch.utils.checkpoint as recomputing
from torch import nn
from torch.nn.modules import module as module_hooks
from torch.optim import optimizer as optimizer_hooks
from torch.utils._pytree import tree_leaves, tree_map

from labkit.counters import CountingMode
from labkit.device import check_current, synchronize
from labkit.restore import giving_back
from labkit.restore.attributes import exchanged
from labkit.restore.memory import bytes_of
from whyslow.experiment import Calls


@dataclass
class Seen:
    """What one step did, in so many ``seconds``.

    ``roots``: modules that the step itself calls. ``launches``: operators that compute.
    ``unused``: roots in evaluation mode that recorded a graph.
    """

    roots: list[nn.Module] = field(default_factory=list)
    optimizers: list[torch.optim.Optimizer] = field(default_factory=list)
    unused: list[nn.Module] = field(default_factory=list)
    devices: set[torch.device] = field(default_factory=set)
    seconds: float = 0.0
    launches: int = 0
    host_reads: int = 0
    pageable: int = 0
    backwards: int = 0
    recomputed: int = 0
    lower_precision: bool = False
    anomaly: bool = False
    deterministic: bool = False
    profiled: bool = False
    images: bool = False
    written: list[str] = field(default_factory=list)
    on_new: Callable[[Any], None] = lambda item: None

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

    def calls(self, root: nn.Module, inputs: Any) -> None:
        """The step calls this module."""
        if not any(root is known for known in self.roots):
            self.on_new(root)
            self.roots.append(root)
        tensors = tensors_of(inputs)
        for device in {each.device for each in (*root.parameters(), *tensors)} - self.devices:
            check_current(device)
            self.devices.add(device)
        self.images |= any(each.dim() == 4 for each in tensors)
        self.lower_precision |= torch.is_autocast_enabled(self.device)
        self.anomaly |= torch.is_anomaly_enabled()
        self.deterministic |= torch.are_deterministic_algorithms_enabled()
        self.profiled |= torch.autograd._profiler_enabled()


class _Hooks:
    """Tells `Seen` what the thread does that this is made in, and its backward passes."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._thread = threading.get_ident()
        self._backwards = self._depth = 0
        self._loads = False

    def _is_here(self) -> bool:
        return threading.get_ident() == self._thread

    def enters(self, module: Any, inputs: Any) -> None:
        """A hook before a module's forward pass."""
        if not self._is_here() or torch.compiler.is_compiling():
            return
        self._depth += 1
        if self._depth > 1:
            return
        self._loads = _in_a_loader(sys._getframe(1))
        if self._loads:
            # No root of the step; but a norm in it has a state that is put back.
            self._seen.on_new(module)
        else:
            self._seen.calls(module, inputs)

    def leaves(self, module: Any, inputs: Any, output: Any) -> None:
        """A hook behind it."""
        if not self._is_here() or torch.compiler.is_compiling():
            return
        self._depth = max(0, self._depth - 1)
        evaluates = not module.training and torch.is_grad_enabled()
        if self._depth or self._loads or not evaluates:
            return
        if any(each.requires_grad for each in tensors_of(output)):
            self._seen.unused.append(module)

    def updates(self, optimizer: Any, *_: Any) -> None:
        """A hook before an optimizer's step."""
        # On an accelerator the hooks of gradients, and an optimizer in them, run in a thread of
        # autograd's: so Python calls one that it has not started.
        foreign = isinstance(threading.current_thread(), threading._DummyThread)
        if not self._is_here() and not (foreign and self._backwards > 0):
            return
        if not any(optimizer is known for known in self._seen.optimizers):
            self._seen.on_new(optimizer)
            self._seen.optimizers.append(optimizer)

    def backward(self, does: Callable[..., Any]) -> Callable[..., Any]:
        """What ``Tensor.backward`` looks up when it is called."""

        @functools.wraps(does)
        def counted(*args: Any, **keywords: Any) -> Any:
            here = self._is_here()
            self._seen.backwards += here
            self._backwards += here
            try:
                return does(*args, **keywords)
            finally:
                self._backwards -= here

        return counted


def _in_a_loader(frame: FrameType | None) -> bool:
    while frame is not None:
        if "torch/utils/data/" in frame.f_code.co_filename.replace("\\", "/"):
            return True
        frame = frame.f_back
    return False


@contextmanager
def _listening(seen: Seen) -> Iterator[None]:
    """Tell ``seen`` what this thread's steps do inside, and the hooks of their gradients."""
    hooks = _Hooks(seen)
    handles: list[Any] = []

    def remove() -> None:
        for handle in handles:
            handle.remove()

    backward = torch.autograd, "backward", hooks.backward(torch.autograd.backward)
    # No ExitStack: of its callbacks, an interrupt may leave some undone.
    with giving_back(remove), exchanged([backward]):
        handles.append(module_hooks.register_module_forward_pre_hook(hooks.enters))
        handles.append(module_hooks.register_module_forward_hook(hooks.leaves, always_call=True))
        handles.append(optimizer_hooks.register_optimizer_step_pre_hook(hooks.updates))
        yield


def tensors_of(values: Any) -> list[torch.Tensor]:
    """All tensors in a batch, or in whatever else."""
    return [each for each in tree_leaves(values) if isinstance(each, torch.Tensor)]


def mapped(values: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """A batch, or whatever else, with each of its tensors as ``change`` makes it."""
    return tree_map(lambda each: change(each) if isinstance(each, torch.Tensor) else each, values)


def from_host(func: Any, args: Any) -> torch.Tensor | None:
    """The CPU's tensor that this call of torch's Python API moves, if it is one that does."""
    if func in (torch.Tensor.to, torch.Tensor.cuda) and args[0].device.type == "cpu":
        source: torch.Tensor = args[0]
        return source
    return None


def observe(step: Callable[[], object], on_new: Callable[[Any], None]) -> Seen:
    """Run one step and say what it did. ``on_new`` is given each root and optimizer before it is
    first used.
    """
    seen = Seen(on_new=on_new)
    with _listening(seen), _writes(seen), _recomputes(seen):
        synchronize()
        begin = time.perf_counter()
        step()
        synchronize()
        seen.seconds = time.perf_counter() - begin
    return seen


def count_operators(step: Callable[[], object], seen: Seen) -> None:
    """Note in ``seen`` what operators one more step calls."""

    def copied(func: Any, args: Any, kwargs: Any) -> Any:
        result, source = func(*args, **kwargs), from_host(func, args)
        if source is not None and result.device.type != "cpu" and not source.is_pinned():
            # Bytes that go to an accelerator from memory that is not page-locked.
            seen.pageable += bytes_of(source)
        return result

    seen.pageable = 0
    with Calls(copied), CountingMode() as operators:
        step()
    seen.launches, seen.host_reads = operators.launches, operators.host_reads


@contextmanager
def _writes(seen: Seen) -> Iterator[None]:
    """Note the files that the step opens for writing."""
    opened = builtins.open

    def told(file: Any, mode: str = "r", *args: Any, **keywords: Any) -> Any:
        if set(mode) & set("wax+") and not isinstance(file, int):
            seen.written.append(str(file))
        return opened(file, mode, *args, **keywords)

    save = torch.save

    # Its names are torch's: they may be given by name.
    def saved(obj: Any, f: Any, *args: Any, **keywords: Any) -> None:
        if isinstance(f, str) or hasattr(f, "__fspath__"):
            seen.written.append(str(f))
        save(obj, f, *args, **keywords)

    with exchanged([(builtins, "open", told), (io, "open", told), (torch, "save", saved)]):
        yield


def recomputers() -> Iterator[tuple[Any, str]]:
    """What torch.utils looks up when it is asked to recompute, by version."""
    for name in ("", "_impl"):
        function = f"_checkpoint_without_reentrant_generator{name}"
        if hasattr(recomputing, function):
            yield recomputing, function
    yield recomputing.CheckpointFunction, "apply"


@contextmanager
def _recomputes(seen: Seen) -> Iterator[None]:
    """Count the calls whose activations are computed again in the backward pass."""

    def counted(original: Callable[..., Any]) -> Callable[..., Any]:
        def counts(*args: Any, **keywords: Any) -> Any:
            seen.recomputed += 1
            return original(*args, **keywords)

        return counts

    with exchanged((owner, name, counted(getattr(owner, name))) for owner, name in recomputers()):
        yield
