"""Blocks of a model that cannot be captured: a run of modules, each fed by the one before.

The first of the modules does the work of all. What the others return is a token that only the next
one may read: a model that adds up its hidden states would else train on the wrong ones without a
word. Whatever else a module returns, the model gets as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_unflatten

from labkit.restore.attributes import exchanged
from sublinear.blocks.blocks import Blocks, Keywords, Program, State
from sublinear.blocks.calls import Call, Frame, Layout, longest_run, record
from sublinear.repeatable import unmoved


@dataclass(frozen=True)
class WrappedBlocks(Blocks):
    """Some of the model's modules; what runs outside them is its own code."""

    frames: tuple[Frame, ...] = ()

    kind = "wrapped"
    partial = True

    @classmethod
    def read(
        cls,
        model: nn.Module,
        args: State,
        kwargs: Keywords,
        chosen: list[str] | None,
        reason: str,
    ) -> WrappedBlocks:
        """The ``chosen`` modules, or the longest run; ``reason``: why it is not captured.

        Raises ValueError where modules cannot be wrapped.
        """
        frames = longest_run(record(model, args, kwargs, chosen), chosen)
        if not frames:
            raise ValueError(
                f"{reason}; and no two modules of the model feed one another directly, so that "
                "nothing can be wrapped: choose modules by name, or write the part to be planned "
                "as an nn.Sequential"
            )
        groups: list[list[tuple[str, Program]]] = []
        for frame in frames:
            name = frame.call.name
            part = name, _step(model.get_submodule(name).forward, frame)
            if groups and frame.call.overwrites:
                # It overwrites what the one before hands on.
                groups[-1].append(part)
            else:
                groups.append([part])
        ends = f"{frames[0].call.name} to {frames[-1].call.name}"
        note = (
            f"{reason}: planned are {len(frames)} modules, {ends}; what runs outside them stays as "
            "it is"
        )
        blocks = cls.of_groups(model, groups, note=note, frames=frames)
        with unmoved(model), torch.no_grad():
            try:
                with blocks.standing_in(blocks.run_all):
                    model(*args, **kwargs)
            except NotARun as error:
                raise ValueError(f"{reason}; and {ends} cannot be wrapped: {error}") from None
        return blocks

    def hookless(self) -> Iterator[nn.Module]:
        for i in range(len(self)):
            yield from self.modules(i)

    @contextmanager
    def standing_in(self, work: Callable[..., State]) -> Iterator[None]:
        """Let ``work``, given what crosses into the first module, do what all of them do.

        It returns what leaves the last one; the others hand that on. Raises RuntimeError where the
        model does not feed them to one another, or uses what they hand on for anything else.
        """
        names = [frame.call.name for frame in self.frames]
        # What each module that was called so far hands to the next, and what they return besides.
        handed: list[torch.Tensor] = []
        besides: list[torch.Tensor] = []
        shared: list[torch.Tensor] = []
        result: Any = None

        def forward(i: int, /, *args: Any, **kwargs: Any) -> Any:
            nonlocal result
            frame = self.frames[i]
            given, spec = tree_flatten((args, kwargs))
            _check(frame.call, frame.call.given, given, spec, "is given")
            x, now = given[frame.taken], [given[place] for place in frame.shared]
            if i == 0 and not handed:
                shared[:] = now
                result, *leaving = work(x, *now)
                besides[:] = leaving[len(now) :]
            same = all(one is two for one, two in zip(now, shared, strict=True))
            if len(handed) != i or (i and x is not handed[-1]) or not same:
                raise NotARun(
                    f"{names[i]} was not fed by the module before it, as it was when the model was "
                    "planned: plan it with other modules"
                )
            last = i + 1 == len(names)
            handed.append(result if last else _Token.of(names[i], names[i + 1]))
            leaves = list(frame.call.returned.values)
            for place in frame.besides:
                leaves[place] = besides.pop(0)
            leaves[frame.made] = handed[-1]
            return tree_unflatten(leaves, frame.call.returned.spec)

        modules = enumerate(map(self.model.get_submodule, names))
        with exchanged([(module, "forward", partial(forward, i)) for i, module in modules]):
            yield
            if len(handed) != len(names):
                missing = names[len(handed)]
                raise NotARun(f"{missing} was not called, as it was when the model was planned")


def _step(forward: Callable[..., Any], frame: Frame) -> Program:
    places, count = frame.shared, len(frame.shared)

    def program(x: Any, *rest: Any) -> State:
        leaves = list(frame.call.given.values)
        leaves[frame.taken] = x
        for place, tensor in zip(places, rest[:count], strict=True):
            leaves[place] = tensor
        args, kwargs = tree_unflatten(leaves, frame.call.given.spec)
        returned, spec = tree_flatten(forward(*args, **kwargs))
        _check(frame.call, frame.call.returned, returned, spec, "returns")
        return returned[frame.made], *rest, *(returned[place] for place in frame.besides)

    return program


def _check(call: Call, planned: Layout, leaves: list[Any], spec: TreeSpec, verb: str) -> None:
    """Raise NotARun for other arguments or results than those that the plan was made with."""
    if spec != planned.spec:
        raise NotARun(
            f"{call.name} {verb} another structure than when the model was planned: plan it anew"
        )
    for leaf, number, value in zip(leaves, planned.leaves, planned.values, strict=True):
        same = torch.is_tensor(leaf)
        if number is None:
            same = type(leaf) is type(value) and leaf == value
        if not same:
            now = "a tensor" if torch.is_tensor(leaf) else repr(leaf)
            then = "a tensor" if number is not None else repr(value)
            raise NotARun(f"{call.name} {verb} {now} where it had {then}: plan it anew")


class NotARun(RuntimeError):
    """Wrapped modules are not each fed by the one before, or used for something else."""


class _Token(torch.Tensor):
    """What a module whose work another does hands to the next one: no one may look into it."""

    words = ""

    @classmethod
    def of(cls, maker: str, reader: str) -> torch.Tensor:
        token = torch.empty(0).as_subclass(cls)
        token.words = f"the model uses what {maker} returns, and not only to feed {reader}"
        return token

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        used = next(leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, cls))
        raise NotARun(f"{used.words}: plan it with other modules")
