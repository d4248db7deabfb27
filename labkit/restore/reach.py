"""What functions and objects can reach and change: what has to be put back after they ran.

Followed are closures, defaults, the object that a method is bound to, what a `functools.partial`
holds, and the globals that the reader's own code names, also in the reader's other modules and in
functions that it calls. Models, optimizers and whatever else has a ``state_dict``, containers, and
objects and classes of the reader's are looked into; data sets are not. Of an object of a library,
such as a trainer, only models and optimizers are followed.
"""

from __future__ import annotations

import argparse
import dis
import functools
import gc
import io
import queue
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from labkit.restore.contents import BUFFERS, CONTAINERS, stored
from labkit.restore.generators import GENERATORS
from labkit.restore.own import is_installed_class, is_own_class, is_own_code, is_own_module
from labkit.restore.state import NOTHING, Name, attributes_of, content, has_attributes

# Entries of larger containers are not looked into, unless a model or an optimizer owns them.
MOST_ENTRIES = 10_000
_SIMPLE = (str, bytes, int, float, complex, type(None))
_PLAIN = (*_SIMPLE, Dataset, types.ModuleType)
_METHODS = (types.MethodType, types.BuiltinMethodType, types.MethodWrapperType)
_WRAPPERS = (functools.partial, staticmethod, classmethod, property, functools.cached_property)
# Of Python's own library, what holds what the reader puts in.
_HOLDERS = (types.SimpleNamespace, argparse.Namespace, type(functools.cache(len)))


@dataclass
class _Place:
    """An object on the way, by what it is called; ``owned``: a model or the like holds it."""

    name: str
    item: Any
    owned: bool = False


# What an object holds, by name.
Inside = Iterable[tuple[str, Any]]


def generators_of(loader: Any) -> list[Any]:
    """Random generators that a loader, its dataset and its samplers hold as attributes."""
    batches = getattr(loader, "batch_sampler", None)
    holders = [loader, getattr(loader, "dataset", None), getattr(loader, "sampler", None)]
    found: list[Any] = []
    for holder in [*holders, batches, getattr(batches, "sampler", None)]:
        found += getattr(holder, "__dict__", {}).values()
    return [each for each in found if isinstance(each, GENERATORS)]


def kinds_of_graphs() -> list[Any]:
    """The classes of CUDA graphs, and the like, that this build of torch can replay."""
    candidates = [torch.cuda.CUDAGraph, getattr(torch.accelerator, "Graph", None)]
    return [kind for kind in candidates if hasattr(kind, "replay")]


def has_state(item: Any) -> bool:
    """Whether an object is a model, an optimizer or the like."""
    return hasattr(type(item), "state_dict")


class Walk:
    """From object to object, the nearest first; what was found grows with each `look`.

    ``items``: objects to put back, each by itself, as what they hold is listed, too; among them
    variables that functions may bind anew. ``beyond``: what cannot be put back, in words, by name;
    ``trainings``: of that, what trains, with what it trains.
    """

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.beyond: dict[str, str] = {}
        self.trainings: dict[str, list[Any]] = {}
        # Keeps them alive, so that an id stays its object's own.
        self._seen: dict[int, Any] = {}
        self._todo: deque[_Place] = deque()

    def look(self, begin: Inside) -> None:
        """Follow objects by name."""
        self._todo.extend(_Place(name, item) for name, item in begin)
        self._run()

    def own(self, objects: Iterable[Any]) -> None:
        """Follow objects that are listed, of whatever kind. TypeError for one without state."""
        for item in objects:
            look = _kind_of(item)
            if look in (None, Walk._nothing, Walk._of_a_library, Walk._beyond):
                if not has_attributes(item):
                    raise TypeError(f"cannot preserve {item!r}: it holds no state")
                look = Walk._object
            self._visit(_Place(type(item).__name__, item, owned=True), look)
        self._run()

    def _run(self) -> None:
        while self._todo:
            place = self._todo.popleft()
            self._visit(place, _kind_of(place.item))

    def _visit(self, place: _Place, look: Look | None) -> None:
        """Note an object, unless it is known; what it holds is next."""
        item = place.item
        if look is None or id(item) in self._seen:
            return
        self._seen[id(item)] = item
        owned = has_state(item) or (place.owned and isinstance(item, (*CONTAINERS, tuple)))
        for name, inner in look(self, place):
            label = f"{place.name}[{name}]" if name.isdigit() else name
            self._todo.append(_Place(label, inner, owned))

    def _nothing(self, place: _Place) -> Inside:
        return ()

    def _itself(self, place: _Place) -> Inside:
        self.items.append(place.item)
        return ()

    def _tensor(self, place: _Place) -> Inside:
        self.items.append(place.item)
        if place.item.is_leaf:
            yield "grad", place.item.grad

    def _array(self, place: _Place) -> Inside:
        item = place.item
        if item.flags.writeable:
            self.items.append(item)
        return _numbered(item.flat) if item.dtype == object else ()

    def _loader(self, place: _Place) -> Inside:
        return _numbered(generators_of(place.item))

    def _holder(self, place: _Place) -> Inside:
        """A model, an optimizer and what else has a state."""
        item = place.item
        self.items.append(item)
        for name, value in attributes_of(item).items():
            if "hook" in name and isinstance(value, CONTAINERS):
                # What it calls may be a tool's that watches it.
                self.items.append(value)
            else:
                yield name, value
        if isinstance(item, torch.nn.Module):
            # Of a scripted one they are in no attribute.
            yield from item.named_parameters(recurse=False)
            yield from item.named_buffers(recurse=False)
        yield "class", type(item)

    def _container(self, place: _Place) -> Inside:
        item = place.item
        self.items.append(item)
        if isinstance(item, dict):
            held = stored(item)
            item = [*held, *held.values()]
        entries = list(item)
        entries = [each for each in entries if not isinstance(each, _SIMPLE)]
        if len(entries) > MOST_ENTRIES and not place.owned:
            self.beyond[place.name] = "a container of many objects"
            entries = list(filter(_trains, entries))
        return _numbered(entries)

    def _tuple(self, place: _Place) -> Inside:
        return _numbered(place.item)

    def _wrapper(self, place: _Place) -> Inside:
        return _numbered(gc.get_referents(place.item))

    def _running(self, place: _Place) -> Inside:
        """A generator function that is under way: where it stands cannot be put back."""
        item, name = place.item, place.name
        self.beyond[name] = "a generator"
        if item.gi_frame is None:
            return ()
        variables = item.gi_frame.f_locals
        inside = list(variables.items())
        inside += _of_code(item.gi_code, variables, item.gi_frame.f_globals, self)
        walk = Walk()
        walk.look(inside)
        trained = list(filter(_trains, walk.items))
        if trained:
            self.trainings[name] = trained
        return inside

    def _graph(self, place: _Place) -> Inside:
        self.beyond[place.name] = "a CUDA graph"
        self.trainings[place.name] = [place.item]
        return ()

    def _method(self, place: _Place) -> Inside:
        yield "self", place.item.__self__
        yield "func", getattr(place.item, "__func__", None)

    def _function(self, place: _Place) -> Inside:
        function = place.item
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        closure = {}
        for name, cell in cells:
            self.items.append(cell)
            if content(cell) is not NOTHING:
                closure[name] = content(cell)
        yield from closure.items()
        yield from _numbered(function.__defaults__ or ())
        yield from (function.__kwdefaults__ or {}).items()
        if vars(function):
            self.items.append(function)
            yield from vars(function).items()
        if is_own_code(function.__code__):
            yield from _of_code(function.__code__, closure, function.__globals__, self)

    def _class(self, place: _Place) -> Inside:
        kind = place.item
        if not is_own_class(kind):
            return
        self.items.append(kind)
        for name, value in vars(kind).items():
            if isinstance(value, types.FunctionType) or not name.startswith("__"):
                yield name, value
        for base in kind.__bases__:
            yield base.__name__, base

    def _object(self, place: _Place) -> Inside:
        self.items.append(place.item)
        yield from attributes_of(place.item).items()
        yield "class", type(place.item)

    def _of_a_library(self, place: _Place) -> Inside:
        """A trainer, a progress bar: of what it holds, models and optimizers are put back."""
        held = attributes_of(place.item).items()
        return [*self._beyond(place), *((name, each) for name, each in held if has_state(each))]

    def _beyond(self, place: _Place) -> Inside:
        if not place.owned:
            self.beyond[place.name] = _in_words(place.item)
        return ()


Look = Callable[[Walk, _Place], Inside]


def _is(*kinds: type) -> Callable[[Any], bool]:
    return lambda item: isinstance(item, kinds)


def _is_own_object(item: Any) -> bool:
    return has_attributes(item) and (isinstance(item, _HOLDERS) or is_own_class(type(item)))


_BEYOND = {
    io.IOBase: "a file",
    queue.Queue: "a queue",
    queue.SimpleQueue: "a queue",
    Iterator: "an iterator",
}


def _in_words(item: Any) -> str:
    words = (words for kind, words in _BEYOND.items() if isinstance(item, kind))
    return next(words, f"a {type(item).__name__} of {type(item).__module__.split('.')[0]}")


# What is known of an object by its kind: the first that applies.
_KINDS: list[tuple[Callable[[Any], bool], Look]] = [
    (_is(*_PLAIN), Walk._nothing),
    (_is(torch.Tensor), Walk._tensor),
    (_is(np.ndarray), Walk._array),
    (_is(*GENERATORS, *BUFFERS, types.CellType, Name), Walk._itself),
    (_is(types.FunctionType), Walk._function),
    (_is(*_METHODS), Walk._method),
    (_is(type), Walk._class),
    (has_state, Walk._holder),
    (_is(DataLoader), Walk._loader),
    (_is(*CONTAINERS), Walk._container),
    (_is(tuple), Walk._tuple),
    (_is(*_WRAPPERS), Walk._wrapper),
    (_is(types.GeneratorType), Walk._running),
    (lambda item: isinstance(item, tuple(kinds_of_graphs())), Walk._graph),
    (_is(io.IOBase, queue.Queue, queue.SimpleQueue), Walk._beyond),
    (_is_own_object, Walk._object),
    (_is(Iterator), Walk._beyond),
    (lambda item: is_installed_class(type(item)), Walk._of_a_library),
]


def _kind_of(item: Any) -> Look | None:
    return next((look for applies, look in _KINDS if applies(item)), None)


def _trains(item: Any) -> bool:
    """Whether an object is part of a training: no module without weights, as a transform is."""
    if isinstance(item, torch.nn.Module):
        return any(each.requires_grad for each in item.parameters())
    if isinstance(item, torch.Tensor):
        return item.is_leaf and item.requires_grad
    return isinstance(item, torch.optim.Optimizer)


def _numbered(items: Iterable[Any]) -> Inside:
    for number, each in enumerate(items):
        yield str(number), each


def _of_code(
    code: types.CodeType, variables: dict[str, Any], space: dict[str, Any], walk: Walk
) -> Inside:
    """The globals that code and the functions in it name, and variables of the reader's modules."""
    modules = list(variables.values())
    names: set[str] = set()
    for each in _codes(code):
        names.update(each.co_names)
        named, imported = _named_by(each)
        for name in named:
            item = space.get(name)
            walk.items.append(Name(name, space))
            modules.append(item)
            yield name, item
        modules += map(sys.modules.get, imported)
    yield from _of_modules(modules, names, walk)


@functools.lru_cache(maxsize=10_000)
def _named_by(code: types.CodeType) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The globals that code reads or writes, and the modules that it imports."""
    lines = list(dis.get_instructions(code))
    named = dict.fromkeys(line.argval for line in lines if line.opname.endswith("_GLOBAL"))
    imported = dict.fromkeys(line.argval for line in lines if line.opname == "IMPORT_NAME")
    return tuple(named), tuple(imported)


def _of_modules(modules: list[Any], names: set[str], walk: Walk) -> Inside:
    """What code may mean by ``names`` in modules of the reader's, as in ``helpers.model``."""
    seen: set[int] = set()
    while modules:
        module = modules.pop()
        if id(module) in seen or not is_own_module(module):
            continue
        seen.add(id(module))
        space = vars(module)
        for name in sorted(names):
            walk.items.append(Name(name, space))
            modules.append(space.get(name))
            yield name, space.get(name)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)
