"""Torch's stacks of modes and of hooks on saved tensors, of this thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.overrides import _pop_mode as leave_function_mode
from torch.utils._python_dispatch import _pop_mode as leave_dispatch_mode

from labkit.restore.undo import giving_back


class _Open(NamedTuple):
    """How many modes of each kind there are, and the latest hooks."""

    dispatch: int
    function: int
    hooks: Any


@contextmanager
def preserve_modes() -> Iterator[None]:
    """Leave what is still open at the end.

    An interrupt may strike when a mode is about to be left: torch would then go on to count, or to
    keep, all that the program computes.
    """
    with giving_back(partial(_leave, _open())):
        yield


def _open() -> _Open:
    return _Open(
        torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack(), _hooks()
    )


def _leave(before: _Open) -> None:
    while torch._C._len_torch_dispatch_stack() > before.dispatch:
        leave_dispatch_mode()
    while torch._C._len_torch_function_stack() > before.function:
        leave_function_mode()
    while (hooks := _hooks()) is not None and hooks != before.hooks:
        torch._C._autograd._pop_saved_tensors_default_hooks()


def _hooks() -> Any:
    return torch._C._autograd._top_saved_tensors_default_hooks(True)
