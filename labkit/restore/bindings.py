"""Variables and attributes: what they are bound to now, and how to bind them so again."""

from __future__ import annotations

import copyreg
import types
from typing import Any

from labkit.restore.contents import refill

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
    return hasattr(item, "__dict__") or has_slots(item)


def has_slots(item: Any) -> bool:
    """Whether attributes of an object stand in slots of its class."""
    return bool(_slots(type(item)))


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
    names: list[str] = copyreg._slotnames(kind)  # type: ignore[attr-defined]
    return names


class Bindings:
    """Variables as they are now; ``changed`` names those that were bound anew until `restore`.

    ``cells`` of closures by name, ``names`` with the dictionary that holds them, and ``objects``,
    also classes, for their attributes.
    """

    def __init__(
        self,
        cells: list[tuple[str, types.CellType]],
        names: list[tuple[str, Values]],
        objects: list[Any],
    ) -> None:
        self._cells = [(name, cell, content(cell)) for name, cell in cells]
        self._names = [(name, space, space.get(name, NOTHING)) for name, space in names]
        self._objects = [(item, attributes_of(item)) for item in objects]
        self.changed: list[str] = []

    def restore(self) -> None:
        """Bind every variable as before, and note which were not; once more does no harm."""
        for name, cell, value in self._cells:
            if content(cell) is not value:
                self.changed.append(name)
                _bind_cell(cell, value)
        for name, space, value in self._names:
            if space.get(name, NOTHING) is not value:
                self.changed.append(name)
                _bind_name(space, name, value)
        for item, before in self._objects:
            now = attributes_of(item)
            names = [name for name in now.keys() | before if _differs(name, now, before)]
            self.changed += sorted(names)
            _bind_attributes(item, names, before)
        self.changed = list(dict.fromkeys(self.changed))


def _differs(name: str, now: Values, before: Values) -> bool:
    return now.get(name, NOTHING) is not before.get(name, NOTHING)


def _bind_cell(cell: types.CellType, value: Any) -> None:
    if value is NOTHING:
        del cell.cell_contents
    else:
        cell.cell_contents = value


def _bind_name(space: Values, name: str, value: Any) -> None:
    if value is NOTHING:
        space.pop(name, None)
    else:
        space[name] = value


def _bind_attributes(item: Any, names: list[str], before: Values) -> None:
    """Past what the object's class makes of it, as a frozen dataclass that forbids it."""
    if not isinstance(item, type) and hasattr(item, "__dict__"):
        slots = set(_slots(type(item)))
        # With their order.
        refill(item.__dict__, {name: each for name, each in before.items() if name not in slots})
        names = [name for name in names if name in slots]
    base: Any = type if isinstance(item, type) else object
    for name in names:
        if name in before:
            base.__setattr__(item, name, before[name])
        else:
            base.__delattr__(item, name)
