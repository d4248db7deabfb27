"""What runs around the blocks: a wrapped model's own code, and the loss.

It needs its memory once in a step, whatever the plan. To see it alone, a step runs with none of the
blocks but the last, whose output it begins with.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from sublinear.blocks import Blocks, State, WrappedBlocks
from sublinear.chain import Around
from sublinear.probe import MemoryProbe
from sublinear.profiling.tensors import leaves, pull_on, size_of, tensors
from sublinear.profiling.training import Training

# Bytes of the gradients that were made, by the identity of their parameters.
Made = dict[int, int]


@dataclass(frozen=True)
class Surroundings:
    """What runs before the blocks and behind them, the loss included, as in `Chain`.

    ``saved_bytes``: what the code before them saves. ``made``: the parameters, by identity, whose
    gradients the code behind them makes.
    """

    before: Around = field(default_factory=Around)
    after: Around = field(default_factory=Around)
    saved_bytes: int = 0
    made: frozenset[int] = frozenset()


def surroundings(
    blocks: Blocks, device: torch.device, task: Training, state: State
) -> Surroundings:
    """Measure them. ``state``: what crosses into the last block.

    On meta tensors, which a loss's targets are not, the loss counts as nothing unless the model is
    wrapped.
    """
    if device.type == "meta" and not isinstance(blocks, WrappedBlocks):
        return Surroundings()
    model = blocks.model
    torch.clear_autocast_cache()
    with MemoryProbe(device) as probe:
        step = _LastBlockOnly(blocks, task, state, probe)
        step.loss().backward()
        if not step.arrived:
            # Nothing in the last block needs a gradient.
            step.arrive()
        so_far = sum(gradients_made(model).values())
        with probe.phase() as before:
            pull = pull_on(step.fed)
            if pull is not None:
                pull.backward()
        own = sum(gradients_made(model).values()) - so_far
    model.zero_grad(set_to_none=True)
    behind = sum(step.made.values())
    return Surroundings(
        before=Around(max(0, before.above - own), own),
        after=Around(max(0, step.behind.above - behind), behind),
        saved_bytes=max(0, step.saved_bytes),
        made=frozenset(step.made),
    )


def gradients_made(model: nn.Module) -> Made:
    """The gradients that the parameters of ``model`` have now."""
    made = {}
    for parameter in model.parameters():
        if parameter.grad is not None:
            made[id(parameter)] = size_of(parameter.grad)
    return made


class _LastBlockOnly:
    """A step of a model with none of its blocks but the last, watched by a probe.

    ``fed``: what the model's own code gives the first block, having saved ``saved_bytes``.
    ``behind``: from the last block's output until its gradient has arrived, with the gradients that
    were made by then, ``made``.
    """

    def __init__(self, blocks: Blocks, task: Training, state: State, probe: MemoryProbe) -> None:
        self.blocks, self.task, self.state, self.probe = blocks, task, state, probe
        self.fed: State = ()
        self.saved_bytes = 0
        self.behind = probe.phase()
        self.made: Made = {}
        self.arrived = False

    def loss(self) -> torch.Tensor:
        task = self.task
        if isinstance(self.blocks, WrappedBlocks):
            with self.blocks.standing_in(self._stand_in):
                return task.loss(self.blocks.model(*task.args, **task.kwargs))
        return task.loss(self._last_block())

    def arrive(self, *_: object) -> None:
        """Up to here, the gradient of the last block's output, the code behind it has run."""
        self.arrived = True
        self.behind.end()
        self.made = gradients_made(self.blocks.model)

    def _stand_in(self, *fed: object) -> torch.Tensor:
        self.fed, self.saved_bytes = fed, self.probe.added
        return self._last_block()

    def _last_block(self) -> Any:
        """Its output, held by nobody else: it dies when its backward does not need it."""
        output = self.blocks.run(len(self.blocks) - 1, *leaves(self.state))[0]
        for tensor in tensors(output):
            if tensor.grad_fn is not None:
                tensor.grad_fn.register_prehook(self.arrive)
        self.behind.begin()
        return output
