"""What a function can reach and change: what has to be put back after it ran.

Followed are its closure, its defaults, the globals that its code names, the object it is bound to,
and the same of the functions that it names, unless they belong to a library. Objects of the
reader's own classes and containers are looked into; data are not.
"""

from __future__ import annotations

import dis
import functools
import io
import sys
import types
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from labkit.restore.contents import CONTAINERS, refill
from labkit.restore.generators import GENERATORS

# Larger containers and tensors that no model or optimizer owns are data: they are not copied.
MOST_BYTES = 2**26
MOST_ENTRIES = 10_000
_LIBRARIES = ("torch", "numpy", "torchvision", "builtins", "labkit", "random", "math", "time")
# They keep no copy of themselves: an iterator has given what it gave.
_WITHOUT_COPY = (Iterator, io.IOBase, bytearray, array)
_NOTHING = object()
_COMPRESSED_ROWS = ("crow_indices", "col_indices", "values")
_COMPRESSED_COLUMNS = ("ccol_indices", "row_indices", "values")
# What a sparse tensor consists of. Its nbytes is an error, or that of a dense one.
_PARTS = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: _COMPRESSED_ROWS,
    torch.sparse_bsr: _COMPRESSED_ROWS,
    torch.sparse_csc: _COMPRESSED_COLUMNS,
    torch.sparse_bsc: _COMPRESSED_COLUMNS,
}


def bytes_of(item: torch.Tensor | np.ndarray[Any, Any]) -> int:
    """Bytes of a tensor or an array; of a sparse tensor those that it takes."""
    if isinstance(item, torch.Tensor) and item.layout in _PARTS:
        item = item.detach()
        return sum(getattr(item, name)().nbytes for name in _PARTS[item.layout])
    return item.nbytes


@dataclass
class Reached:
    """``state``: objects to put back; ``data``: tensors too large for that, by name.
    ``beyond``: names of what else cannot be put back.

    ``cells`` and ``names`` are variables that the function may bind anew: closure cells, and
    globals with the dictionary that holds them. ``objects`` are those of the reader's own classes,
    whose attributes are bound anew.
    """

    state: list[Any] = field(default_factory=list)
    data: dict[str, torch.Tensor] = field(default_factory=dict)
    beyond: list[str] = field(default_factory=list)
    loaders: list[Any] = field(default_factory=list)
    cells: dict[str, types.CellType] = field(default_factory=dict)
    names: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    objects: list[Any] = field(default_factory=list)


def reached(function: Any) -> Reached:
    """What ``function`` can reach."""
    found = Reached()
    todo: list[tuple[str, Any, int]] = [("step", function, 0)]
    seen: dict[int, Any] = {}
    while todo:
        name, item, depth = todo.pop(0)
        if id(item) in seen or depth > 6:
            continue
        seen[id(item)] = item
        inside = _of_container(item) if _keep(name, item, found) else _inside(item, found)
        for label, inner in inside:
            if label.isdigit():
                label = f"{name}[{label}]"
            todo.append((label, inner, depth + 1))
    return found


def _keep(name: str, item: Any, found: Reached) -> bool:
    """Whether ``item`` is state or data, and needs no looking into."""
    if isinstance(item, torch.Tensor):
        if (item.is_leaf and item.requires_grad) or bytes_of(item) <= MOST_BYTES:
            found.state.append(item)
        else:
            found.data[name] = item
        return True
    if isinstance(item, DataLoader):
        found.loaders.append(item)
        found.state += generators_of(item)
        return True
    if isinstance(item, GENERATORS) or hasattr(type(item), "state_dict"):
        found.state.append(item)
        return True
    if isinstance(item, (np.ndarray, *CONTAINERS)):
        if _small(item):
            found.state.append(item)
        else:
            found.beyond.append(name)
        return True
    if isinstance(item, _WITHOUT_COPY) or _only_slots(item):
        if item is not sys.stdout and item is not sys.stderr:
            found.beyond.append(name)
        return True
    return isinstance(item, (Dataset, types.ModuleType, type, str, bytes, int, float))


def generators_of(loader: Any) -> list[Any]:
    """Random generators that a loader, its dataset and its samplers hold as attributes."""
    batches = getattr(loader, "batch_sampler", None)
    holders = [loader, getattr(loader, "dataset", None), getattr(loader, "sampler", None)]
    found: list[Any] = []
    for holder in [*holders, batches, getattr(batches, "sampler", None)]:
        found += getattr(holder, "__dict__", {}).values()
    return [each for each in found if isinstance(each, GENERATORS)]


def _only_slots(item: Any) -> bool:
    """Whether the attributes of an object of the reader's own class stand in no dictionary."""
    kind = type(item)
    module = kind.__module__.split(".")[0]
    if _of_library(module) or module in sys.stdlib_module_names or hasattr(item, "__dict__"):
        return False
    # A frozen one forbids it by a method of its own.
    return hasattr(kind, "__slots__") and kind.__setattr__ is object.__setattr__


def _small(item: Any) -> bool:
    """Whether an array, or a container with its tensors and arrays, is worth a copy."""
    if isinstance(item, np.ndarray):
        return item.nbytes <= MOST_BYTES
    if len(item) > MOST_ENTRIES:
        return False
    values = item.values() if isinstance(item, dict) else item
    kinds = (torch.Tensor, np.ndarray)
    return sum(bytes_of(each) for each in values if isinstance(each, kinds)) <= MOST_BYTES


def _inside(item: Any, found: Reached) -> Iterator[tuple[str, Any]]:
    """What ``item`` holds, by name."""
    if isinstance(item, functools.partial):
        yield "func", item.func
        yield from _numbered([*item.args, *item.keywords.values()])
    elif isinstance(item, types.MethodType):
        yield "self", item.__self__
        yield "func", item.__func__
    elif isinstance(item, types.FunctionType):
        if not _of_library(item.__module__):
            yield from _of_function(item, found)
    elif isinstance(item, tuple):
        yield from _numbered(item)
    elif hasattr(item, "__dict__") and not _of_library(type(item).__module__):
        found.objects.append(item)
        yield from list(vars(item).items())
        if callable(item) and isinstance(type(item).__call__, types.FunctionType):
            yield "call", type(item).__call__


def _of_container(item: Any) -> Iterator[tuple[str, Any]]:
    """What a container holds beside tensors and arrays, which are put back with it."""
    if isinstance(item, CONTAINERS) and len(item) <= MOST_ENTRIES:
        for name, each in _numbered(item.values() if isinstance(item, dict) else item):
            if not isinstance(each, (torch.Tensor, np.ndarray)):
                yield name, each


def _numbered(items: Any) -> Iterator[tuple[str, Any]]:
    for number, each in enumerate(items):
        yield str(number), each


def _of_library(module: str | None) -> bool:
    return (module or "").split(".")[0] in _LIBRARIES


def _of_function(function: types.FunctionType, found: Reached) -> Iterator[tuple[str, Any]]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    for name, cell in cells:
        found.cells[name] = cell
        content = _content(cell)
        if content is not _NOTHING:
            yield name, content
    yield from _numbered(function.__defaults__ or ())
    yield from (function.__kwdefaults__ or {}).items()
    for code in _codes(function.__code__):
        for line in dis.get_instructions(code):
            name = str(line.argval)
            if line.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
                found.names.append((name, function.__globals__))
            if line.opname.endswith("_GLOBAL") and name in function.__globals__:
                yield name, function.__globals__[name]


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        # Not bound yet.
        return _NOTHING


class Bindings:
    """Variables of a function as they were; ``changed`` names those that it has bound anew."""

    def __init__(self, found: Reached) -> None:
        self._cells = [(name, cell, _content(cell)) for name, cell in found.cells.items()]
        self._names = [(name, space, space.get(name, _NOTHING)) for name, space in found.names]
        self._objects = [(item, dict(vars(item))) for item in found.objects]
        self.changed: list[str] = []

    def restore(self) -> None:
        """Bind every variable as before, and note which were not; once more does no harm."""
        changed = self.changed
        for name, cell, value in self._cells:
            if _content(cell) is value:
                continue
            changed.append(name)
            if value is _NOTHING:
                del cell.cell_contents
            else:
                cell.cell_contents = value
        for name, space, value in self._names:
            if space.get(name, _NOTHING) is value:
                continue
            changed.append(name)
            if value is _NOTHING:
                space.pop(name, None)
            else:
                space[name] = value
        for item, before in self._objects:
            now = vars(item)
            names = [name for name in now.keys() | before if now.get(name) is not before.get(name)]
            changed += sorted(names)
            refill(now, before)
        self.changed = list(dict.fromkeys(changed))
