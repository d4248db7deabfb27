"""What all kinds of blocks have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from typing import Any, ClassVar, Self

from torch import nn

from sublinear.repeatable import hooks

# What crosses from a block to the next: tensors, and whatever else a model hands on.
State = tuple[Any, ...]

Keywords = dict[str, Any]

# Their gates are activated in place, unseen by torch's own check.
RECURRENT = (nn.RNNBase, nn.RNNCellBase)

# The code of one block.
Program = Callable[..., State]

OVERWRITES_INPUT = (
    "{name} overwrites the model's input in place, so that nothing could be computed from it "
    "again: use inplace=False"
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
        return any(isinstance(module, RECURRENT) for module in self.modules(i))

    def swapped(self) -> bool:
        """Whether other tensors stand in for parameters, as `torch.func.functional_call` does."""
        for module in self.parts:
            for tensor in module._parameters.values():
                if tensor is not None and not isinstance(tensor, nn.Parameter):
                    return True
        return False

    def enter(self, args: State, kwargs: Keywords) -> State:
        """What crosses into the first block when the model is called so; none of `partial` ones."""
        raise NotImplementedError

    def standing_in(self, work: Callable[..., State]) -> AbstractContextManager[None]:
        """Let ``work`` do what all blocks do, while the model runs inside; of `partial` ones."""
        raise NotImplementedError

    def around(
        self,
        work: Callable[..., State],
        original: Callable[..., Any],
        args: State,
        kwargs: Keywords,
    ) -> Any:
        """The model's ``original`` forward, in which ``work`` does what all blocks do."""
        with self.standing_in(work):
            return original(*args, **kwargs)

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


def has_weights(module: nn.Module) -> bool:
    """Whether a module does real work.

    Blocks begin with one: it saves its input, which is then held only once. An activation in a
    block of its own would not need its input any more, and a plan would count it in vain.
    """
    return any(parameter.dim() > 1 for parameter in module.parameters())


def changes_input(module: nn.Module) -> bool:
    """Whether a module's own operator overwrites its input, as ``nn.ReLU(inplace=True)`` does."""
    return bool(getattr(module, "inplace", False))
