"""Pieces that Inductor compiles, one by one: what is computed again is fused as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from labkit.compiler import trouble_with_compiling


def compiled(piece: Callable[..., Any]) -> Callable[..., Any]:
    """The code of a piece, compiled at its first call, for the shapes of each call.

    It draws random numbers as the code itself does, so that those of the plain model stay.
    """
    # Code that is written while the compiler captures is marked for it to skip: this is not.
    assert isinstance(piece, fx.GraphModule)
    fresh = fx.GraphModule(piece, piece.graph)
    assert fresh.code
    return torch.compile(
        fresh.forward, dynamic=False, fullgraph=True, options={"fallback_random": True}
    )


def check_compiler(device: torch.device) -> None:
    """ValueError, with what PyTorch says, where it cannot compile for a device."""
    if trouble := trouble_with_compiling(device):
        raise ValueError(
            f"compile=True: PyTorch cannot compile for {device} here ({trouble}): install the "
            "compiler that it asks for, or leave out compile=True"
        )
