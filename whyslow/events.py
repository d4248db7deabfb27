"""When a step enters and leaves its modules, its backward pass and its optimizer.

All by torch's global hooks, and by exchanges: ``Tensor.backward`` looks `torch.autograd.backward`
up when it is called; loaders and ``zero_grad`` have no hooks. What the step itself calls, and not
another module, is a *root*. What a DataLoader does while a batch is asked for is its own:
transforms are modules too, and no part of the model.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as module_hooks
from torch.optim import Optimizer
from torch.optim import optimizer as optimizer_hooks
from torch.utils.data import DataLoader
from torch.utils.data import dataloader as loading

from labkit.restore import giving_back
from labkit.restore.attributes import exchanged

# What begins and ends: with the root, the optimizer, or the DataLoader or its iterator.
FORWARD, BACKWARD, UPDATE = "forward", "backward", "update"
ZEROING, DATA = "zeroing", "data"
# A module that is called to make a batch; it only begins.
IN_LOADER = "in the loader"


class Listener:
    """What is told of a step; nothing is done with it by default."""

    def begins(self, what: str, item: Any, values: Any) -> None:
        """``item`` is called, a root with these inputs as ``values``."""

    def ends(self, what: str, item: Any, values: Any) -> None:
        """It has returned, a root with this output as ``values``."""


class _Telling:
    """Tells a listener what the thread does that this is made in, and its backward passes."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._thread = threading.get_ident()
        self._backwards = self._depth = 0
        self._loads = False

    def _is_here(self) -> bool:
        return threading.get_ident() == self._thread

    def _trains(self) -> bool:
        """Whether this thread is it, and makes no batch."""
        return self._is_here() and not self._loads

    def _causes(self) -> bool:
        """Whether this thread is it, or one of autograd's while it waits for its backward pass.

        On an accelerator the hooks of gradients run there, and an optimizer in them.
        """
        if self._is_here():
            return not self._loads
        # So Python calls a thread that it has not started.
        foreign = isinstance(threading.current_thread(), threading._DummyThread)
        return foreign and self._backwards > 0

    def enters(self, module: Any, inputs: Any) -> None:
        """A hook before a module's forward pass."""
        if not self._is_here() or torch.compiler.is_compiling():
            return
        self._depth += 1
        if self._depth == 1:
            self._listener.begins(IN_LOADER if self._loads else FORWARD, module, inputs)

    def leaves(self, module: Any, inputs: Any, output: Any) -> None:
        """A hook behind it."""
        if not self._is_here() or torch.compiler.is_compiling():
            return
        self._depth = max(0, self._depth - 1)
        if self._depth == 0 and not self._loads:
            self._listener.ends(FORWARD, module, output)

    def updates(self, optimizer: Any, *_: Any) -> None:
        """A hook before an optimizer's step."""
        if self._causes():
            self._listener.begins(UPDATE, optimizer, None)

    def updated(self, optimizer: Any, *_: Any) -> None:
        """A hook behind it."""
        if self._causes():
            self._listener.ends(UPDATE, optimizer, None)

    def exchanges(self) -> Iterator[tuple[Any, str, Any]]:
        """What has no hooks. Of what is asked for within itself, nothing more is told."""
        kind: Any = loading._BaseDataLoaderIter
        yield torch.autograd, "backward", self._told(BACKWARD, torch.autograd.backward)
        yield Optimizer, "zero_grad", self._told(ZEROING, Optimizer.zero_grad)
        yield nn.Module, "zero_grad", self._told(ZEROING, nn.Module.zero_grad)
        yield DataLoader, "__iter__", self._told(DATA, DataLoader.__iter__)
        yield kind, "__next__", self._told(DATA, kind.__next__)

    def _told(self, what: str, does: Callable[..., Any]) -> Callable[..., Any]:
        asked = self._causes if what == ZEROING else self._trains

        @functools.wraps(does)
        def told(*args: Any, **keywords: Any) -> Any:
            if not asked():
                return does(*args, **keywords)
            item = args[0] if args else None
            self._listener.begins(what, item, None)
            self._backwards += what == BACKWARD
            self._loads = self._loads or what == DATA
            try:
                return does(*args, **keywords)
            finally:
                self._backwards -= what == BACKWARD
                self._loads = self._loads and what != DATA
                self._listener.ends(what, item, None)

        return told


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Tell ``listener`` what this thread's steps do inside, and the hooks of their gradients."""
    telling = _Telling(listener)
    handles: list[Any] = []

    def remove() -> None:
        for handle in handles:
            handle.remove()

    # No ExitStack: of its callbacks, an interrupt may leave some undone.
    with giving_back(remove), exchanged(telling.exchanges()):
        handles.append(module_hooks.register_module_forward_pre_hook(telling.enters))
        handles.append(module_hooks.register_module_forward_hook(telling.leaves, always_call=True))
        handles.append(optimizer_hooks.register_optimizer_step_pre_hook(telling.updates))
        handles.append(optimizer_hooks.register_optimizer_step_post_hook(telling.updated))
        yield
