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
        args: State | None,
        kwargs: Keywords,
        chosen: list[str] | None,
        reason: str,
    ) -> WrappedBlocks:
        """The ``chosen`` modules, or the longest run; ``reason``: why it is not captured.

        Raises ValueError where modules cannot be wrapped.
        """
        if args is None:
            raise ValueError(
                f"{reason}; modules can be wrapped instead, which needs example inputs to see how "
                "they are fed"
            )
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
        relay = _Relay(self, work)
        forwards = []
        for i, frame in enumerate(self.frames):
            module = self.model.get_submodule(frame.call.name)
            forwards.append((module, "forward", partial(relay.forward, i)))
        with exchanged(forwards):
            yield
            relay.finish()


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


class _Relay:
    """What stands in for the forwards of wrapped modules during one run of the model.

    ``handed``: what each module that was called so far hands to the next. ``besides``: what they
    return to the model.
    """

    def __init__(self, blocks: WrappedBlocks, work: Callable[..., State]) -> None:
        self.names = [frame.call.name for frame in blocks.frames]
        self.frames, self.work = blocks.frames, work
        self.handed: list[torch.Tensor] = []
        self.shared: list[torch.Tensor] = []
        self.result: torch.Tensor | None = None
        self.besides: list[torch.Tensor] = []

    def forward(self, i: int, /, *args: Any, **kwargs: Any) -> Any:
        """Module ``i`` is called."""
        frame, handed = self.frames[i], self.handed
        given, spec = tree_flatten((args, kwargs))
        _check(frame.call, frame.call.given, given, spec, "is given")
        x, shared = given[frame.taken], [given[place] for place in frame.shared]
        if i == 0 and not handed:
            self.shared = shared
            state = self.work(x, *shared)
            self.result, self.besides = state[0], list(state[1 + len(shared) :])
        same = all(one is two for one, two in zip(shared, self.shared, strict=True))
        if len(handed) != i or (i and x is not handed[-1]) or not same:
            raise NotARun(
                f"{self.names[i]} was not fed by the module before it, as it was when the model "
                "was planned: plan it with other modules"
            )
        leaves = list(frame.call.returned.values)
        for place in frame.besides:
            leaves[place] = self.besides.pop(0)
        assert self.result is not None
        if i + 1 == len(self.names):
            handed.append(self.result)
        else:
            handed.append(_Token.of(self.names[i], self.names[i + 1]))
        leaves[frame.made] = handed[-1]
        return tree_unflatten(leaves, frame.call.returned.spec)

    def finish(self) -> None:
        if len(self.handed) != len(self.names):
            missing = self.names[len(self.handed)]
            raise NotARun(f"{missing} was not called, as it was when the model was planned")


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
