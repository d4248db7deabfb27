"""What all kinds of blocks have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

# What crosses from a block to the next: tensors, and whatever else a model hands on.
State = tuple[Any, ...]

Keywords = dict[str, Any]

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
    was possible, in plain words.
    """

    model: nn.Module
    names: tuple[str, ...]
    inside: tuple[tuple[str, ...], ...]
    programs: tuple[Program, ...]
    note: str = ""

    # "sequential", "traced" or "wrapped".
    kind: ClassVar[str] = ""

    def __len__(self) -> int:
        return len(self.names)

    def run(self, i: int, *state: Any) -> State:
        """Run block ``i`` on what crosses into it.

        Returns what crosses into the next, or the model's output alone.
        """
        return self.programs[i](*state)

    def run_all(self, *state: Any) -> State:
        """Run one block after the other."""
        for program in self.programs:
            state = program(*state)
        return state

    def modules(self, i: int) -> Iterator[nn.Module]:
        """The modules that block ``i`` runs."""
        return map(self.model.get_submodule, self.inside[i])

    def enter(self, args: State, kwargs: Keywords) -> State:
        """What crosses into the first block when the model is called so. Not for wrapped models."""
        raise NotImplementedError

    def check_mode(self) -> None:
        """Raise RuntimeError if the model is not in the mode in which it was read."""


def below(model: nn.Module, names: list[str]) -> tuple[str, ...]:
    """``names`` and all modules under them."""
    found = []
    for name in dict.fromkeys(names):
        for inner, _ in model.get_submodule(name).named_modules(prefix=name):
            found.append(inner)
    return tuple(found)


def name_of(parts: list[str]) -> str:
    """The name of a block that is made of these parts."""
    if len(parts) == 1:
        return parts[0]
    return f"{parts[0]}..{parts[-1]}"


def has_weights(module: nn.Module) -> bool:
    """Whether a module does real work.

    Blocks begin with one: it saves its input, which is then held only once. An activation in a
    block of its own would not need its input any more, and a plan would count it in vain.
    """
    return any(parameter.dim() > 1 for parameter in module.parameters())


def changes_input(module: nn.Module) -> bool:
    """Whether a module's own operator overwrites its input, as ``nn.ReLU(inplace=True)`` does."""
    return bool(getattr(module, "inplace", False))
