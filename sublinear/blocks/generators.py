"""Random generators of a module's own: a block that is computed again would draw other numbers.

Checkpoints put back the global ones only. A generator that draws in rare steps is not found by
trying a block twice; so it counts where a module, or the code of its class, reaches it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

from labkit.restore.generators import GENERATORS
from labkit.restore.own import is_own_class
from labkit.restore.reach import Walk
from sublinear.blocks.blocks import Blocks

_GLOBAL = (
    random._inst,  # type: ignore[attr-defined]
    np.random.mtrand._rand,
    torch.default_generator,
)


def refuse_generators(blocks: Blocks) -> None:
    """Raise ValueError, by name, for a generator that modules of the blocks reach."""
    walk = Walk()
    for i, block in enumerate(blocks.names):
        for module in blocks.inside[i]:
            for name, value in _reached(blocks.model.get_submodule(module)):
                known = len(walk.items)
                walk.look([(name, value)])
                for each in walk.items[known:]:
                    if isinstance(each, GENERATORS) and not any(each is one for one in _GLOBAL):
                        raise ValueError(
                            f"block {block} has a random generator of its own ({module}.{name}, a "
                            f"{type(each).__name__}), which would draw other numbers when the "
                            "block is computed again: draw from torch's, NumPy's or Python's own "
                            "generators, or outside the model, and give it the numbers as an input"
                        )


def _reached(module: nn.Module) -> Iterator[tuple[str, object]]:
    """Its attributes, and those of its class; modules inside are looked at by themselves."""
    for name, value in vars(module).items():
        if name != "_modules":
            yield name, value
    for kind in filter(is_own_class, type(module).__mro__):
        for name, value in vars(kind).items():
            if not name.startswith("__"):
                yield name, value
