"""Tensors that cross between blocks: their storages, and a backward that begins at them."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable
from torch.utils._pytree import tree_leaves, tree_map_only

from sublinear.blocks import State


def tensors(tree: object) -> Iterator[torch.Tensor]:
    """All tensors in nested containers."""
    return filter(torch.is_tensor, tree_leaves(tree))


def storages(tree: object) -> list[tuple[int, int]]:
    """(identity, bytes) of the storages of all tensors in ``tree``, each once."""
    found: dict[int, int] = {}
    for tensor in tensors(tree):
        storage = tensor.untyped_storage()
        found[storage._cdata] = storage.nbytes()
    return list(found.items())


def size_of(gradient: torch.Tensor) -> int:
    """Bytes of a gradient, of a sparse one as well."""
    if gradient.is_sparse:
        return gradient._indices().nbytes + gradient._values().nbytes
    return gradient.nbytes


def leaves(state: State) -> State:
    """The same values, cut off from what made them."""
    detached: State = tree_map_only(torch.Tensor, _detached, state)
    return detached


def _detached(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().requires_grad_(tensor.requires_grad)


# ------------------------------------------------------------------------ gradients of what crosses


class Place(NamedTuple):
    """Where the gradient of a value lies: a name of the storage, and its bytes."""

    storage: object
    size: int


@dataclass(frozen=True)
class Arrival:
    """The gradient of a value that enters a block, as the block's backward leaves it.

    ``passed``: it is the gradient of the leaving tensor of this number; None: it lies in a storage
    of ``size`` bytes that the block has made, the ``number``-th.
    """

    passed: int | None
    number: int
    size: int


class Watched:
    """One run of a block, from what enters it to the gradients that arrive there.

    ``state``: what enters. A gradient is taken as autograd hands it on: at a leaf it would be
    copied where it is a part of a larger one.
    """

    def __init__(self, state: State) -> None:
        self.arrived: dict[int, torch.Tensor] = {}
        self.pulled: dict[int, weakref.ref[Any]] = {}
        entering = list(tensors(state))
        self.count = len(entering)
        wanted = [i for i, tensor in enumerate(entering) if tensor.requires_grad]
        fresh = {i: tensor.detach() for i, tensor in enumerate(entering)}
        if wanted:
            token = torch.zeros((), requires_grad=True, device=entering[wanted[0]].device)
            inside = [fresh[i] for i in wanted]
            fresh |= zip(wanted, _Enter.apply(self, wanted, token, *inside), strict=True)
        numbers = iter(range(self.count))
        self.state: State = tree_map_only(torch.Tensor, lambda _: fresh[next(numbers)], state)

    def pull_on(self, state: State) -> torch.Tensor | None:
        """As `pull_on`, of what leaves the block."""
        return pull_on(state, self.pulled)

    def arrivals(self) -> tuple[Arrival | None, ...]:
        """Of each tensor that entered, after the backward; None where no gradient arrived."""
        made: dict[int, int] = {}
        found: list[Arrival | None] = []
        for i in range(self.count):
            gradient = self.arrived.get(i)
            if gradient is None:
                found.append(None)
                continue
            if gradient.layout is not torch.strided:
                found.append(Arrival(None, -1 - i, size_of(gradient)))
                continue
            storage = gradient.untyped_storage()
            passed = None
            for number, pulled in self.pulled.items():
                # Else something was added to it, for which it may have been copied.
                if pulled() is storage and (gradient.is_meta or bool((gradient == 1).all())):
                    passed = number
            number = made.setdefault(storage._cdata, len(made))
            found.append(Arrival(passed, number, storage.nbytes()))
        return tuple(found)

    def handed_on(self, leaving: list[int]) -> int:
        """Bytes of gradients that a block hands on as they came, as a sum does to both its parts.

        In a step they may come in another layout than here, and are then copied for one of them.
        ``leaving``: the storages that leave the block, by number; what crosses it is no part.
        """
        entering = [tensor.untyped_storage()._cdata for tensor in tensors(self.state)]
        found: dict[int, int] = {}
        for storage, arrival in zip(entering, self.arrivals(), strict=True):
            if arrival and arrival.passed is not None and leaving[arrival.passed] != storage:
                found[arrival.number] = arrival.size
        return sum(found.values())


class _Enter(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, watched: Watched, wanted: list[int], token: torch.Tensor, *inside: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.watched, ctx.wanted = watched, wanted
        ctx.set_materialize_grads(False)
        return tuple(tensor.detach() for tensor in inside)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[None, ...]:
        for number, gradient in zip(ctx.wanted, gradients, strict=True):
            if gradient is not None:
                ctx.watched.arrived[number] = gradient
        return (None,) * (3 + len(gradients))


def before_block(
    arrivals: tuple[Arrival | None, ...], behind: list[Place | None], owner: object
) -> list[Place | None]:
    """Where the gradients before a block lie, from where those behind it do."""
    found: list[Place | None] = []
    for arrival in arrivals:
        if arrival is None:
            found.append(None)
        elif arrival.passed is not None:
            found.append(behind[arrival.passed])
        else:
            found.append(Place((owner, arrival.number), arrival.size))
    return found


class GradientLayout(NamedTuple):
    """How the gradient of a tensor lies in memory."""

    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    def ones(self) -> torch.Tensor:
        empty = torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=self.device)
        return empty.fill_(1)


def layout_of(tensor: torch.Tensor) -> GradientLayout:
    """That of the gradient of ``tensor``, which it does not hold."""
    like = torch.empty_like(tensor, device="meta")
    return GradientLayout(like.shape, like.stride(), like.dtype, tensor.device)


def pull_on(state: State, pulled: dict[int, weakref.ref[Any]] | None = None) -> torch.Tensor | None:
    """A scalar whose backward makes the gradients of all of ``state``, as a next block would.

    None where nothing in it needs a gradient. ``pulled`` is filled with the gradients' storages, by
    the number of the tensor.
    """
    wanted = {i: tensor for i, tensor in enumerate(tensors(state)) if tensor.requires_grad}
    if not wanted:
        return None
    scalar: torch.Tensor = _Pull.apply(list(wanted), pulled, *wanted.values())
    return scalar


class _Pull(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        numbers: list[int],
        pulled: dict[int, weakref.ref[Any]] | None,
        *tensors: torch.Tensor,
    ) -> torch.Tensor:
        ctx.numbers, ctx.pulled = numbers, pulled
        ctx.layouts = [layout_of(tensor) for tensor in tensors]
        return tensors[0].new_zeros(())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *_: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        grads = [layout.ones() for layout in ctx.layouts]
        if ctx.pulled is not None:
            for number, gradient in zip(ctx.numbers, grads, strict=True):
                ctx.pulled[number] = weakref.ref(gradient.untyped_storage())
        return (None, None, *grads)
