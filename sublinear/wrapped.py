"""Blocks of a model that cannot be captured: a run of modules, each fed by the one before.

Each is called with a tensor in front, which the one before returned, and with the same other
arguments as that one, and returns one tensor. The first of them does the work of all. What the
others return is a token that only the next one may read: a model that adds up its hidden states
would else train on the wrong ones without a word.
"""

from __future__ import annotations

import itertools
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_flatten, tree_leaves

from labkit.restore import restoring
from labkit.restore.attributes import exchanged
from sublinear.blocks import Blocks, Keywords, Program, State

_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)

# The arguments of a call, without the tensor in front; and those by keyword.
Others = tuple[State, Keywords]


@dataclass(frozen=True)
class WrappedBlocks(Blocks):
    """Some of the model's modules, those ``wrapped``; what runs outside them is its own code."""

    wrapped: tuple[str, ...] = ()

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
        run = _longest_run(_runs(model, args, kwargs, chosen), chosen)
        if not run:
            raise ValueError(
                f"{reason}; and no two modules of the model feed one another directly, so that "
                "nothing can be wrapped: choose modules by name, or write the part to be planned "
                "as an nn.Sequential"
            )
        groups: list[list[tuple[str, Program]]] = []
        for call in run:
            part = call.name, partial(_step, model.get_submodule(call.name).forward)
            if groups and call.overwrites:
                # It overwrites what the one before hands on.
                groups[-1].append(part)
            else:
                groups.append([part])
        ends = f"{run[0].name} to {run[-1].name}"
        note = (
            f"{reason}: planned are {len(run)} modules, {ends}; what runs outside them stays as "
            "it is"
        )
        names = tuple(call.name for call in run)
        blocks = cls.of_groups(model, groups, note=note, wrapped=names)
        with restoring(also=(model,)), torch.no_grad():
            try:
                with blocks.standing_in(blocks.run_all):
                    model(*args, **kwargs)
            except NotARun as error:
                raise ValueError(f"{reason}; and {ends} cannot be wrapped: {error}") from None
        return blocks

    def hookless(self) -> Iterator[nn.Module]:
        for i in range(len(self)):
            yield from self.modules(i)

    def around(
        self, work: Program, original: Callable[..., Any], args: State, kwargs: Keywords
    ) -> Any:
        with self.standing_in(work):
            return original(*args, **kwargs)

    @contextmanager
    def standing_in(self, work: Program) -> Iterator[None]:
        """Let ``work``, given what crosses into the first module, do what all of them do.

        Raises RuntimeError where the model does not feed them to one another, or uses what they
        hand on for anything else.
        """
        names, called = self.wrapped, 0
        result: Any = None
        token: Any = None
        others: Others = (), {}

        def forward(i: int, /, *args: Any, **kwargs: Any) -> Any:
            nonlocal called, result, token, others
            now = args[1:], kwargs
            fed = i == called and bool(args) and (not i or args[0] is token)
            if not fed or not _same(now, others if i else now):
                raise NotARun(
                    f"{names[i]} was not fed by the module before it, as it was when the model was "
                    "planned: plan it with other modules"
                )
            if not i:
                others = now
                result, *_ = work(args[0], *now)
            called += 1
            token = result
            if called < len(names):
                token = torch.empty(0).as_subclass(_Token)
                token.words = (
                    f"the model uses what {names[i]} returns, and not only to feed {names[i + 1]}"
                )
            return token

        modules = enumerate(map(self.model.get_submodule, names))
        with exchanged([(module, "forward", partial(forward, i)) for i, module in modules]):
            yield
            if called != len(names):
                raise NotARun(
                    f"{names[called]} was not called, as it was when the model was planned"
                )


@dataclass(frozen=True)
class _Call:
    """One call of a module that can be wrapped.

    ``overwrites``: it changes in place the tensor that it was given.
    """

    name: str
    others: Others
    returned: weakref.ref[torch.Tensor]
    overwrites: bool


def _runs(
    model: nn.Module, args: State, kwargs: Keywords, chosen: list[str] | None
) -> list[list[_Call]]:
    """The sequences of sibling modules, or of chosen ones, each fed by the one before, in a run."""
    named = dict(model.named_modules())
    if unknown := [name for name in chosen or [] if name not in named]:
        some = ", ".join(list(named)[1:12])
        raise ValueError(f"modules={unknown!r}: the model has no such module; it has {some}, ...")
    families: dict[str, list[list[_Call]]] = {}
    times: Counter[str] = Counter()

    def listen(name: str, forward: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        runs = families.setdefault("" if chosen else name.rpartition(".")[0], [[]])
        before, others = runs[-1], (args[1:], kwargs)
        x = args[0] if args and torch.is_tensor(args[0]) else None
        version = 0 if x is None else x._version
        # Now, as what was returned dies when the next module does not save it.
        fed = bool(before) and before[-1].returned() is x and _same(others, before[-1].others)
        result = forward(*args, **kwargs)
        times[name] += 1
        overwrites = x is not None and x._version != version
        made = torch.is_tensor(result) and (overwrites or result is not x)
        usable = made and x is not None and _same(others, others)
        if not (fed and usable):
            runs.append([])
        if usable:
            runs[-1].append(_Call(name, others, weakref.ref(result), overwrites))
        return result

    listening = []
    for name in chosen or list(named)[1:]:
        module = named[name]
        listening.append((module, "forward", partial(listen, name, module.forward)))
    with restoring(also=(model,)), torch.no_grad(), exchanged(listening):
        model(*args, **kwargs)
    found = []
    for run in itertools.chain(*families.values()):
        if run and all(times[call.name] == 1 for call in run):
            found.append(run)
    return found


def _longest_run(runs: list[list[_Call]], chosen: list[str] | None) -> list[_Call]:
    """The longest of them, of equals the one nearest to the top; empty if there is none.

    Raises ValueError if the ``chosen`` are no such sequence.
    """
    best: list[_Call] = max(runs, key=lambda run: (len(run), -run[0].name.count(".")), default=[])
    if chosen and len(best) < len(chosen):
        run = {call.name for call in best}
        missing = next(name for name in chosen if name not in run)
        raise ValueError(
            f"modules={chosen!r}: each must be called once, with a tensor that the one before it "
            "returned in front, and with the same other arguments as that one, and return one "
            f"tensor; that is not so from {missing} on"
        )
    return best if chosen or len(best) > 1 else []


def _step(forward: Callable[..., Any], x: Any, rest: State, kwargs: Keywords) -> State:
    result = forward(x, *rest, **kwargs)
    if not torch.is_tensor(result):
        raise NotARun(f"a module returns a {type(result).__name__}, where it returned a tensor")
    return result, rest, kwargs


def _same(one: Others, two: Others) -> bool:
    """Whether arguments are the same tensors and equal constants; nothing else can be kept."""
    left, spec = tree_flatten(one)
    right, other_spec = tree_flatten(two)
    if spec != other_spec:
        return False
    for a, b in zip(left, right, strict=True):
        if not torch.is_tensor(a):
            if not isinstance(a, _PLAIN) or type(a) is not type(b) or a != b:
                return False
        elif a is not b:
            return False
    return True


class NotARun(RuntimeError):
    """Wrapped modules are not each fed by the one before, or used for something else."""


class _Token(torch.Tensor):
    """What a module whose work another does hands to the next one: no one may look into it."""

    words = ""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        used = next(leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, cls))
        raise NotARun(f"{used.words}: plan it with other modules")
