"""What Python values hold: a picture of them that can be compared, and all that lies inside."""

from __future__ import annotations

import enum
import inspect
import logging
import sys
from collections import deque
from functools import cached_property, lru_cache, partial
from types import FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import fx, nn

from labkit.restore.generators import GENERATORS
from sublinear.blocks.executed import of_library

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

# They are no settings.
ALIVE = (nn.Module, torch.Tensor, logging.Logger, logging.LoggerAdapter, fx.Proxy, fx.Node)

_REMEMBERS = type(lru_cache(int))
_DESCRIPTORS = (staticmethod, classmethod, property, cached_property)

# How many values are looked at, and how far inside.
_LARGEST = 2**16
_DEEPEST = 100

_LARGEST_ARRAY = 2**20


def snapshot(value: object) -> object:
    """Something that equals another snapshot as long as the settings in ``value`` are the same."""
    return Taken().of(value)


class Taken:
    """A snapshot as it is taken. ``met``: what is no plain value, in the order of its visits."""

    def __init__(self) -> None:
        self.met: list[object] = []
        self._count = 0
        self._around: list[int] = []

    def of(self, value: object) -> object:
        """The snapshot of a value, and of all inside."""
        self._count += 1
        if self._count > _LARGEST or len(self._around) > _DEEPEST:
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
        if isinstance(value, ALIVE):
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
            plain = inspect.unwrap(value) if callable(value) else value
            return id(plain), self.of(None if isinstance(value, type) else owner(value))
        return self._own(value) or _opaque(value)

    def _own(self, value: object) -> object:
        """The attributes of an object."""
        settings = _settings(value)
        if settings is None:
            return None
        return type(value), tuple((name, self.of(item)) for name, item in settings.items())


def owner(method: object) -> object:
    """Whose method something is; None of a function."""
    return getattr(method, "__self__", None)


def _by_identity(value: object) -> bool:
    """Whether something is a function, or has a state that no attribute shows."""
    if isinstance(value, (type, ModuleType, FunctionType, _REMEMBERS, *GENERATORS, *_DESCRIPTORS)):
        return True
    return callable(value) and of_library(sys.modules.get(type(value).__module__))


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
