"""Random generators of a module's own: a block that is computed again would draw other numbers.

Checkpoints put back the global ones only. A generator that draws in rare steps is not found by
trying a block twice; so it counts where a module holds it, or where code that it runs names it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import torch
from torch import nn

from labkit.restore.generators import GENERATORS
from labkit.restore.own import is_own_class, is_own_code
from labkit.restore.reach import Walk
from sublinear.blocks.blocks import Blocks

_GLOBAL = (
    random._inst,  # type: ignore[attr-defined]
    np.random.mtrand._rand,
    torch.default_generator,
)


def refuse_generators(blocks: Blocks) -> None:
    """Raise ValueError, by name, for a generator that modules of the blocks reach."""
    for i, block in enumerate(blocks.names):
        for name in blocks.inside[i]:
            for words in _Search().found(blocks.model.get_submodule(name)):
                raise ValueError(
                    f"block {block} has a random generator of its own ({name}.{words}), which "
                    "would draw other numbers when the block is computed again: draw from "
                    "torch's, NumPy's or Python's own generators, or outside the model, and give "
                    "it the numbers as an input"
                )


class _Search(Walk):
    """What a module reaches; of classes on the way only what code on the way names."""

    def __init__(self) -> None:
        super().__init__()
        self.classes: dict[type, None] = {}
        self.names: set[str] = set()

    def found(self, module: nn.Module) -> Iterator[str]:
        """The generators among it, in words."""
        self.classes[type(module)] = None
        # Modules inside are looked at by themselves.
        held = [each for each in vars(module).items() if each[0] != "_modules"]
        looked = set[tuple[type, str]]()
        for name, value in [*held, ("forward", type(module).forward)]:
            known, more = len(self.items), [(name, value)]
            while more:
                self.look(more)
                more = []
                bases = dict.fromkeys(base for kind in self.classes for base in kind.__mro__)
                for base in filter(is_own_class, bases):
                    for named in sorted(self.names & vars(base).keys()):
                        if (base, named) not in looked:
                            looked.add((base, named))
                            more.append((named, vars(base)[named]))
            for each in self.items[known:]:
                if isinstance(each, GENERATORS) and not any(each is one for one in _GLOBAL):
                    yield f"{name}, a {type(each).__name__}"

    def _visit(self, place: Any, look: Any) -> None:
        item = place.item
        if isinstance(item, type):
            self.classes[item] = None
            return
        if isinstance(item, FunctionType) and is_own_code(item.__code__):
            self.names |= _names(item.__code__)
        super()._visit(place, look)


def _names(code: CodeType) -> set[str]:
    """The names of variables and attributes in some code, and in functions inside it."""
    inside = (each for each in code.co_consts if isinstance(each, CodeType))
    return {*code.co_names}.union(*map(_names, inside))
