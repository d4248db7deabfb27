"""Variables and attributes: what they are bound to now, and how to bind them so again."""

from __future__ import annotations

import copyreg
import types
from functools import partial
from typing import Any

from labkit.restore.contents import refill
from labkit.restore.undo import PutBack

NOTHING = object()
Values = dict[str, Any]


def content(cell: types.CellType) -> Any:
    """What a closure's cell holds; `NOTHING` while it is not bound."""
    try:
        return cell.cell_contents
    except ValueError:
        return NOTHING


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


def keeping_cell(cell: types.CellType) -> PutBack:
    """What binds a variable of a closure as now."""
    return partial(_bind_cell, cell, content(cell))


def keeping_name(name: str, space: Values) -> PutBack:
    """What binds a variable of a module as now."""
    return partial(_bind_name, name, space, space.get(name, NOTHING))


def keeping_attributes(item: Any) -> PutBack:
    """What binds the attributes of an object or a class as now."""
    return partial(_bind_attributes, item, attributes_of(item))


def _slots(kind: type) -> list[str]:
    names: list[str] = copyreg._slotnames(kind)  # type: ignore[attr-defined]
    return names


def _bind_cell(cell: types.CellType, value: Any) -> None:
    if content(cell) is value:
        return
    if value is NOTHING:
        del cell.cell_contents
    else:
        cell.cell_contents = value


def _bind_name(name: str, space: Values, value: Any) -> None:
    if space.get(name, NOTHING) is value:
        return
    if value is NOTHING:
        del space[name]
    else:
        space[name] = value


def _bind_attributes(item: Any, before: Values) -> None:
    """Past what the object's class makes of it, as a frozen dataclass that forbids it."""
    base: Any = object
    if isinstance(item, type):
        base = type
    elif hasattr(item, "__dict__"):
        # With their order.
        slots = _slots(type(item))
        refill(item.__dict__, {name: each for name, each in before.items() if name not in slots})
    now = attributes_of(item)
    for name in now.keys() | before:
        if name not in before:
            base.__delattr__(item, name)
        elif now.get(name, NOTHING) is not before[name]:
            base.__setattr__(item, name, before[name])
