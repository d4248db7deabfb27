"""Python values that a trace has read: they stand in its code as constants.

A model whose ``self.alpha`` is annealed would go on with the first value. So what traced code reads
is noted, and compared before each forward: attributes of modules, and, of each function that runs
while the model is traced, its global variables and closures. Settings inside them are followed;
of Python modules and of classes, the attributes whose names that code mentions. Code that reads
what cannot be compared is not inlined. What modules that run their own code read is not part of it.
"""

from __future__ import annotations

import builtins
import dis
import enum
import inspect
import logging
import operator
import os
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from types import (
    CodeType,
    FrameType,
    FunctionType,
    MappingProxyType,
    MethodType,
    ModuleType,
)
from typing import Any

import numpy as np
import torch
from torch import fx, nn

from labkit.restore.attributes import patched
from labkit.restore.generators import GENERATORS
from sublinear.blocks.executed import of_library, watching

_PLAIN = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
    torch.dtype,
    torch.device,
    torch.memory_format,
    torch.layout,
    enum.Enum,
    np.generic,
)

# Looked up when a plan runs, or their objects are not settings.
_ALIVE = (
    nn.Module,
    torch.Tensor,
    logging.Logger,
    logging.LoggerAdapter,
    fx.Proxy,
    fx.Node,
)

_REMEMBERS = type(lru_cache(int))
_DESCRIPTORS = (staticmethod, classmethod, property, cached_property)

# Who reads them reads what is kept elsewhere, and cannot be compared.
_ELSEWHERE = (
    ((os.environ, os.getenv), "reads the environment"),
    ((time.time, time.monotonic, time.perf_counter, time.process_time), "reads the clock"),
    ((open,), "reads a file"),
)

# What every module has; whether it trains is compared by itself.
_STATE = set(vars(nn.Module()))
_OF_EVERY_MODULE = {*_STATE, *vars(nn.Module)}

# How many values one attribute or variable may hold, and how far inside.
_LARGEST = 2**16
_DEEPEST = 100

_LARGEST_ARRAY = 2**20

# Checkpoints put these back.
_GLOBAL_GENERATORS = (
    random._inst,  # type: ignore[attr-defined]
    np.random.mtrand._rand,
    torch.default_generator,
)


class _Missing:
    def __repr__(self) -> str:
        return "missing"


_MISSING = _Missing()


@dataclass(frozen=True)
class Value:
    """A value that was read: where it stands, how to read it again, and what it was."""

    where: str
    read: Callable[[], object]
    was: object
    shown: str


class Baked:
    """The values that one trace has read.

    ``lost``: what was read and cannot be compared, as ends of "its forward ..."; ``generators``:
    the random generators among it.
    """

    def __init__(self, model: nn.Module) -> None:
        self.values: dict[tuple[int, str], Value] = {}
        self.lost: list[str] = []
        self.generators: list[str] = []
        self._names = {id(module): name for name, module in model.named_modules()}
        self._mentioned: set[str] = set()
        self._optional: set[str] = set()
        # By identity, and held, so that it stays their own.
        self._spaces: dict[int, ModuleType | type] = {}
        self._functions: dict[int, list[FunctionType]] = {}
        self._ran: dict[int, CodeType] = {}
        self._begun: dict[tuple[int, int], object] = {}
        self._looking = False

    def check(self) -> None:
        """Raise RuntimeError, by name, if one of them is another now."""
        for value in self.values.values():
            try:
                now = value.read()
            except (AttributeError, KeyError, ValueError):
                raise RuntimeError(_changed(value, "is gone")) from None
            if snapshot(now) != value.was:
                raise RuntimeError(_changed(value, f"is {_short(now)} now"))

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Note what attributes of modules are read inside, and what functions that run name."""
        noted, thread = self, threading.get_ident()

        def __getattribute__(module: nn.Module, name: str) -> Any:
            here = threading.get_ident() == thread and not noted._looking
            here = here and not name.startswith("__")
            try:
                value = object.__getattribute__(module, name)
            except AttributeError:
                if here:
                    noted._missing(module, name)
                raise
            if here:
                noted._attribute(module, name, value)
            return value

        with patched(nn.Module, "__getattribute__", __getattribute__), watching(self._runs):
            yield

    def forward(self, module: nn.Module) -> None:
        """Note that a module's forward is traced."""
        where = self._where(module, "forward")
        self._note(id(module), where, module.forward, _attribute(module, "forward"))
        self._space(type(module))

    def held(self, module: nn.Module) -> None:
        """Note all that a module holds."""
        for name, value in vars(module).items():
            self._attribute(module, name, value)

    # ------------------------------------------------------------------------------ what is read

    def _attribute(self, module: nn.Module, name: str, value: object) -> None:
        if name in _STATE or (name in _OF_EVERY_MODULE and isinstance(value, MethodType)):
            return
        self._note(id(module), self._where(module, name), value, _attribute(module, name))

    def _missing(self, module: nn.Module, name: str) -> None:
        """A parameter, buffer or child that is None; or an attribute that is not there."""
        if id(module) not in self._names:
            return
        value: object = _MISSING
        for held in (module._parameters, module._buffers, module._modules):
            value = held.get(name, value)
        # A module may find attributes by code of its own, which reads others.
        if value is _MISSING and type(module).__getattr__ is not nn.Module.__getattr__:
            return
        if value is None or value is _MISSING:
            read = partial(getattr, module, name, _MISSING)
            self._note(id(module), self._where(module, name), value, read)

    def _where(self, module: nn.Module, name: str) -> str:
        return f"{self._names.get(id(module)) or type(module).__name__}.{name}"

    def _runs(self, frame: FrameType) -> None:
        """Note what a function reads that begins to run."""
        key = id(frame.f_code), id(frame.f_globals)
        if self._looking or key in self._begun:
            return
        self._begun[key] = frame.f_code, frame.f_globals
        try:
            self._code(frame.f_code, frame.f_globals)
        except Exception as error:
            self.lost.append(f"reads what cannot be compared ({type(error).__name__}: {error})")

    def _code(self, code: CodeType, held: dict[str, Any]) -> None:
        self._ran[id(code)] = code
        read = _read(code)
        for name in sorted(read.variables):
            if name in held:
                where = f"the global variable {name}"
                self._note(id(held), where, held[name], partial(operator.getitem, held, name))
            else:
                self._elsewhere(vars(builtins).get(name))
        for name in read.imports:
            if not of_library(sys.modules.get(name.partition(".")[0])):
                self.lost.append(f"imports what it reads ({name})")
        new = read.names - self._mentioned
        self._mentioned |= new
        self._optional |= read.optional
        for space in list(self._spaces.values()):
            self._named(space, new | read.optional)
        self._known(code)

    def _known(self, code: CodeType) -> None:
        """Note the closures of the functions with this code."""
        known = self._functions.get(id(code), [])
        for function in known:
            self._function(function)
        if known or not set(code.co_freevars) - {"__class__"}:
            return
        inner = (constant for other in self._ran.values() for constant in other.co_consts)
        if not any(constant is code for constant in inner):
            self.lost.append(f"runs a function that was made elsewhere ({code.co_name})")

    def _function(self, function: FunctionType) -> None:
        cells = function.__closure__ or ()
        for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
            self._note(id(cell), f"the variable {name} around it", *_content(cell))
        held = partial(_held, function)
        if any(held()):
            self._note(id(function), f"a default of {function.__name__}", held(), held)

    def _space(self, space: ModuleType | type) -> None:
        """Note what a module or a class holds by names that the code mentions."""
        for one in space.__mro__ if isinstance(space, type) else (space,):
            if id(one) in self._spaces or _of_library(one):
                continue
            self._spaces[id(one)] = one
            self._named(one, self._mentioned)
            # Python calls some functions of a class that no code names.
            if isinstance(one, type):
                self._methods(one)

    def _methods(self, kind: type) -> None:
        for value in vars(kind).values():
            if isinstance(value, FunctionType):
                self._meet(kind.__name__, value)

    def _named(self, space: ModuleType | type, names: set[str]) -> None:
        held = vars(space)
        library = isinstance(space, ModuleType) and of_library(space)
        for name in sorted(names):
            if library:
                self._elsewhere(held.get(name))
            elif name in held or name in self._optional:
                where, read = f"{space.__name__}.{name}", partial(held.get, name, _MISSING)
                self._note(id(space), where, read(), read)

    def _note(self, owner: int, where: str, value: object, read: Callable[[], object]) -> None:
        key = owner, where
        if key in self.values or isinstance(value, _ALIVE):
            return
        taken = _Taken()
        # Settings may run code of their own as they are looked at: nobody else reads that.
        looking, self._looking = self._looking, True
        try:
            self.values[key] = Value(where, read, taken.of(value), _short(value))
        finally:
            self._looking = looking
        if taken.too_large:
            self.lost.append(f"reads more values than are compared at each step ({where})")
        for other in taken.met:
            self._meet(where, other)

    def _meet(self, where: str, value: object) -> None:
        """Something inside a value that was read."""
        if isinstance(value, (ModuleType, type)):
            self._space(value)
        elif isinstance(value, (MethodType, staticmethod, classmethod)):
            self._meet(where, value.__func__)
        elif isinstance(value, FunctionType):
            self._functions.setdefault(id(value.__code__), []).append(value)
            if id(value.__code__) in self._ran:
                self._function(value)
        elif (own := own_generator(value)) is not None:
            self.generators.append(f"{where}, a {type(own).__name__}")
            self.lost.append(f"draws from its own {type(own).__name__} ({where})")
        elif isinstance(value, Iterator):
            self.lost.append(f"draws from its own {type(value).__name__} ({where})")
        elif isinstance(value, ContextVar):
            self.lost.append(f"reads a context variable ({where})")
        elif isinstance(value, _REMEMBERS):
            self.lost.append(f"calls a function that remembers its results ({where})")
        else:
            self._elsewhere(value)
            self._space(type(value))

    def _elsewhere(self, value: object) -> None:
        for sources, words in _ELSEWHERE:
            if any(value is source for source in sources):
                self.lost.append(words)


def own_generator(value: object) -> object:
    """The random generator that something is, or draws from as its bound method."""
    if not isinstance(value, (*GENERATORS, type, FunctionType, MethodType)) and callable(value):
        value = _owner(value)
    if not isinstance(value, GENERATORS) or any(value is one for one in _GLOBAL_GENERATORS):
        return None
    return value


@contextmanager
def without_generators(
    block: str, model: nn.Module, modules: Iterable[nn.Module]
) -> Iterator[None]:
    """Raise ValueError for a generator that ``modules`` hold, or that code names as it runs inside.

    A checkpoint puts back the global ones only.
    """
    baked = Baked(model)
    for module in modules:
        baked.held(module)
    _refuse_generators(block, baked)
    with baked.reading():
        yield
    _refuse_generators(block, baked)


def _refuse_generators(block: str, baked: Baked) -> None:
    for name in baked.generators:
        raise ValueError(
            f"block {block} has a random generator of its own ({name}), which would draw other "
            "numbers when the block is computed again: draw from torch's, NumPy's or Python's own "
            "generators, or outside the model, and give it the numbers as an input"
        )


def _of_library(value: object) -> bool:
    """Whether a class is one of a library, whose attributes are no settings of a model."""
    return isinstance(value, type) and of_library(sys.modules.get(value.__module__))


def _attribute(module: nn.Module, name: str) -> Callable[[], object]:
    return lambda: getattr(module, name)


def _content(cell: Any) -> tuple[object, Callable[[], object]]:
    def read() -> object:
        return cell.cell_contents

    try:
        return read(), read
    except ValueError:
        # Not assigned yet: nothing was read.
        return torch, lambda: torch


def _held(function: FunctionType) -> tuple[object, ...]:
    """What a function holds besides its closure."""
    return function.__defaults__, function.__kwdefaults__, vars(function)


# ---------------------------------------------------------------------------------- what code names


@dataclass(frozen=True)
class _Read:
    """The names that some code has.

    ``variables``: global ones; ``names``: those of attributes, as texts too; ``optional``: which
    of them it may look for in vain.
    """

    variables: set[str]
    imports: set[str]
    names: set[str]
    optional: set[str]


def _read(code: CodeType) -> _Read:
    """What some code names, functions inside it included."""
    read = _Read(set(), set(), {*code.co_names}, set())
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            read.variables.add(instruction.argval)
        elif instruction.opname == "IMPORT_NAME":
            read.imports.add(instruction.argval)
    texts = set(_texts(code.co_consts))
    read.names.update(texts)
    if read.variables & {"getattr", "hasattr"}:
        read.optional.update(texts)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner = _read(constant)
            for mine, other in zip(vars(read).values(), vars(inner).values(), strict=True):
                mine |= other
    return read


def _texts(constants: tuple[object, ...] | frozenset[object]) -> Iterator[str]:
    for constant in constants:
        if isinstance(constant, str) and constant.isidentifier():
            yield constant
        elif isinstance(constant, (tuple, frozenset)):
            yield from _texts(constant)


# --------------------------------------------------------------------------------------- snapshots


def snapshot(value: object) -> object:
    """Something that equals another snapshot as long as the settings in ``value`` are the same."""
    return _Taken().of(value)


class _Taken:
    """A snapshot as it is taken. ``met``: what is no plain value, in the order of its visits."""

    def __init__(self) -> None:
        self.met: list[object] = []
        self.too_large = False
        self._count = 0
        self._around: list[int] = []

    def of(self, value: object) -> object:
        self._count += 1
        if self._count > _LARGEST or len(self._around) > _DEEPEST:
            self.too_large = True
            return id(value)
        if isinstance(value, _PLAIN):
            # nan is equal to nothing.
            return type(value), repr(value)
        self.met.append(value)
        if id(value) in self._around:
            return "itself", self._around.index(id(value))
        self._around.append(id(value))
        taken = self._inside(value)
        self._around.pop()
        return taken

    def _inside(self, value: Any) -> object:
        if isinstance(value, _ALIVE):
            return type(value)
        if isinstance(value, np.ndarray):
            return _array(value)
        if isinstance(value, (tuple, list, deque)):
            return type(value), tuple(map(self.of, value)), self._own(value)
        if isinstance(value, (set, frozenset)):
            return type(value), frozenset(map(self.of, value)), self._own(value)
        if isinstance(value, (dict, MappingProxyType)):
            items = tuple((self.of(key), self.of(item)) for key, item in value.items())
            return type(value), items, self._own(value)
        if isinstance(value, partial):
            return self.of((value.func, value.args, value.keywords))
        if isinstance(value, MethodType):
            return id(value.__self__), value.__func__, self.of(value.__self__)
        if _by_identity(value):
            # While it traces, torch.fx replaces functions that it was told to keep.
            plain = inspect.unwrap(value) if callable(value) else value
            return id(plain), self.of(None if isinstance(value, type) else _owner(value))
        return self._own(value) or _opaque(value)

    def _own(self, value: object) -> object:
        """The attributes of an object."""
        settings = _settings(value)
        if settings is None:
            return None
        return type(value), tuple((name, self.of(item)) for name, item in settings.items())


def _by_identity(value: object) -> bool:
    """Whether something is a function, or has a state that no attribute shows."""
    if isinstance(value, (type, ModuleType, FunctionType, _REMEMBERS, *GENERATORS, *_DESCRIPTORS)):
        return True
    return callable(value) and _of_library(type(value))


def _owner(method: object) -> object:
    return getattr(method, "__self__", None)


def _array(value: Any) -> object:
    if value.nbytes > _LARGEST_ARRAY:
        return id(value)
    return value.shape, str(value.dtype), value.tobytes()


def _opaque(value: object) -> object:
    """An object without attributes: what it shows of itself, unless that is where it is."""
    text = repr(value)
    return type(value), id(value) if " at 0x" in text else text


def _settings(value: object) -> dict[str, object] | None:
    """The attributes that an object holds; None where it cannot hold any."""
    found: dict[str, object] = {}
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in [slots] if isinstance(slots, str) else slots:
            if hasattr(value, name):
                found[name] = getattr(value, name)
    if hasattr(value, "__dict__"):
        return {**found, **vars(value)}
    return found or None


def _short(value: object) -> str:
    if torch.is_tensor(value):
        return "a tensor"
    if isinstance(value, (MethodType, FunctionType)):
        return value.__qualname__
    # Tensors inside are shown by operators, which a trace forbids.
    with torch._C._DisableTorchDispatch():
        text = repr(value)
    if len(text) > 80:
        return f"{text[:77]}..."
    return text


def _changed(value: Value, how: str) -> str:
    return (
        f"{value.where} was {value.shown} when the model was planned, and {how}: the plan holds "
        "what the model did then; plan it anew, or keep such a value in a buffer"
    )
