"""Random generators of a module's own: a block that is computed again would draw other numbers.

Checkpoints put back the global ones only. A generator that draws in rare steps is not found by
trying a block twice; so it counts where a module holds it, or where code that it runs names it.
"""

from __future__ import annotations

import random

import numpy as np
import torch
from torch import nn

from labkit.restore.generators import GENERATORS
from labkit.restore.reach import Walk
from sublinear.blocks.blocks import Blocks

_GLOBAL = (
    random._inst,  # type: ignore[attr-defined]
    np.random.mtrand._rand,
    torch.default_generator,
)


def refuse_generators(blocks: Blocks) -> None:
    """Raise ValueError, by name, for a generator that modules, or their classes, reach."""
    for i, block in enumerate(blocks.names):
        for name in blocks.inside[i]:
            if words := _found(blocks.model.get_submodule(name)):
                raise ValueError(
                    f"block {block} has a random generator of its own ({name}.{words}), which "
                    "would draw other numbers when the block is computed again: draw from "
                    "torch's, NumPy's or Python's own generators, or outside the model, and give "
                    "it the numbers as an input"
                )


def _found(module: nn.Module) -> str:
    """The first such generator in words, empty where there is none."""
    walk = Walk()
    # Modules inside are looked at by themselves.
    held = [each for each in vars(module).items() if each[0] != "_modules"]
    for name, value in [*held, ("class", type(module))]:
        known = len(walk.items)
        walk.look([(name, value)])
        for item in walk.items[known:]:
            if isinstance(item, GENERATORS) and not any(item is one for one in _GLOBAL):
                return f"{name}, a {type(item).__name__}"
    return ""
