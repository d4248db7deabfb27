"""Python values that a trace has read: they stand in its code as constants.

A model whose ``self.alpha`` is annealed would go on with the first value. So the plain attributes
that traced code reads are noted, with the global variables and closures of that code, and compared
before each forward. What modules that run their own code read is not part of it.
"""

from __future__ import annotations

import dis
import enum
import inspect
import logging
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import fx, nn

from labkit.patches import patched
from sublinear.blocks.noticing import Lost

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
_GENERATORS = (random.Random, np.random.Generator, np.random.RandomState, torch.Generator)

# Looked up when a plan runs, or their objects are not settings.
_ALIVE = (nn.Module, torch.Tensor, ModuleType, logging.Logger, logging.LoggerAdapter)

# What every module has; whether it trains is compared by itself.
_OF_EVERY_MODULE = {*vars(nn.Module()), *vars(nn.Module)}

# How far into containers and settings objects.
_DEPTH = 3

_LARGEST_ARRAY = 2**20


@dataclass(frozen=True)
class Value:
    """A value that was read: where it stands, how to read it again, and what it was."""

    where: str
    read: Callable[[], object]
    was: object
    shown: str


class Baked:
    """The values that one trace has read."""

    def __init__(self, model: nn.Module) -> None:
        self.values: dict[tuple[int, str], Value] = {}
        self._names = {id(module): name for name, module in model.named_modules()}
        self._functions: set[int] = set()

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
        """Note what attributes of the model's modules are read inside."""
        noted, thread = self, threading.get_ident()

        def __getattribute__(module: nn.Module, name: str) -> Any:
            value = object.__getattribute__(module, name)
            if name in _OF_EVERY_MODULE or name.startswith("__"):
                return value
            if threading.get_ident() == thread:
                noted._attribute(module, name, value)
            return value

        with patched(nn.Module, "__getattribute__", __getattribute__):
            yield

    def function(self, function: object) -> None:
        """Note the global variables and closures of a function that is traced.

        Those of the functions that it calls in the same file as well.
        """
        if isinstance(function, MethodType):
            function = function.__func__
        while hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        if not isinstance(function, FunctionType) or id(function) in self._functions:
            return
        self._functions.add(id(function))
        held = function.__globals__
        for name in sorted(_names(function.__code__)):
            if name not in held:
                continue
            called = held[name]
            if isinstance(called, FunctionType) and called.__module__ == function.__module__:
                self.function(called)
            self._note(id(held), f"the global variable {name}", held[name], _item(held, name))
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        for name, cell in cells:
            self._note(id(cell), f"the variable {name} around it", *_content(cell))

    def _attribute(self, module: nn.Module, name: str, value: object) -> None:
        if id(module) not in self._names or isinstance(value, fx.Proxy):
            return
        if isinstance(value, (*_GENERATORS, Iterator)):
            raise Lost(f"draws from its own {type(value).__name__} ({name})")
        if isinstance(value, (MethodType, FunctionType)):
            self.function(value)
        self._note(id(module), self._where(module, name), value, _attribute(module, name))

    def forward(self, module: nn.Module) -> None:
        """Note that a module's forward is traced."""
        self.function(module.forward)
        where = self._where(module, "forward")
        self._note(id(module), where, module.forward, _attribute(module, "forward"))

    def _where(self, module: nn.Module, name: str) -> str:
        return f"{self._names[id(module)] or type(module).__name__}.{name}"

    def _note(self, owner: int, where: str, value: object, read: Callable[[], object]) -> None:
        if isinstance(value, (*_ALIVE, type)):
            return
        key = owner, where
        if key not in self.values:
            self.values[key] = Value(where, read, snapshot(value), _short(value))


def _attribute(module: nn.Module, name: str) -> Callable[[], object]:
    return lambda: getattr(module, name)


def _item(held: dict[str, Any], name: str) -> Callable[[], object]:
    return lambda: held[name]


def _content(cell: Any) -> tuple[object, Callable[[], object]]:
    def read() -> object:
        return cell.cell_contents

    try:
        return read(), read
    except ValueError:
        # Not assigned yet: nothing was read.
        return torch, lambda: torch


def _names(code: CodeType) -> set[str]:
    """The global names that some code reads, functions inside it included."""
    found = set()
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            found.add(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _names(constant)
    return found


def snapshot(value: object, depth: int = 0) -> object:
    """Something that equals another snapshot as long as the settings in ``value`` are the same."""
    if isinstance(value, _PLAIN):
        # nan is equal to nothing.
        return type(value), repr(value)
    if isinstance(value, _ALIVE) or depth > _DEPTH:
        return type(value)
    if isinstance(value, np.ndarray):
        if value.nbytes > _LARGEST_ARRAY:
            return id(value)
        return value.shape, str(value.dtype), value.tobytes()
    if isinstance(value, (tuple, list)):
        return type(value), tuple(snapshot(item, depth + 1) for item in value)
    if isinstance(value, (set, frozenset)):
        return type(value), frozenset(snapshot(item, depth + 1) for item in value)
    if isinstance(value, dict):
        items = ((snapshot(key, depth + 1), item) for key, item in value.items())
        return type(value), tuple((key, snapshot(item, depth + 1)) for key, item in items)
    if isinstance(value, MethodType):
        return id(value.__self__), value.__func__
    if callable(value) or isinstance(value, type):
        # While it traces, torch.fx replaces functions that it was told to keep.
        return id(inspect.unwrap(value))
    return type(value), snapshot(_settings(value), depth + 1)


def _settings(value: object) -> dict[str, object]:
    """What an object holds."""
    found: dict[str, object] = {}
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in [slots] if isinstance(slots, str) else slots:
            if hasattr(value, name):
                found[name] = getattr(value, name)
    found.update(getattr(value, "__dict__", {}))
    return found


def _short(value: object) -> str:
    text = repr(value)
    if len(text) > 80:
        return f"{text[:77]}..."
    return text


def _changed(value: Value, how: str) -> str:
    return (
        f"{value.where} was {value.shown} when the model was planned, and {how}: the plan holds "
        "what the model did then; plan it anew, or keep such a value in a buffer"
    )
