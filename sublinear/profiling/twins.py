"""Blocks that do the same work on the same shapes: measured once.

What a block does is told by its code, and by the kinds, settings and shapes of the modules and
tensors that it uses; which weights they are does not matter.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum

import torch
from torch import nn
from torch.utils._pytree import tree_flatten, tree_leaves

from sublinear.blocks import Blocks, State

_OF_EVERY_MODULE = set(vars(nn.Module()))
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, Enum)


def likeness(blocks: Blocks, i: int, state: State) -> Hashable:
    """Equal for two blocks that do the same work on what enters them."""
    used = blocks.tensors(i)
    numbers = {id(tensor): number for number, tensor in enumerate(used)}
    modules = tuple(_module(module, numbers) for module in blocks.modules(i))
    return blocks.work(i), modules, tuple(map(_layout, used)), _entering(state)


def _module(module: nn.Module, numbers: dict[int, int]) -> Hashable:
    settings = []
    for name, value in vars(module).items():
        if name not in _OF_EVERY_MODULE:
            settings.append((name, _setting(value)))
    own = []
    for held in (module._parameters, module._buffers):
        for name, tensor in held.items():
            own.append((name, None if tensor is None else numbers[id(tensor)]))
    children = tuple(module._modules)
    return type(module), module.training, tuple(settings), tuple(own), children


def _setting(value: object) -> Hashable:
    """Equal for equal plain values, nested ones too, and for the same object."""
    plain = all(isinstance(leaf, _PLAIN) for leaf in tree_leaves(value))
    return (type(value), repr(value)) if plain else id(value)


def _layout(tensor: torch.Tensor) -> Hashable:
    strides = tensor.stride() if tensor.layout is torch.strided else None
    kind = tensor.dtype, tensor.device, tensor.layout
    return tuple(tensor.shape), strides, *kind, tensor.requires_grad


def _entering(state: State) -> Hashable:
    """Shapes and strides of what enters, and which of it shares memory."""
    leaves, spec = tree_flatten(state)
    numbers: dict[int, int] = {}
    found: list[Hashable] = [str(spec)]
    for leaf in leaves:
        if not torch.is_tensor(leaf):
            found.append(_setting(leaf))
            continue
        found.append(_layout(leaf))
        if leaf.layout is torch.strided:
            storage = leaf.untyped_storage()
            found.append(numbers.setdefault(storage._cdata, len(numbers)))
            found.append(storage.nbytes())
    return tuple(found)
