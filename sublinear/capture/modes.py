"""Modes that a piece switches on and off, where it ends between the two.

A checkpoint leaves a piece by an exception as soon as backward has all that it needs. The graph's
own call that would end autocast never comes: torch would keep 16-bit copies of weights for good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


def autocast_level() -> int:
    """How many contexts of autocast are open in this thread."""
    level: int = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return level


def keeping_modes(device: str) -> Callable[[], None]:
    """What puts autocast on a device, grad mode and levels of vmap back as they are now."""
    level, grad = autocast_level(), torch.is_grad_enabled()
    enabled, kind = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    cached = torch.is_autocast_cache_enabled()
    mapped = torch._C._functorch.get_dynamic_layer_stack_depth()

    def put_back() -> None:
        torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth(mapped)
        torch.set_grad_enabled(grad)
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, kind)
        torch.set_autocast_cache_enabled(cached)
        while autocast_level() > level:
            torch.autocast_decrement_nesting()
        if not level:
            torch.clear_autocast_cache()

    return put_back


@contextmanager
def ended_modes(device: str) -> Iterator[None]:
    """Where the block raises, they are as before it."""
    put_back = keeping_modes(device)
    try:
        yield
    except BaseException:
        put_back()
        raise
