"""How an object or a variable is put back, by its kind: in place and bit for bit, where it
differs.
"""

from __future__ import annotations

import copyreg
import random
import types
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from labkit.restore.contents import BUFFERS, CONTAINERS, keeping, refill
from labkit.restore.undo import PutBack

# By bytes. They compare bit by bit, also zeros of both signs and what is no number.
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
# What a variable is bound to while it is not bound.
NOTHING = object()
Values = dict[str, Any]


class Name(NamedTuple):
    """A variable of a module."""

    name: str
    space: Values


def keeping_state(item: Any) -> PutBack:
    """What puts back the item itself, without what it holds; once more does no harm."""
    if isinstance(item, torch.Tensor):
        return _keeping_tensor(item)
    if isinstance(item, np.ndarray):
        return partial(_rewrite, item, item.copy())
    if isinstance(item, torch.Generator):
        return partial(item.set_state, item.get_state())
    if isinstance(item, np.random.RandomState):
        return partial(item.set_state, item.get_state())
    if isinstance(item, np.random.Generator):
        return partial(setattr, item.bit_generator, "state", item.bit_generator.state)
    if isinstance(item, random.Random):
        return partial(item.setstate, item.getstate())
    if isinstance(item, (*CONTAINERS, *BUFFERS)):
        return keeping(item)
    if isinstance(item, types.CellType):
        return _keeping_cell(item)
    if isinstance(item, Name):
        return _keeping_name(*item)
    return _keeping_attributes(item)


def _rewrite(array: np.ndarray, before: np.ndarray) -> None:
    """Only where bits differ: its memory may be a file's, or closed to writing by now."""
    if array.tobytes() != before.tobytes():
        array[...] = before


def _keeping_tensor(tensor: torch.Tensor) -> PutBack:
    """Copy a tensor now, into the CPU's memory: an accelerator needs its own for the steps."""
    data = tensor.detach().data
    grad, trained = None, tensor.requires_grad
    if tensor.is_leaf:
        grad = tensor.grad
    # A tensor without data has nothing to copy to another device.
    value = data.to("meta" if data.is_meta else "cpu", copy=True)

    def put_back() -> None:
        if not _same_bits(data, value):
            data.copy_(value)
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
    if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided or tensor.is_meta:
        return False
    tensor = tensor.to(copy.device)
    if tensor.is_complex():
        tensor, copy = torch.view_as_real(tensor), torch.view_as_real(copy)
    integer = _INTEGERS[tensor.element_size()]
    return torch.equal(tensor.view(integer), copy.view(integer))


# ----------------------------------------------------------------------- variables and attributes


def content(cell: types.CellType) -> Any:
    """What a closure's cell holds; `NOTHING` while it is not bound."""
    try:
        return cell.cell_contents
    except ValueError:
        return NOTHING


def _keeping_cell(cell: types.CellType) -> PutBack:
    before = content(cell)

    def put_back() -> None:
        if before is NOTHING and content(cell) is not NOTHING:
            del cell.cell_contents
        elif content(cell) is not before:
            cell.cell_contents = before

    return put_back


def _keeping_name(name: str, space: Values) -> PutBack:
    before = space.get(name, NOTHING)

    def put_back() -> None:
        if before is NOTHING:
            space.pop(name, None)
        elif space.get(name, NOTHING) is not before:
            space[name] = before

    return put_back


def has_attributes(item: Any) -> bool:
    """Whether an object has a dictionary of attributes, or slots for them."""
    return hasattr(item, "__dict__") or bool(_slots(type(item)))


def attributes_of(item: Any) -> Values:
    """The attributes of an object, in its dictionary or in slots; those of a class are its own."""
    found = dict(getattr(item, "__dict__", {}))
    if isinstance(item, type):
        # Python's own change when it likes.
        return {name: each for name, each in found.items() if not name.startswith("__")}
    for name in _slots(type(item)):
        value = getattr(item, name, NOTHING)
        if value is not NOTHING:
            found[name] = value
    return found


def _slots(kind: type) -> list[str]:
    return copyreg._slotnames(kind)  # type: ignore[attr-defined]


def _keeping_attributes(item: Any) -> PutBack:
    """Past what the object's class makes of it, as a frozen dataclass that forbids it."""
    base: Any = type if isinstance(item, type) else object
    before, slots = attributes_of(item), _slots(type(item))

    def put_back() -> None:
        if base is object and hasattr(item, "__dict__"):
            # With their order.
            named = {name: each for name, each in before.items() if name not in slots}
            refill(item.__dict__, named)
        now = attributes_of(item)
        for name in now.keys() | before:
            if name not in before:
                base.__delattr__(item, name)
            elif now.get(name, NOTHING) is not before[name]:
                base.__setattr__(item, name, before[name])

    return put_back
