"""Changes of a program for the length of a block: what the checks have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn

from labkit.restore import preserve_flags
from labkit.restore.attributes import exchanged

Change = Callable[[], AbstractContextManager[Any]]
Instead = Callable[[nn.Module, Any], Any]


def both(*changes: Change) -> Change:
    """All of these changes at once, the first outermost."""
    return partial(_nested, changes)


@contextmanager
def _nested(changes: tuple[Change, ...]) -> Iterator[None]:
    # No ExitStack: of that, an interrupt may leave a part undone.
    if not changes:
        yield
        return
    with changes[0](), _nested(changes[1:]):
        yield


@contextmanager
def forwards(
    roots: Iterable[nn.Module], instead: Callable[[nn.Module, Any], Any]
) -> Iterator[None]:
    """The forward pass of each root is what ``instead(root, forward)`` makes of it."""
    with exchanged((root, "forward", instead(root, root.forward)) for root in roots):
        yield


@contextmanager
def switched(switch: Callable[[], object], *setters: str) -> Iterator[None]:
    """torch's switches as ``switch()`` sets them, also where the step itself calls these setters
    of torch's.
    """
    with preserve_flags():
        switch()
        with exchanged((torch, name, nothing) for name in setters):
            yield


def nothing(*args: Any, **keywords: Any) -> None:
    """Stands for what switches something on or off."""
