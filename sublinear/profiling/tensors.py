"""Tensors that cross between blocks: their storages, and a backward that begins at them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.utils._pytree import tree_leaves, tree_map_only

from sublinear.blocks import State


def tensors(tree: object) -> Iterator[torch.Tensor]:
    """All tensors in nested containers."""
    return filter(torch.is_tensor, tree_leaves(tree))


def storages(tree: object) -> list[tuple[int, int]]:
    """(identity, bytes) of the storages of all tensors in ``tree``, each once."""
    found: dict[int, int] = {}
    for tensor in tensors(tree):
        storage = tensor.untyped_storage()
        found[storage._cdata] = storage.nbytes()
    return list(found.items())


def size_of(gradient: torch.Tensor) -> int:
    """Bytes of a gradient, of a sparse one as well."""
    if gradient.is_sparse:
        return gradient._indices().nbytes + gradient._values().nbytes
    return gradient.nbytes


def leaves(state: State) -> State:
    """The same values, cut off from what made them."""
    detached: State = tree_map_only(torch.Tensor, _detached, state)
    return detached


def _detached(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().requires_grad_(tensor.requires_grad)


def pull_on(state: State) -> torch.Tensor | None:
    """A scalar whose backward makes the gradients of all of ``state``, as a next block would.

    None where nothing in it needs a gradient.
    """
    wanted = [tensor for tensor in tensors(state) if tensor.requires_grad]
    if not wanted:
        return None
    scalar: torch.Tensor = _Pull.apply(*wanted)
    return scalar


class _Pull(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *tensors: torch.Tensor) -> torch.Tensor:
        ctx.layouts = []
        for tensor in tensors:
            like = torch.empty_like(tensor, device="meta")
            ctx.layouts.append((like.shape, like.stride(), like.dtype, tensor.device))
        return tensors[0].new_zeros(())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *_: torch.Tensor) -> tuple[torch.Tensor, ...]:
        grads = []
        for shape, stride, dtype, device in ctx.layouts:
            grads.append(torch.empty_strided(shape, stride, dtype=dtype, device=device).fill_(1))
        return tuple(grads)
