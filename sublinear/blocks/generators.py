"""Random generators of a module's own: a block that is computed again would draw other numbers.

Checkpoints put back the global ones only. A generator that draws in rare steps is not found by
trying a block twice; so it counts where a module holds it, or where code that runs names it.
"""

from __future__ import annotations

import logging
import random
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from types import CodeType, FrameType, FunctionType, MappingProxyType, MethodType, ModuleType

import numpy as np
import torch
from torch import nn

from labkit.restore.bindings import attributes_of
from labkit.restore.generators import GENERATORS
from sublinear.blocks.executed import of_library, watching

# They are looked at by themselves, or hold no generator.
_APART = (nn.Module, torch.Tensor, np.ndarray, logging.Logger, str, bytes, int, float, type(None))
_MAPPINGS = (dict, MappingProxyType)
_CONTAINERS = (list, tuple, set, frozenset, deque)
# What they hold is of the code that names them, or their own.
_CLOSED = (type, ModuleType, FunctionType, staticmethod, classmethod, property, *GENERATORS)

# How many objects are looked at inside of one.
_MOST = 2**16

_GLOBAL = (
    random._inst,  # type: ignore[attr-defined]
    np.random.mtrand._rand,
    torch.default_generator,
)


@contextmanager
def without_generators(
    block: str, model: nn.Module, modules: Iterable[nn.Module]
) -> Iterator[None]:
    """Raise ValueError for a generator that ``modules`` hold, or that code names as it runs inside.

    Names in the message are those of ``model``.
    """
    modules = tuple(modules)
    names = {id(module): name for name, module in model.named_modules()} if modules else {}
    search = _Search()
    for module in modules:
        where = names.get(id(module)) or type(module).__name__
        for name, value in vars(module).items():
            search.look(f"{where}.{name}", value, set())
    search.refuse(block)
    with watching(search.runs):
        yield
    search.refuse(block)


class _Search:
    """``found``: in words, where each generator stands, and its kind."""

    def __init__(self) -> None:
        self.found: list[str] = []
        # By identity, and held, so that it stays their own.
        self._known: dict[int, object] = {}

    def refuse(self, block: str) -> None:
        for words in self.found:
            raise ValueError(
                f"block {block} has a random generator of its own ({words}), which would draw "
                "other numbers when the block is computed again: draw from torch's, NumPy's or "
                "Python's own generators, or outside the model, and give it the numbers as an input"
            )

    def runs(self, frame: FrameType) -> None:
        """Look at what a function names that begins to run: its variables and global ones."""
        code = frame.f_code
        if id(code) in self._known:
            return
        self._known[id(code)] = code
        names = _names(code)
        for name, value in frame.f_locals.items():
            around = name in code.co_freevars
            where = f"the variable {name} around it" if around else f"{name} of {code.co_name}"
            self.look(where, value, names)
        for name in sorted(names & frame.f_globals.keys()):
            self.look(f"the global variable {name}", frame.f_globals[name], names)

    def look(self, where: str, value: object, names: set[str]) -> None:
        """Look at all inside a value; of Python modules and classes, at what code names."""
        for each in _inside(value):
            if isinstance(each, (ModuleType, type)):
                self._space(each, names)
            elif (own := own_generator(each)) is not None:
                self.found.append(f"{where}, a {type(own).__name__}")

    def _space(self, space: ModuleType | type, names: set[str]) -> None:
        for one in space.__mro__ if isinstance(space, type) else (space,):
            module = one if isinstance(one, ModuleType) else sys.modules.get(one.__module__)
            if of_library(module):
                continue
            for name in sorted(names & vars(one).keys()):
                value = vars(one)[name]
                if id(value) not in self._known:
                    self._known[id(value)] = value
                    self.look(f"{one.__name__}.{name}", value, names)


def _inside(value: object) -> Iterator[object]:
    """A value and all that it holds, each once."""
    todo, seen = [value], dict[int, object]()
    while todo and len(seen) < _MOST:
        each = todo.pop()
        if id(each) in seen or isinstance(each, _APART):
            continue
        seen[id(each)] = each
        yield each
        if isinstance(each, _CLOSED):
            continue
        if isinstance(each, _MAPPINGS):
            todo += [*each, *each.values()]
        elif isinstance(each, _CONTAINERS):
            todo += each
        elif isinstance(each, partial):
            todo += [each.func, *each.args, *each.keywords.values()]
        elif isinstance(each, MethodType) or of_library(sys.modules.get(type(each).__module__)):
            todo.append(getattr(each, "__self__", None))
            continue
        todo += attributes_of(each).values()


def own_generator(value: object) -> object:
    """The random generator that something is, or draws from as its bound method."""
    if not isinstance(value, (*GENERATORS, type, FunctionType, MethodType)) and callable(value):
        value = getattr(value, "__self__", None)
    if not isinstance(value, GENERATORS) or any(value is one for one in _GLOBAL):
        return None
    return value


def _names(code: CodeType) -> set[str]:
    """The names of variables and attributes in some code, as texts too; of functions inside."""
    names = {*code.co_names}
    for constant in code.co_consts:
        if isinstance(constant, str) and constant.isidentifier():
            names.add(constant)
        elif isinstance(constant, CodeType):
            names |= _names(constant)
    return names
