"""Blocks of a model that cannot be traced: a run of modules, each fed by the one before.

One of the modules does the work of all. What the others return is a token that only the next one
may read: a model that adds up its hidden states would else train on the wrong ones without a word.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from sublinear.blocks.blocks import Blocks, Keywords, Program, State, below
from sublinear.repeatable import undisturbed


@dataclass(frozen=True)
class WrappedBlocks(Blocks):
    """Some of the model's modules; what runs outside them is its own code.

    ``extras``: keywords that all of them receive alike, and that cross behind the tensor.
    """

    extras: tuple[str, ...] = ()

    kind = "wrapped"

    @classmethod
    def read(
        cls,
        model: nn.Module,
        args: State | None,
        kwargs: Keywords,
        chosen: list[str] | None,
        reason: str,
    ) -> WrappedBlocks:
        """The ``chosen`` modules, or the longest run; ``reason``: why the model is not traced.

        Raises ValueError where modules cannot be wrapped.
        """
        if args is None:
            raise ValueError(
                f"{reason}; modules can be wrapped instead, which needs example inputs to see how "
                "they are fed"
            )
        run = longest_run(_record(model, args, kwargs, chosen), chosen)
        if not run:
            raise ValueError(
                f"{reason}; and no two modules of the model feed one another directly, so that "
                "nothing can be wrapped: choose modules by name, or write the part to be planned "
                "as an nn.Sequential"
            )
        extras = tuple(run[0].kwargs)
        names, inside, programs = [], [], []
        for call in run:
            names.append(call.name)
            inside.append(below(model, [call.name]))
            programs.append(_call_with(model.get_submodule(call.name).forward, extras))
        ends = f"{names[0]} to {names[-1]}"
        note = (
            f"{reason}: planned are {len(names)} modules, {ends}; what runs outside them stays as "
            "it is"
        )
        blocks = cls(model, tuple(names), tuple(inside), tuple(programs), note, extras)
        with undisturbed(model), torch.no_grad():
            try:
                with blocks.standing_in(lambda *state: blocks.run_all(*state)[0]):
                    model(*args, **kwargs)
            except NotARun as error:
                raise ValueError(f"{reason}; and {ends} cannot be wrapped: {error}") from None
        return blocks

    def hookless(self) -> Iterator[nn.Module]:
        for i in range(len(self)):
            yield from self.modules(i)

    @contextmanager
    def standing_in(self, work: Callable[..., torch.Tensor]) -> Iterator[None]:
        """Let ``work``, given what crosses into the first module, do what all of them do.

        The others hand on its result. Raises RuntimeError where the model does not feed them to one
        another, or uses what they return for anything else.
        """
        modules = [self.model.get_submodule(name) for name in self.names]
        relay = _Relay(self, work)
        own = [module.__dict__.get("forward") for module in modules]
        try:
            for i, module in enumerate(modules):
                module.__dict__["forward"] = partial(relay.forward, i)
            yield
            relay.finish()
        finally:
            for module, forward in zip(modules, own, strict=True):
                module.__dict__.pop("forward", None)
                if forward is not None:
                    module.__dict__["forward"] = forward


class NotARun(RuntimeError):
    """Wrapped modules are not each fed by the one before, or used for something else."""


class _Relay:
    """What stands in for the forwards of wrapped modules during one run of the model.

    ``handed``: what each module that was called so far has returned.
    """

    def __init__(self, blocks: WrappedBlocks, work: Callable[..., torch.Tensor]) -> None:
        self.names, self.extras, self.work = blocks.names, blocks.extras, work
        self.handed: list[torch.Tensor] = []
        self.result: torch.Tensor | None = None

    def forward(self, i: int, x: torch.Tensor, /, **extras: Any) -> torch.Tensor:
        """Module ``i`` is called."""
        handed = self.handed
        if len(handed) != i or (i and x is not handed[-1]):
            raise NotARun(
                f"{self.names[i]} was not fed by the module before it, as it was when the model "
                "was planned: plan it with other modules"
            )
        if i == 0:
            self.result = self.work(x, *(extras[key] for key in self.extras))
        assert self.result is not None
        if i + 1 == len(self.names):
            handed.append(self.result)
        else:
            handed.append(_Token.of(self.names[i], self.names[i + 1]))
        return handed[-1]

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


# --------------------------------------------------------------------------- which modules to wrap


@dataclass(frozen=True)
class Call:
    """A call of a module.

    ``single``: one tensor in, one out; ``fed_by``: the earlier call whose result its argument was.
    """

    name: str
    single: bool
    fed_by: str | None
    kwargs: Keywords


class _Listener:
    """Notes the calls of modules, in the order in which they end."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        # Maker by identity; weak, so that the model's activations are not kept alive for this.
        self._results: dict[int, tuple[str, weakref.ref[torch.Tensor]]] = {}

    def listen(self, name: str, forward: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        fed_by = self._maker(args[0]) if args else None
        result = forward(*args, **kwargs)
        single = torch.is_tensor(result) and len(args) == 1
        if torch.is_tensor(result):
            self._results[id(result)] = name, weakref.ref(result)
        self.calls.append(Call(name, single, fed_by, kwargs))
        return result

    def _maker(self, value: object) -> str | None:
        if id(value) not in self._results:
            return None
        name, made = self._results[id(value)]
        return name if made() is value else None


def _record(
    model: nn.Module, args: State, kwargs: Keywords, chosen: list[str] | None
) -> list[Call]:
    """Run the model once and note each call of a module, or of the chosen ones."""
    named = dict(model.named_modules())
    if unknown := [name for name in chosen or [] if name not in named]:
        some = ", ".join(list(named)[1:12])
        raise ValueError(f"modules={unknown!r}: the model has no such module; it has {some}, ...")
    listener = _Listener()
    with undisturbed(model), torch.no_grad():
        for name in chosen or list(named)[1:]:
            module = named[name]
            module.forward = partial(listener.listen, name, module.forward)
        model(*args, **kwargs)
    return listener.calls


def longest_run(calls: Sequence[Call], chosen: list[str] | None) -> list[Call]:
    """The longest sequence of sibling modules, each called once and fed by the one before.

    Of equals the one nearest to the top. Raises ValueError if the ``chosen`` are no such sequence.
    """
    families: dict[str, list[Call]] = {}
    for call in calls:
        parent = "" if chosen else call.name.rpartition(".")[0]
        families.setdefault(parent, []).append(call)
    runs: list[list[Call]] = []
    for family in families.values():
        runs += _runs(family)
    best: list[Call] = []
    if runs:
        best = max(runs, key=lambda run: (len(run), -run[0].name.count(".")))
    if chosen and len(best) < len(chosen):
        run = {call.name for call in best}
        missing = next(name for name in chosen if name not in run)
        raise ValueError(
            f"modules={chosen!r}: each must be called once, with one tensor that the one before it "
            f"returned, and give one tensor; that is not so from {missing} on"
        )
    if len(best) > 1 or chosen:
        return best
    return []


def _runs(family: list[Call]) -> list[list[Call]]:
    """The sequences in which each call is fed by the one before with nothing in between."""
    times = [call.name for call in family]
    runs: list[list[Call]] = []
    last: Call | None = None
    for call in family:
        if not call.single or times.count(call.name) > 1:
            last = None
            continue
        if last is not None and _feeds(last, call):
            runs[-1].append(call)
        else:
            runs.append([call])
        last = call
    return runs


def _feeds(one: Call, two: Call) -> bool:
    if one.name != two.fed_by or one.kwargs.keys() != two.kwargs.keys():
        return False
    return all(one.kwargs[key] is two.kwargs[key] for key in one.kwargs)


def _call_with(forward: Callable[..., Any], keywords: tuple[str, ...]) -> Program:
    def program(x: Any, *extras: Any) -> State:
        return forward(x, **dict(zip(keywords, extras, strict=True))), *extras

    return program
