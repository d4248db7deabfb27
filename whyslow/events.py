"""When a step enters and leaves its modules, its backward pass and its optimizer.

All by torch's global hooks, and by two exchanges: ``Tensor.backward`` looks
`torch.autograd.backward` up when it is called, and ``zero_grad`` has no hook. What the step itself
calls, and not another module, is a *root*. What a DataLoader does while a batch is asked for is its
own: transforms are modules too, and no part of the model.
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
from torch.optim import optimizer as optimizer_hooks
from torch.utils.data import DataLoader
from torch.utils.data import dataloader as loading

from labkit.restore import giving_back
from labkit.restore.attributes import exchanged


class Listener:
    """What is told of a step; every method does nothing by default."""

    def forward_begins(self, root: nn.Module, inputs: tuple[Any, ...]) -> None:
        """A root is called."""

    def forward_ends(self, root: nn.Module, output: Any) -> None:
        """A root has returned."""

    def backward_begins(self) -> None:
        """`torch.autograd.backward` is called."""

    def backward_ends(self) -> None:
        """It has returned."""

    def update_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer's step is called."""

    def update_ends(self, optimizer: torch.optim.Optimizer) -> None:
        """It has returned."""

    def zeroing_begins(self) -> None:
        """An optimizer's ``zero_grad`` is called."""

    def zeroing_ends(self) -> None:
        """It has returned."""

    def loader_begins(self, source: Any) -> None:
        """A pass over ``source``, a DataLoader, begins; or its iterator is asked for a batch."""

    def loader_calls(self, root: nn.Module) -> None:
        """A module is called to make a batch."""

    def loader_ends(self) -> None:
        """The batch has come."""


class _Own:
    """The thread that it is made in: what is done by it, and by its backward pass."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._backwards = 0
        self.loads = False

    def calls(self) -> bool:
        """Whether this thread is it."""
        return threading.get_ident() == self._thread

    def trains(self) -> bool:
        """Whether this thread is it, and makes no batch."""
        return self.calls() and not self.loads

    def causes(self) -> bool:
        """Whether this thread is it, or one of autograd's while it waits for its backward pass.

        On an accelerator the hooks of gradients run there, and an optimizer in them.
        """
        if self.calls():
            return not self.loads
        # So Python calls a thread that it has not started.
        foreign = isinstance(threading.current_thread(), threading._DummyThread)
        return foreign and self._backwards > 0

    @contextmanager
    def in_backward(self) -> Iterator[None]:
        """Around a backward pass of the thread."""
        self._backwards += 1
        try:
            yield
        finally:
            self._backwards -= 1


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Tell ``listener`` what this thread's steps do inside, and the hooks of their gradients."""
    own = _Own()
    depth = 0

    def enters(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        nonlocal depth
        if not own.calls() or _is_compiling():
            return
        depth += 1
        if depth == 1:
            _enters(listener, own, module, inputs)

    def leaves(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        nonlocal depth
        if not own.calls() or _is_compiling():
            return
        depth = max(0, depth - 1)
        if depth == 0 and not own.loads:
            listener.forward_ends(module, output)

    handles: list[Any] = []

    def remove() -> None:
        for handle in handles:
            handle.remove()

    changes = (
        (torch.autograd, "backward", _told(listener, own)),
        (torch.optim.Optimizer, "zero_grad", _zeroes(listener, own)),
        *_loads(listener, own),
    )
    # No ExitStack: of its callbacks, an interrupt may leave some undone.
    with giving_back(remove), exchanged(changes):
        handles.append(module_hooks.register_module_forward_pre_hook(enters))
        handles.append(module_hooks.register_module_forward_hook(leaves, always_call=True))
        handles.append(optimizer_hooks.register_optimizer_step_pre_hook(_begins(listener, own)))
        handles.append(optimizer_hooks.register_optimizer_step_post_hook(_ends(listener, own)))
        yield


def _enters(listener: Listener, own: _Own, module: nn.Module, inputs: tuple[Any, ...]) -> None:
    if own.loads:
        listener.loader_calls(module)
    else:
        listener.forward_begins(module, inputs)


def _is_compiling() -> bool:
    return torch.compiler.is_compiling()


def _begins(listener: Listener, own: _Own) -> Callable[..., None]:
    def begins(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if own.causes():
            listener.update_begins(optimizer)

    return begins


def _ends(listener: Listener, own: _Own) -> Callable[..., None]:
    def ends(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if own.causes():
            listener.update_ends(optimizer)

    return ends


def _told(listener: Listener, own: _Own) -> Callable[..., None]:
    backward = torch.autograd.backward

    def told(*args: Any, **keywords: Any) -> None:
        if not own.trains():
            # Of another thread, in a loader, or within a backward pass that is told already.
            backward(*args, **keywords)
            return
        listener.backward_begins()
        with own.in_backward():
            backward(*args, **keywords)
        listener.backward_ends()

    return told


def _zeroes(listener: Listener, own: _Own) -> Callable[..., None]:
    zero_grad = torch.optim.Optimizer.zero_grad

    @functools.wraps(zero_grad)
    def zeroes(*args: Any, **keywords: Any) -> None:
        if not own.causes():
            zero_grad(*args, **keywords)
            return
        listener.zeroing_begins()
        zero_grad(*args, **keywords)
        listener.zeroing_ends()

    return zeroes


def _loads(listener: Listener, own: _Own) -> Iterator[tuple[Any, str, Any]]:
    """What tells of DataLoaders: of one that another one reads from, nothing."""
    kind: Any = loading._BaseDataLoaderIter
    start, ask = DataLoader.__iter__, kind.__next__

    def begins(loader: Any) -> Any:
        return told(start, loader) if own.trains() else start(loader)

    def asks(iterator: Any) -> Any:
        return told(ask, iterator) if own.trains() else ask(iterator)

    def told(does: Callable[[Any], Any], source: Any) -> Any:
        listener.loader_begins(source)
        own.loads = True
        try:
            return does(source)
        finally:
            own.loads = False
            listener.loader_ends()

    yield DataLoader, "__iter__", begins
    yield kind, "__next__", asks
