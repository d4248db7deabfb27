"""Tensors, arrays, generators, containers and what holds them: as they were, in place."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn.parameter import is_lazy

from labkit.restore.bindings import Bindings, attributes_of, has_attributes, has_slots
from labkit.restore.contents import BUFFERS, CONTAINERS, keeping
from labkit.restore.generators import GENERATORS
from labkit.restore.undo import PutBack, call_all, giving_back

# By bytes. They compare bit by bit, also zeros of both signs and what is no number.
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

_COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
# Kinds whose own attributes are not followed: `_parts` knows what they hold.
_PLAIN = (torch.Tensor, np.ndarray, *GENERATORS, *CONTAINERS, *BUFFERS, tuple)


@contextmanager
def preserve_state(*objects: Any) -> Iterator[None]:
    """Put ``objects`` back as they were, in place and bit for bit.

    Follows their attributes through containers, tensors, arrays, random generators, modules,
    optimizers and all that has a ``state_dict``. Other objects that they hold are out of reach:
    list them too. Costs one copy of every tensor, on its device, and of every array. TypeError for
    an object that holds no state.
    """
    with giving_back(partial(call_all, remember(objects))):
        yield


def remember(objects: tuple[Any, ...], copies: str | None = None) -> list[PutBack]:
    """What puts back ``objects`` and all that they hold, as `preserve_state`, in this order.

    ``copies``: the device where copies of tensors wait; None: each on its own.
    """
    undo: list[PutBack] = []
    for item in held(objects):
        undo += put_backs(item, copies)
    return undo


def held(objects: tuple[Any, ...]) -> list[Any]:
    """``objects``, and what `preserve_state` follows from them, each once.

    TypeError for an object that holds no state, ValueError for a parameter without a shape yet.
    """
    todo = list(objects)
    listed = set(map(id, objects))
    # Keeps them alive, so that an id stays its object's own.
    seen: dict[int, Any] = {}
    while todo:
        item = todo.pop()
        if id(item) in seen:
            continue
        if is_lazy(item):
            raise ValueError(
                "a model has parameters without a shape yet, which cannot be put back: run it once "
                "on an example before"
            )
        seen[id(item)] = item
        todo += _parts(item)
        if isinstance(item, _PLAIN):
            continue
        if id(item) in listed or _has_state(item):
            todo.append(_attributes(item))
    return list(seen.values())


def put_backs(item: Any, copies: str | None) -> list[PutBack]:
    """What puts back the item itself, without what it holds."""
    if isinstance(item, torch.Tensor):
        return [_remember_tensor(item, copies)]
    if isinstance(item, torch.Generator):
        return [partial(item.set_state, item.get_state())]
    if isinstance(item, np.random.RandomState):
        return [partial(item.set_state, item.get_state())]
    if isinstance(item, np.random.Generator):
        return [partial(setattr, item.bit_generator, "state", item.bit_generator.state)]
    if isinstance(item, random.Random):
        return [partial(item.setstate, item.getstate())]
    if isinstance(item, np.ndarray) and item.flags.writeable:
        return [partial(_rewrite, item, item.copy())]
    if isinstance(item, (*CONTAINERS, *BUFFERS)):
        return [keeping(item)]
    if not isinstance(item, _PLAIN) and has_slots(item):
        return [Bindings([], [], [item]).restore]
    return []


def _rewrite(array: np.ndarray, before: np.ndarray) -> None:
    """Only where bits differ: its memory may be a file's, or closed to writing by now."""
    if array.dtype == object:
        alike = all(one is two for one, two in zip(array.flat, before.flat, strict=True))
    else:
        alike = array.tobytes() == before.tobytes()
    if not alike:
        array[...] = before


def _parts(item: Any) -> list[Any]:
    """What the item holds, by its kind."""
    if isinstance(item, torch.Tensor) and item.is_leaf:
        return [item.grad]
    if isinstance(item, dict):
        return [*item.keys(), *item.values()]
    if isinstance(item, (*CONTAINERS, tuple)):
        return list(item)
    if isinstance(item, np.ndarray) and item.dtype == object:
        return list(item.flat)
    if isinstance(item, torch.jit.ScriptModule):
        # They are in no attribute of its.
        return [*item.parameters(), *item.buffers()]
    return []


def _attributes(item: Any) -> dict[str, Any]:
    if not has_attributes(item):
        raise TypeError(f"cannot preserve {item!r}: it holds no state")
    # The dictionary itself, where there is one: what it holds is put back with it.
    return getattr(item, "__dict__", attributes_of(item))


def _each_entry_once(tensor: torch.Tensor) -> torch.Tensor:
    """Of expanded dimensions the first entry: copy_ refuses to write the same memory twice."""
    for dimension, stride in enumerate(tensor.stride()):
        if stride == 0:
            tensor = tensor.narrow(dimension, 0, min(1, tensor.size(dimension)))
    return tensor


def _has_state(item: Any) -> bool:
    return isinstance(item, torch.nn.Module) or hasattr(type(item), "state_dict")


def _remember_tensor(tensor: torch.Tensor, copies: str | None) -> PutBack:
    """Copy a tensor now; the returned function writes the copy back to the same memory."""
    data = tensor.detach().data
    grad, trained = None, tensor.requires_grad
    if tensor.is_leaf:
        grad = tensor.grad
    once = data
    if data.layout is torch.strided:
        once = _each_entry_once(data)
    # Of a tensor without data there is nothing to copy to another device.
    where = once.device if once.is_meta else copies or once.device
    value = once.to(where, copy=True)

    def put_back() -> None:
        if once.layout in _COMPRESSED and once._nnz() != value._nnz():
            # copy_ refuses another number of entries.
            once.resize_as_sparse_(value)
        if not _same_bits(once, value):
            once.copy_(value)
        if not _same_memory(tensor, data):
            tensor.data = data
        if tensor.is_leaf and tensor.grad is not grad:
            tensor.grad = grad
        if tensor.is_leaf and tensor.requires_grad != trained:
            tensor.requires_grad_(trained)

    return put_back


def _same_memory(tensor: torch.Tensor, data: torch.Tensor) -> bool:
    """Whether it surely is: a step may give a tensor other memory, or another type."""
    if tensor.layout is not torch.strided or data.layout is not torch.strided:
        return False
    one, two = (
        (each.dtype, each.device, each.shape, each.stride(), each.data_ptr())
        for each in (tensor, data)
    )
    return one == two


def _same_bits(tensor: torch.Tensor, copy: torch.Tensor) -> bool:
    """Whether they surely are: memory may be a file's, or a graph's that was built before."""
    plain = type(tensor) is torch.Tensor and tensor.layout is torch.strided
    if not plain or tensor.is_meta or tensor.is_quantized:
        return False
    tensor = tensor.to(copy.device)
    if tensor.is_complex():
        tensor, copy = torch.view_as_real(tensor), torch.view_as_real(copy)
    integer = _INTEGERS.get(tensor.element_size())
    return integer is not None and torch.equal(tensor.view(integer), copy.view(integer))
