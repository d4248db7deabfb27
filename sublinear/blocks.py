"""A model as an ordered list of blocks: what all kinds have in common, and the simplest of them.

That one is the children of an ``nn.Sequential``. The others are a run of modules each of which is
fed by the one before (`sublinear.wrapped`), and the graphs that torch's compiler captures
(`sublinear.capture`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import nn

from labkit.restore.generators import GENERATORS
from labkit.restore.reach import Walk
from sublinear.repeatable import hooks

# What crosses from a block to the next: tensors, and whatever else a model hands on.
State = tuple[Any, ...]

Keywords = dict[str, Any]

# The code of one block, or of all.
Program = Callable[..., State]

# Their gates are activated in place, unseen by torch's own check.
_RECURRENT = (nn.RNNBase, nn.RNNCellBase)

# Which checkpoints put back.
_GLOBAL = (
    random._inst,  # type: ignore[attr-defined]
    np.random.mtrand._rand,
    torch.default_generator,
)


@dataclass(frozen=True)
class Blocks:
    """The blocks of one model. They share its modules; nothing is copied.

    ``inside``: the names of the model's modules that each block runs. ``note``: why no better kind
    was possible, in plain words. ``parts``: the model's modules when it was read.
    """

    model: nn.Module
    names: tuple[str, ...]
    inside: tuple[tuple[str, ...], ...]
    programs: tuple[Program, ...]
    note: str = ""
    parts: tuple[nn.Module, ...] = field(init=False, repr=False, compare=False)

    # "sequential", "captured" or "wrapped".
    kind: ClassVar[str] = ""
    # Whether the model's own code runs around them.
    partial: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.model.modules()))

    @classmethod
    def of_groups(
        cls, model: nn.Module, groups: list[list[tuple[str, Program]]], **more: Any
    ) -> Self:
        """A block of each group of modules, given by their names, each with its code."""
        names, inside, programs = [], [], []
        for group in groups:
            parts = [name for name, _ in group]
            names.append(parts[0] if len(parts) == 1 else f"{parts[0]}..{parts[-1]}")
            below: dict[str, None] = {}
            for part in parts:
                named = model.get_submodule(part).named_modules(prefix=part)
                below |= dict.fromkeys(name for name, _ in named)
            inside.append(tuple(below))
            programs.append(partial(in_a_row, [program for _, program in group]))
        return cls(model, tuple(names), tuple(inside), tuple(programs), **more)

    def __len__(self) -> int:
        return len(self.names)

    def run(self, i: int, *state: Any) -> State:
        """Run block ``i`` on what crosses into it.

        Returns what crosses into the next, or the model's output alone.
        """
        return self.programs[i](*state)

    def run_all(self, *state: Any) -> State:
        """Run one block after the other."""
        return in_a_row(self.programs, *state)

    def modules(self, i: int) -> Iterator[nn.Module]:
        """The modules that block ``i`` runs."""
        return map(self.model.get_submodule, self.inside[i])

    def overwrites(self, i: int) -> bool:
        """Whether block ``i`` overwrites in place, unseen by torch, what an option might keep."""
        return any(isinstance(module, _RECURRENT) for module in self.modules(i))

    def swapped(self) -> bool:
        """Whether other tensors stand in for parameters, as `torch.func.functional_call` does."""
        for module in self.parts:
            for tensor in module._parameters.values():
                if tensor is not None and not isinstance(tensor, nn.Parameter):
                    return True
        return False

    def enter(self, args: State, kwargs: Keywords) -> State:
        """What crosses into the first block when the model is called so; none of `partial` ones."""
        return args

    def standing_in(self, work: Program) -> AbstractContextManager[None]:
        """Let ``work`` do what all blocks do, while the model runs inside; of `partial` ones."""
        raise NotImplementedError

    def around(
        self, work: Program, original: Callable[..., Any], args: State, kwargs: Keywords
    ) -> Any:
        """The model's ``original`` forward, with ``work`` in place of what all blocks do."""
        return work(*self.enter(args, kwargs))[0]

    def hookless(self) -> Iterator[nn.Module]:
        """The modules that must have no hooks: those that blocks run, or replace by their code."""
        yield from self.parts[1:]

    def check_unchanged(self) -> None:
        """Raise RuntimeError, by name, if the model is not what it was when it was read."""
        now = dict(self.model.named_modules())
        for (name, module), was in zip_longest(now.items(), self.parts, fillvalue=("", None)):
            if module is not was:
                raise RuntimeError(
                    f"{name or 'a module'} was replaced, added or removed since the model was "
                    "planned: the plan runs the modules of then; plan it anew"
                )
        for module in self.hookless():
            if found := hooks(module):
                name = next(name for name, other in now.items() if other is module)
                raise RuntimeError(
                    f"{name} has {found} since the model was planned, which would not run, or "
                    "run again whenever a block is computed again: remove them, or plan it anew"
                )


def in_a_row(programs: Sequence[Program], *state: Any) -> State:
    """Run one program after the other."""
    for program in programs:
        state = program(*state)
    return state


# --------------------------------------------------------------------------------------- Sequential


class SequentialBlocks(Blocks):
    """The children of a flattened Sequential; those without weights belong to the one before.

    One with weights saves its input, which is then held only once. An activation in a block of its
    own would not need its input any more, and a plan would count it in vain.
    """

    kind = "sequential"

    @classmethod
    def read(cls, model: nn.Module) -> SequentialBlocks:
        """Raises ValueError if there are none, or the first overwrites the model's input."""
        groups: list[list[tuple[str, Program]]] = []
        for name, module in _flatten(model):
            in_place = getattr(module, "inplace", False)
            if not groups and in_place:
                raise ValueError(
                    f"{name} overwrites the model's input in place, so that nothing could be "
                    "computed from it again: use inplace=False"
                )
            heavy = any(parameter.dim() > 1 for parameter in module.parameters())
            if not groups or (heavy and not in_place):
                groups.append([])
            groups[-1].append((name, partial(_alone, module)))
        if not groups:
            raise ValueError(
                "the model is an nn.Sequential without modules: there is nothing to plan"
            )
        return cls.of_groups(model, groups)

    def enter(self, args: State, kwargs: Keywords) -> State:
        # Its one input, however it is given.
        given = (*args, *kwargs.values())
        if len(given) != 1:
            raise TypeError(f"an nn.Sequential takes one input, not {len(given)}")
        return given


def is_plain_sequential(module: nn.Module) -> bool:
    """Whether a module is a Sequential that runs as such."""
    return isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward


def _flatten(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    # Not named_children, which hides repeats.
    for name, child in module._modules.items():
        assert child is not None, "nn.Sequential holds modules only"
        if is_plain_sequential(child):
            yield from _flatten(child, f"{prefix}{name}.")
        else:
            yield prefix + name, child


def _alone(module: nn.Module, x: Any) -> State:
    return (module(x),)


# --------------------------------------------------------------------------------------- generators


def refuse_generators(blocks: Blocks) -> None:
    """Raise ValueError, by name, for a random generator that modules, or their classes, reach.

    A block that is computed again would draw other numbers from it. One that draws in rare steps is
    not found by trying a block twice; so it counts where a module holds it, or where code that it
    runs names it.
    """
    for i, block in enumerate(blocks.names):
        for name in blocks.inside[i]:
            if words := _generator(blocks.model.get_submodule(name)):
                raise ValueError(
                    f"block {block} has a random generator of its own ({name}.{words}), which "
                    "would draw other numbers when the block is computed again: draw from "
                    "torch's, NumPy's or Python's own generators, or outside the model, and give "
                    "it the numbers as an input"
                )


def _generator(module: nn.Module) -> str:
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
