"""What functions can reach and change: what has to be put back after they ran.

Followed are closures, defaults, the object that a method is bound to, what a `functools.partial`
holds, and the globals that the reader's own code names, also in the reader's other modules and in
functions that it calls. Objects, classes and containers of the reader's are looked into; data are
not.
"""

from __future__ import annotations

import dis
import functools
import gc
import io
import queue
import sys
import types
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.nn.parameter import is_lazy
from torch.utils.data import DataLoader, Dataset

from labkit.graphs import is_graph
from labkit.restore.bindings import NOTHING, attributes_of, content, has_attributes
from labkit.restore.contents import BUFFERS, CONTAINERS
from labkit.restore.generators import GENERATORS
from labkit.restore.own import is_own_class, is_own_code, is_own_module, may_hold_own

# Larger tensors and containers that no model or optimizer owns are data: they are not copied.
MOST_BYTES = 2**26
# Entries of larger containers are not looked into.
MOST_ENTRIES = 10_000
# Objects in objects in objects.
MOST_DEPTH = 8
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
_ARRAYS = (torch.Tensor, np.ndarray)
# Entries of a container that hold nothing else.
_SIMPLE = (str, bytes, int, float, complex, type(None), tuple, *_ARRAYS)
_PLAIN = (str, bytes, int, float, complex, type(None), Dataset)
# What any module has, beside which a module of the reader's may have attributes of its own.
_OF_EVERY_MODULE = frozenset(vars(torch.nn.Module()))


def bytes_of(item: torch.Tensor | np.ndarray[Any, Any]) -> int:
    """Bytes of a tensor or an array; of a sparse tensor those that it takes."""
    if isinstance(item, torch.Tensor) and item.layout in _PARTS:
        item = item.detach()
        return sum(getattr(item, name)().nbytes for name in _PARTS[item.layout])
    return item.nbytes


@dataclass
class Reached:
    """``state``: objects to put back, with all that they hold; ``shallow``: containers to fill as
    before, whose entries are data; ``data``: tensors too many or too large for copies, by name.

    ``beyond``: what cannot be put back, in words, by name; ``trainings``: of that, what holds the
    reader's training, and the models, optimizers and tensors in it. ``cells`` and ``names`` are
    variables that the functions may bind anew, ``objects`` those whose attributes they may.
    """

    state: list[Any] = field(default_factory=list)
    shallow: list[Any] = field(default_factory=list)
    data: dict[str, list[torch.Tensor]] = field(default_factory=dict)
    beyond: dict[str, str] = field(default_factory=dict)
    trainings: dict[str, list[Any]] = field(default_factory=dict)
    cells: list[tuple[str, types.CellType]] = field(default_factory=list)
    names: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    objects: list[Any] = field(default_factory=list)


def reached(*functions: Any) -> Reached:
    """What ``functions`` can reach."""
    walk = _Walk()
    walk.look(("step", function) for function in functions)
    _take_copies_of_parameters(walk.found)
    return walk.found


def _take_copies_of_parameters(found: Reached) -> None:
    """What is shaped as a parameter is no data, however large: a moving average of a model, say."""
    tensors: list[Any] = [each for each in found.state if isinstance(each, torch.Tensor)]
    for item in found.state:
        if isinstance(item, torch.nn.Module):
            tensors += item.parameters()
    shapes = {each.shape for each in tensors if _is_trained(each) and not is_lazy(each)}
    for name, large in list(found.data.items()):
        found.state += [each for each in large if each.shape in shapes]
        found.data[name] = [each for each in large if each.shape not in shapes]


def generators_of(loader: Any) -> list[Any]:
    """Random generators that a loader, its dataset and its samplers hold as attributes."""
    batches = getattr(loader, "batch_sampler", None)
    holders = [loader, getattr(loader, "dataset", None), getattr(loader, "sampler", None)]
    found: list[Any] = []
    for holder in [*holders, batches, getattr(batches, "sampler", None)]:
        found += getattr(holder, "__dict__", {}).values()
    return [each for each in found if isinstance(each, GENERATORS)]


def _is_trained(item: Any) -> bool:
    """Whether an object is a model, an optimizer or the like, or a tensor that is trained."""
    if isinstance(item, torch.Tensor):
        return item.is_leaf and item.requires_grad
    return _has_state(item)


def _trains(item: Any) -> bool:
    """Whether an object is part of a training: no module without weights, as a transform is."""
    if isinstance(item, torch.nn.Module):
        return any(each.requires_grad for each in item.parameters())
    return isinstance(item, torch.optim.Optimizer) or (
        isinstance(item, torch.Tensor) and _is_trained(item)
    )


def _has_state(item: Any) -> bool:
    return hasattr(type(item), "state_dict")


@dataclass
class _Place:
    """An object on the way, by what it is called.

    ``owned``: something in ``state`` holds it, and tensors and containers are put back with that.
    ``large``: it is part of a container that is too large for a copy.
    """

    name: str
    item: Any
    depth: int = 0
    owned: bool = False
    large: bool = False


# What an object holds, by name.
Inside = Iterable[tuple[str, Any]]


class _Walk:
    """From object to object, the nearest first."""

    def __init__(self) -> None:
        self.found = Reached()
        self._seen: dict[int, Any] = {}
        self._todo: deque[_Place] = deque()

    def look(self, begin: Inside) -> None:
        self._todo.extend(_Place(name, item) for name, item in begin)
        while self._todo:
            place = self._todo.popleft()
            if id(place.item) in self._seen:
                continue
            self._seen[id(place.item)] = place.item
            self._visit(place)

    def _visit(self, place: _Place) -> None:
        item = place.item
        look = next((look for applies, look in _KINDS if applies(item)), _Walk._nothing)
        inside = list(look(self, place))
        if place.depth >= MOST_DEPTH:
            return
        grouped = isinstance(item, (*CONTAINERS, tuple))
        owned = _has_state(item) or (grouped and place.owned)
        large = grouped and place.large
        for label, inner in inside:
            name = label
            if large:
                name = place.name
            elif label.isdigit():
                name = f"{place.name}[{label}]"
            self._todo.append(_Place(name, inner, place.depth + 1, owned, large))

    def _nothing(self, place: _Place) -> Inside:
        return ()

    def _array(self, place: _Place) -> Inside:
        item, name = place.item, place.name
        if place.owned:
            return ()
        if _is_trained(item) or (bytes_of(item) <= MOST_BYTES and not place.large):
            self.found.state.append(item)
        elif isinstance(item, torch.Tensor):
            self.found.data.setdefault(name, []).append(item)
        elif item.flags.writeable:
            self.found.beyond[name] = "a large array"
        return ()

    def _generator(self, place: _Place) -> Inside:
        self.found.state.append(place.item)
        return ()

    def _loader(self, place: _Place) -> Inside:
        self.found.state += generators_of(place.item)
        return ()

    def _holder(self, place: _Place) -> Inside:
        """A model, an optimizer and what else has a state: what its attributes hold besides it."""
        item = place.item
        self.found.state.append(item)
        if isinstance(item, torch.nn.Module):
            yield from item._modules.items()
        for name, value in attributes_of(item).items():
            if not isinstance(item, torch.nn.Module) or name not in _OF_EVERY_MODULE:
                yield name, value
        if is_own_class(type(item)):
            self.found.objects.append(item)
            yield "class", type(item)

    def _buffer(self, place: _Place) -> Inside:
        if not place.owned and len(place.item) <= MOST_BYTES:
            self.found.state.append(place.item)
        elif not place.owned:
            self.found.beyond[place.name] = "a large buffer"
        return ()

    def _container(self, place: _Place) -> Inside:
        item = place.item
        entries = list(item.values() if isinstance(item, dict) else item)
        if not place.owned:
            place.large = place.large or not _is_small(item)
            (self.found.shallow if place.large else self.found.state).append(item)
        if len(entries) > MOST_ENTRIES:
            if not place.owned and not all(
                issubclass(kind, _SIMPLE) for kind in set(map(type, entries))
            ):
                self.found.beyond[place.name] = "a container of many objects"
            return _numbered(filter(_is_trained, entries))
        if place.owned or not place.large:
            entries = [each for each in entries if not isinstance(each, _ARRAYS)]
        return _numbered(entries)

    def _tuple(self, place: _Place) -> Inside:
        if not place.owned and not place.large:
            place.large = not _is_small(place.item)
        return _numbered(place.item)

    def _iterator(self, place: _Place) -> Inside:
        """Python's own, such as ``map`` and ``zip``: what it has given it does not give again."""
        self.found.beyond[place.name] = "an iterator"
        if type(place.item).__module__ not in ("builtins", "itertools"):
            return ()
        return _numbered(gc.get_referents(place.item))

    def _running(self, place: _Place) -> Inside:
        """A generator function that is under way: where it stands cannot be put back."""
        item, name = place.item, place.name
        self.found.beyond[name] = "a generator"
        if item.gi_frame is None:
            return ()
        variables = item.gi_frame.f_locals
        inside = list(variables.items())
        inside += _of_code(item.gi_code, variables, item.gi_frame.f_globals, self.found)
        walk = _Walk()
        walk.look(inside)
        trained = list(filter(_trains, walk.found.state))
        if trained:
            self.found.trainings.setdefault(name, []).extend(trained)
        return inside

    def _graph(self, place: _Place) -> Inside:
        self.found.beyond[place.name] = "a CUDA graph"
        self.found.trainings.setdefault(place.name, []).append(place.item)
        return ()

    def _file(self, place: _Place) -> Inside:
        if place.item not in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            self.found.beyond[place.name] = "a file"
        return ()

    def _queue(self, place: _Place) -> Inside:
        """It belongs to other threads, too."""
        self.found.beyond[place.name] = "a queue"
        return ()

    def _partial(self, place: _Place) -> Inside:
        item = place.item
        yield "func", item.func
        yield from _numbered([*item.args, *item.keywords.values()])

    def _method(self, place: _Place) -> Inside:
        yield "self", place.item.__self__
        yield "func", getattr(place.item, "__func__", None)

    def _function(self, place: _Place) -> Inside:
        function = place.item
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        closure = {}
        for name, cell in cells:
            self.found.cells.append((name, cell))
            if content(cell) is not NOTHING:
                closure[name] = content(cell)
        yield from closure.items()
        yield from _numbered(function.__defaults__ or ())
        yield from (function.__kwdefaults__ or {}).items()
        if vars(function):
            self.found.objects.append(function)
            yield from vars(function).items()
        if is_own_code(function.__code__):
            yield from _of_code(function.__code__, closure, function.__globals__, self.found)

    def _class(self, place: _Place) -> Inside:
        kind = place.item
        if not is_own_class(kind):
            return
        self.found.objects.append(kind)
        for name, value in vars(kind).items():
            if isinstance(value, types.FunctionType) or not name.startswith("__"):
                yield name, value
        for base in kind.__bases__:
            yield base.__name__, base

    def _wrapper(self, place: _Place) -> Inside:
        for name in ("__func__", "__wrapped__", "fget", "fset", "func"):
            yield name, getattr(place.item, name, None)

    def _object(self, place: _Place) -> Inside:
        item = place.item
        self.found.objects.append(item)
        yield from attributes_of(item).items()
        yield "class", type(item)


_WRAPPERS = (staticmethod, classmethod, property, functools.cached_property)
_METHODS = (types.MethodType, types.BuiltinMethodType, types.MethodWrapperType)


def _is(*kinds: type) -> Callable[[Any], bool]:
    return lambda item: isinstance(item, kinds)


def _is_wrapper(item: Any) -> bool:
    return isinstance(item, _WRAPPERS) or type(item).__name__ == "_lru_cache_wrapper"


def _only_gives(item: Any) -> bool:
    """Whether it is an iterator that keeps no attributes to be put back."""
    return isinstance(item, Iterator) and not is_own_class(type(item))


def _is_object(item: Any) -> bool:
    return has_attributes(item) and may_hold_own(type(item))


# What is known of an object by its kind: the first that applies.
_KINDS: list[tuple[Callable[[Any], bool], Callable[[_Walk, _Place], Inside]]] = [
    (_is(*_PLAIN), _Walk._nothing),
    (_is(*_ARRAYS), _Walk._array),
    (_is(*GENERATORS), _Walk._generator),
    (_is(types.FunctionType), _Walk._function),
    (_is(*_METHODS), _Walk._method),
    (_is(type), _Walk._class),
    (_is(types.ModuleType), _Walk._nothing),
    (_has_state, _Walk._holder),
    (_is(DataLoader), _Walk._loader),
    (_is(*BUFFERS, array), _Walk._buffer),
    (_is(*CONTAINERS), _Walk._container),
    (_is(tuple), _Walk._tuple),
    (_is(types.GeneratorType), _Walk._running),
    (is_graph, _Walk._graph),
    (_is(io.IOBase), _Walk._file),
    (_is(queue.Queue, queue.SimpleQueue), _Walk._queue),
    (_only_gives, _Walk._iterator),
    (_is(functools.partial), _Walk._partial),
    (_is_wrapper, _Walk._wrapper),
    (_is_object, _Walk._object),
]


def _is_small(group: Any) -> bool:
    """Whether a container or a tuple, with those in it and their arrays, is worth a copy."""
    size = count = 0
    seen: set[int] = set()
    todo = [group]
    while todo:
        item = todo.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, _ARRAYS):
            size += bytes_of(item)
        elif isinstance(item, (*CONTAINERS, tuple)):
            count += len(item)
            todo += item.values() if isinstance(item, dict) else item
        if size > MOST_BYTES or count > MOST_ENTRIES:
            return False
    return True


def _numbered(items: Iterable[Any]) -> Inside:
    for number, each in enumerate(items):
        yield str(number), each


def _of_code(
    code: types.CodeType, closure: dict[str, Any], space: dict[str, Any], found: Reached
) -> Inside:
    """The globals that code and the functions in it name, and variables of the reader's modules.

    Those that they bind go to ``found``.
    """
    modules: list[types.ModuleType] = []
    for each in _codes(code):
        bound = set()
        for line in dis.get_instructions(each):
            name, does = str(line.argval), line.opname
            if does in ("STORE_GLOBAL", "DELETE_GLOBAL"):
                found.names.append((name, space))
            if does in ("STORE_ATTR", "DELETE_ATTR"):
                bound.add(name)
            item = _variable(does, name, closure, space)
            if is_own_module(item):
                modules.append(item)
            elif item is not None:
                yield name, item
        yield from _of_modules(list(modules), each, bound, found)


def _variable(does: str, name: str, closure: dict[str, Any], space: dict[str, Any]) -> Any:
    """What an instruction of Python's takes from a variable; None where it takes none."""
    if does.endswith("_GLOBAL"):
        return space.get(name)
    if does.endswith("_DEREF"):
        return closure.get(name)
    if does == "IMPORT_NAME":
        return sys.modules.get(name)
    return None


def _of_modules(
    modules: list[Any], code: types.CodeType, bound: set[str], found: Reached
) -> Inside:
    """The variables of the reader's modules that code names, as in ``helpers.model``."""
    seen: list[Any] = []
    while modules:
        module = modules.pop()
        if any(module is known for known in seen):
            continue
        seen.append(module)
        space = vars(module)
        for name in code.co_names:
            if name in bound:
                found.names.append((name, space))
            item = space.get(name)
            if is_own_module(item):
                modules.append(item)
            elif item is not None:
                yield name, item


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)
