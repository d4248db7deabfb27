"""Blocks of an ``nn.Sequential``: its children, those of a Sequential inside it included."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from sublinear.blocks.blocks import (
    OVERWRITES_INPUT,
    Blocks,
    Keywords,
    Program,
    State,
    changes_input,
    has_weights,
)


@dataclass(frozen=True)
class SequentialBlocks(Blocks):
    """The children of a flattened Sequential; those without weights belong to the one before."""

    kind = "sequential"

    @classmethod
    def read(cls, model: nn.Module) -> SequentialBlocks:
        """Raises ValueError if there are none, or the first overwrites the model's input."""
        groups: list[list[tuple[str, Program]]] = []
        for name, module in _flatten(model):
            if not groups and changes_input(module):
                raise ValueError(OVERWRITES_INPUT.format(name=name))
            if groups and (changes_input(module) or not has_weights(module)):
                groups[-1].append((name, _alone(module)))
            else:
                groups.append([(name, _alone(module))])
        if not groups:
            raise ValueError(
                "the model is an nn.Sequential without modules: there is nothing to plan"
            )
        return cls.of_groups(model, groups)

    def enter(self, args: State, kwargs: Keywords) -> State:
        if kwargs or len(args) != 1:
            raise TypeError(
                f"a Sequential takes one input, not {len(args)} and the keywords {list(kwargs)}"
            )
        return args


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


def _alone(module: nn.Module) -> Program:
    return lambda x: (module(x),)
