"""How much of what a step saves for backward lies in the part of a model that is planned."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from sublinear.blocks import Blocks, State
from sublinear.profiling import Training, restored


class Saved:
    """``with Saved(model) as saved``: bytes of the storages that autograd saves, but weights.

    Each counts once, to the part that saved it first: ``inside``, what `within` runs, or
    ``outside``.
    """

    def __init__(self, model: nn.Module) -> None:
        self.inside = self.outside = 0
        self._within = False
        # All stay alive, so that no two have the same identity.
        self._held: dict[int, torch.UntypedStorage] = {}
        for tensor in [*model.parameters(), *model.buffers()]:
            storage = tensor.untyped_storage()
            self._held[storage._cdata] = storage
        self._hooks = saved_tensors_hooks(self._pack, lambda tensor: tensor)

    def __enter__(self) -> Saved:
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.__exit__()
        self._held.clear()

    def within(self, work: Callable[..., State]) -> Callable[..., State]:
        """``work``, what it saves counted as inside."""

        def counted(*state: object) -> State:
            self._within = True
            try:
                return work(*state)
            finally:
                self._within = False

        return counted

    @property
    def share(self) -> float:
        """What was saved inside, of all."""
        return self.inside / max(1, self.inside + self.outside)

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout is torch.strided:
            self._count(tensor.untyped_storage())
        # Not itself: a node that holds its own output would never die without a backward.
        return tensor.detach()

    def _count(self, storage: torch.UntypedStorage) -> None:
        if storage._cdata in self._held:
            return
        self._held[storage._cdata] = storage
        if self._within:
            self.inside += storage.nbytes()
        else:
            self.outside += storage.nbytes()


def coverage(blocks: Blocks, task: Training) -> float:
    """The share that blocks save of all that a plain forward pass and its loss do.

    1 of a model that is all blocks. Everything is put back.
    """
    if not blocks.partial:
        return 1.0
    with (
        restored(blocks.model, task, steps=False),
        Saved(blocks.model) as saved,
        blocks.standing_in(saved.within(blocks.run_all)),
    ):
        task.loss(blocks.model(*task.args, **task.kwargs))
    return saved.share


def saved_bytes(model: nn.Module, task: Training) -> int:
    """All that a plain forward pass and its loss save for backward. Everything is put back."""
    with restored(model, task, steps=False), Saved(model) as saved:
        task.loss(model(*task.args, **task.kwargs))
    return saved.outside
