"""Tensors that cross between blocks: their storages, and a backward that begins at them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable
from torch.utils._pytree import tree_leaves, tree_map_only

from sublinear.blocks import State

# Gradients that have arrived, by the number of the tensor.
Gradients = dict[int, torch.Tensor]
Pulled = dict[int, weakref.ref[Any]]


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


def bytes_of(tree: object) -> int:
    """Bytes of the storages of all tensors in ``tree``, each once."""
    return sum(size for _, size in storages(tree))


def size_of(gradient: torch.Tensor) -> int:
    """Bytes of a gradient, of a sparse one as well."""
    if gradient.is_sparse:
        return gradient._indices().nbytes + gradient._values().nbytes
    return gradient.nbytes


def leaves(state: State) -> State:
    """The same values, cut off from what made them."""
    detached: State = tree_map_only(
        torch.Tensor, lambda each: each.detach().requires_grad_(each.requires_grad), state
    )
    return detached


# ------------------------------------------------------------------------ gradients of what crosses


class Place(NamedTuple):
    """Where the gradient of a value lies: a name of the storage, and its bytes."""

    storage: object
    size: int


def place_of(gradient: torch.Tensor) -> Place:
    """Where a gradient lies now."""
    if gradient.layout is not torch.strided:
        return Place(id(gradient), size_of(gradient))
    storage = gradient.untyped_storage()
    return Place(storage._cdata, storage.nbytes())


# The gradient of a value that enters a block, as the block's backward leaves it: it is that of the
# leaving tensor of this number, or lies in a storage that the block has made; None: there is none.
Arrival = int | Place | None


class Watched:
    """One run of a block, from what enters it to the gradients that arrive there.

    ``state``: what enters. A gradient is taken as autograd hands it on: at a leaf it would be
    copied where it is a part of a larger one. ``pulled``: for `pull_on` of what leaves.
    """

    def __init__(self, state: State) -> None:
        self.arrived: Gradients = {}
        self.pulled: Pulled = {}
        self.state = cut_off(state, self.arrived.update)

    def arrivals(self) -> tuple[Arrival, ...]:
        """Of each tensor that entered, after the backward."""
        found: list[Arrival] = []
        for i, _ in enumerate(tensors(self.state)):
            gradient = self.arrived.get(i)
            if gradient is None:
                found.append(None)
                continue
            arrival: Arrival = place_of(gradient)
            for number, pulled in self.pulled.items():
                known = pulled()
                if known is None or known._cdata != place_of(gradient).storage:
                    continue
                # Else something was added to it, for which it may have been copied.
                if gradient.is_meta or bool((gradient == 1).all()):
                    arrival = number
            found.append(arrival)
        return tuple(found)

    def handed_on(self, arrivals: tuple[Arrival, ...], leaving: list[int]) -> int:
        """Bytes of gradients that a block hands on as they came, as a sum does to both its parts.

        In a step they may come in another layout than here, and are then copied for one of them.
        ``arrivals``: as above; ``leaving``: the storages that leave the block, by number; what
        crosses it is no part.
        """
        found: dict[object, int] = {}
        for i, entering in enumerate(tensors(self.state)):
            passed, storage = arrivals[i], entering.untyped_storage()._cdata
            if isinstance(passed, int) and leaving[passed] != storage:
                place = place_of(self.arrived[i])
                found[place.storage] = place.size
        return sum(found.values())


def before_block(
    arrivals: tuple[Arrival, ...], behind: list[Place | None], owner: object
) -> list[Place | None]:
    """Where the gradients before a block lie, from where those behind it do."""
    found: list[Place | None] = []
    for arrival in arrivals:
        if isinstance(arrival, int):
            arrival = behind[arrival]
        elif arrival is not None:
            arrival = Place((owner, arrival.storage), arrival.size)
        found.append(arrival)
    return found


def cut_off(
    state: State, arrive: Callable[[Gradients], object], into: Iterable[torch.Tensor] = ()
) -> State:
    """The values of ``state``, cut off from what made them; ``arrive`` gets their gradients.

    The backward then goes on ``into`` other tensors, with ones.
    """
    found = [tensor.detach() for tensor in tensors(state)]
    wanted = [i for i, tensor in enumerate(tensors(state)) if tensor.requires_grad]
    if wanted:
        inside = [found[i] for i in wanted]
        # So that they need a gradient, where nothing does that the backward goes on at.
        token = torch.zeros((), requires_grad=True, device=inside[0].device)

        def note(gradients: tuple[torch.Tensor | None, ...]) -> None:
            pairs = zip(wanted, gradients, strict=True)
            arrive({i: gradient for i, gradient in pairs if gradient is not None})

        behind = list(into)
        linked = _Joint.apply(note, {}, range(len(behind)), token, *behind, *inside)
        for i, tensor in zip(wanted, linked, strict=True):
            found[i] = tensor
    values = iter(found)
    joined: State = tree_map_only(torch.Tensor, lambda _: next(values), state)
    return joined


def pull_on(state: State, pulled: Pulled | None = None) -> torch.Tensor | None:
    """A scalar whose backward makes the gradients of all of ``state``, as a next block would.

    None where nothing in it needs a gradient. ``pulled`` is filled with the gradients' storages, by
    the number of the tensor.
    """
    wanted = {i: tensor for i, tensor in enumerate(tensors(state)) if tensor.requires_grad}
    if not wanted:
        return None
    into, made = list(wanted.values()), {} if pulled is None else pulled
    ends = _Joint.apply(None, made, list(wanted), None, *into, into[0].new_zeros(()))
    scalar: torch.Tensor = ends[0]
    return scalar


class _Joint(torch.autograd.Function):
    """Hands on the last values; its backward makes ones for those in front, which have numbers.

    ``note`` is given the gradients that arrive, ``made`` filled with the storages of the ones.
    """

    @staticmethod
    def forward(
        ctx: Any,
        note: Callable[[tuple[torch.Tensor | None, ...]], None] | None,
        made: Pulled,
        numbers: Sequence[int],
        token: torch.Tensor | None,
        *tensors: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        ctx.note, ctx.made, ctx.rest = note, made, len(tensors) - len(numbers)
        ctx.layouts = []
        for number, tensor in zip(numbers, tensors, strict=False):
            # As its gradient will lie in memory; what is held counts where all tensors are meta.
            like = torch.empty_like(tensor, device="meta")
            layout = like.shape, like.stride(), like.dtype, tensor.device
            ctx.layouts.append((number, *layout))
        ctx.set_materialize_grads(False)
        return tuple(tensor.detach() for tensor in tensors[len(numbers) :])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        if ctx.note is not None:
            ctx.note(gradients)
        ones = []
        for number, shape, stride, dtype, device in ctx.layouts:
            empty = torch.empty_strided(shape, stride, dtype=dtype, device=device)
            ones.append(empty.fill_(1))
            ctx.made[number] = weakref.ref(ones[-1].untyped_storage())
        return (None, None, None, None, *ones, *[None] * ctx.rest)
