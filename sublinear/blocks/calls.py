"""How a model calls its modules: which of them feed one another, and so can be wrapped.

A layer may take more than one tensor, as a mask, as long as all layers of the run receive the same
object; and it may return more than one, of which the next layer takes one and the model the others.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import TreeSpec, tree_flatten

from sublinear.blocks.blocks import Keywords, State
from sublinear.repeatable import unmoved, versions

_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)


@dataclass(frozen=True)
class Layout:
    """A nested structure of arguments or results.

    ``leaves``: the serial number of each tensor, None for any other value; ``values``: those.
    """

    spec: TreeSpec
    leaves: tuple[int | None, ...]
    values: tuple[object, ...]

    @property
    def plain(self) -> bool:
        """Whether all that is no tensor is a constant."""
        return all(isinstance(value, _PLAIN) for value in self.values)

    @property
    def places(self) -> list[int]:
        """Where the tensors stand."""
        return [i for i, leaf in enumerate(self.leaves) if leaf is not None]


@dataclass(frozen=True)
class Call:
    """A call of a module: what it was given, and what it returned.

    ``overwrites``: the tensors that it changes in place, of those that it was given.
    """

    name: str
    given: Layout
    returned: Layout
    overwrites: frozenset[int | None] = frozenset()

    @property
    def usable(self) -> bool:
        """Whether it can be done by another: tensors in, tensors out, and constants."""
        plain = self.given.plain and self.returned.plain
        return plain and bool(self.given.places) and bool(self.returned.places)


@dataclass(frozen=True)
class Frame:
    """How one module of the run is called, and what it returns.

    What crosses from it to the next is the tensor that it hands on, the ``shared`` tensors that
    all modules receive, and what the modules so far have returned besides.
    """

    call: Call
    taken: int
    made: int

    @property
    def shared(self) -> list[int]:
        """Where the arguments have tensors that all modules receive."""
        return [place for place in self.call.given.places if place != self.taken]

    @property
    def besides(self) -> list[int]:
        """Where the results have tensors that the next module does not take."""
        return [place for place in self.call.returned.places if place != self.made]


# How each module of a run is fed: where its arguments have what the one before handed on, and where
# its results have what it hands on.
Feed = tuple[int, int]
Run = tuple[list[Call], Feed | None]


def record(model: nn.Module, args: State, kwargs: Keywords, chosen: list[str] | None) -> list[Call]:
    """Run the model once and note each call of a module, or of the chosen ones, as it ends."""
    named = dict(model.named_modules())
    if unknown := [name for name in chosen or [] if name not in named]:
        some = ", ".join(list(named)[1:12])
        raise ValueError(f"modules={unknown!r}: the model has no such module; it has {some}, ...")
    calls: list[Call] = []
    serial = count()
    # By identity; weak, so that the model's activations are not kept alive for this.
    known: dict[int, tuple[int, weakref.ref[torch.Tensor]]] = {}

    def number(tensor: torch.Tensor) -> int:
        if id(tensor) not in known or known[id(tensor)][1]() is not tensor:
            known[id(tensor)] = next(serial), weakref.ref(tensor)
        return known[id(tensor)][0]

    def layout(tree: object) -> Layout:
        leaves, spec = tree_flatten(tree)
        numbers = tuple(number(leaf) if torch.is_tensor(leaf) else None for leaf in leaves)
        values = tuple(None if torch.is_tensor(leaf) else leaf for leaf in leaves)
        return Layout(spec, numbers, values)

    def listen(name: str, forward: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        given, before = layout((args, kwargs)), versions((args, kwargs))
        result = forward(*args, **kwargs)
        changed = set()
        for place, one, two in zip(given.places, before, versions((args, kwargs)), strict=True):
            if one != two:
                changed.add(given.leaves[place])
        calls.append(Call(name, given, layout(result), frozenset(changed)))
        return result

    with unmoved(model), torch.no_grad():
        for name in chosen or list(named)[1:]:
            module = named[name]
            module.forward = partial(listen, name, module.forward)
        model(*args, **kwargs)
    return calls


def longest_run(calls: Sequence[Call], chosen: list[str] | None) -> tuple[Frame, ...]:
    """The longest sequence of sibling modules, each called once and fed by the one before.

    Of equals the one nearest to the top. Raises ValueError if the ``chosen`` are no such sequence.
    """
    families: dict[str, list[Call]] = {}
    for call in calls:
        parent = "" if chosen else call.name.rpartition(".")[0]
        families.setdefault(parent, []).append(call)
    runs: list[Run] = []
    for family in families.values():
        runs += _runs(family)
    best, feed = max(
        runs, key=lambda run: (len(run[0]), -run[0][0].name.count(".")), default=([], None)
    )
    if chosen and len(best) < len(chosen):
        run = {call.name for call in best}
        missing = next(name for name in chosen if name not in run)
        raise ValueError(
            f"modules={chosen!r}: each must be called once, with a tensor that the one before it "
            "returned, and with the same other arguments as that one; that is not so from "
            f"{missing} on"
        )
    if len(best) < 2 and not chosen:
        return ()
    # Of a single module the first tensor counts, and the first result.
    taken, made = feed or (best[0].given.places[0], best[0].returned.places[0])
    return tuple(Frame(call, taken, made) for call in best)


def _runs(family: list[Call]) -> list[Run]:
    """The sequences in which each call is fed by the one before with nothing in between."""
    times = [call.name for call in family]
    runs: list[Run] = []
    last: Call | None = None
    for call in family:
        if not call.usable or times.count(call.name) > 1:
            last = None
            continue
        feed = _feed(last, call) if last is not None else None
        if feed is not None and runs[-1][1] in (None, feed):
            runs[-1] = [*runs[-1][0], call], feed
        else:
            runs.append(([call], None))
        last = call
    return runs


def _feed(one: Call, two: Call) -> Feed | None:
    """How the first call feeds the second; None where it does not, or by more than one tensor."""
    if one.given.spec != two.given.spec or one.returned.spec != two.returned.spec:
        return None
    made = {number: place for place, number in enumerate(one.returned.leaves) if number is not None}
    # A tensor that it only hands on was there before.
    handed_on = set(one.given.leaves) - one.overwrites
    made = {number: place for number, place in made.items() if number not in handed_on}
    taken = [place for place in two.given.places if two.given.leaves[place] in made]
    if len(taken) != 1:
        return None
    [place] = taken
    before, after = list(one.given.leaves), list(two.given.leaves)
    source = after[place]
    before[place] = after[place] = None
    if before != after or one.given.places != two.given.places or source is None:
        return None
    return place, made[source]
