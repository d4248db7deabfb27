"""What runs around the blocks: a wrapped model's own code, and the loss.

It needs its memory once in a step, whatever the plan. To see it alone, a step runs with none of the
blocks but the last. Where the gradients of what enters that one are there, those of what enters the
first are given in their place: one backward, as a skip around the blocks cannot be walked twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

import torch

from sublinear.blocks import Blocks, State
from sublinear.chain import Around
from sublinear.probe import MemoryProbe, probing
from sublinear.profiling.tensors import (
    Gradients,
    Place,
    cut_off,
    leaves,
    place_of,
    size_of,
    tensors,
)
from sublinear.profiling.training import Training, drop_gradients

# Bytes of the gradients that were made, by the identity of their parameters.
Made = dict[int, int]


@dataclass(frozen=True)
class Surroundings:
    """What runs before the blocks and behind them, the loss included, as in `Chain`.

    ``saved_bytes``: what the code before them saves. ``made``: the parameters, by identity, whose
    gradients the code behind them makes. ``gradients``: where those of the last block's output lie,
    tensor by tensor; None of what the loss does not use.
    """

    before: Around = field(default_factory=Around)
    after: Around = field(default_factory=Around)
    saved_bytes: int = 0
    made: frozenset[int] = frozenset()
    gradients: list[Place | None] = field(default_factory=list)


def surroundings(
    blocks: Blocks, device: torch.device, task: Training, state: State
) -> Surroundings:
    """Measure them. ``state``: what crosses into the last block."""
    model = blocks.model
    torch.clear_autocast_cache()
    with probing(device) as probe:
        step = _LastBlockOnly(blocks, task, state, probe)
        step.loss().backward()
        step.finish()
    drop_gradients(model.parameters())
    behind = sum(step.made.values())
    return Surroundings(
        before=Around(max(0, step.before.above - step.own), step.own),
        after=Around(max(0, step.behind.above - behind), behind),
        saved_bytes=max(0, step.saved_bytes),
        made=frozenset(step.made),
        gradients=step.gradients(),
    )


def gradients_made(parameters: Iterable[torch.Tensor]) -> Made:
    """The gradients that parameters have now."""
    made = {}
    for parameter in parameters:
        if parameter.grad is not None:
            made[id(parameter)] = size_of(parameter.grad)
    return made


class _LastBlockOnly:
    """A step of a model with none of its blocks but the last, watched by a probe.

    ``saved_bytes``: by the code in front. ``behind``: from the last block's output until its
    gradient has arrived, with the gradients that were ``made`` by then. ``before``: from where
    gradients are handed to the code in front, which makes ``own`` bytes of parameters' gradients.
    """

    def __init__(self, blocks: Blocks, task: Training, state: State, probe: MemoryProbe) -> None:
        self.blocks, self.task, self.state, self.probe = blocks, task, state, probe
        # What enters the first block stays alive, as it does in a step.
        self.fed: State = ()
        self.saved_bytes = self.own = 0
        self.behind, self.before = probe.phase(), probe.phase()
        self.made: Made = {}
        self.arrived = self.handed_over = False
        self.held: list[torch.Tensor | None] = []
        self.entering: Gradients = {}

    def loss(self) -> torch.Tensor:
        task = self.task
        if self.blocks.partial:
            with self.blocks.standing_in(self._stand_in):
                return task.loss(self.blocks.model(*task.args, **task.kwargs))
        return task.loss(self._last_block(leaves(self.state))[0])

    def gradients(self) -> list[Place | None]:
        """Where those of the last block's output lie."""
        return [None if gradient is None else place_of(gradient) for gradient in self.held]

    def arrive(self) -> None:
        """Up to here, the gradient of the last block's output, the code behind it has run."""
        self.arrived = True
        self.behind.end()
        self.made = gradients_made(self.blocks.model.parameters())

    def hand_over(self, entering: Gradients) -> None:
        """From here on the code before the blocks runs; ``entering``: gradients of the last one."""
        if not self.arrived:
            self.arrive()
        # Held, so that they count as alive when the phase begins and when it ends.
        self.handed_over, self.entering = True, entering
        self.own = -self._made()
        self.before.begin()

    def finish(self) -> None:
        """After the backward."""
        if not self.arrived:
            # Nothing in the last block needs a gradient.
            self.arrive()
        if self.handed_over:
            self.before.end()
            self.own += self._made()

    def _made(self) -> int:
        return sum(gradients_made(self.blocks.model.parameters()).values())

    def _note(self, number: int, place: int, gradients: tuple[torch.Tensor | None, ...]) -> None:
        self.held[number] = gradients[place]
        self.arrive()

    def _stand_in(self, *fed: object) -> State:
        self.fed, self.saved_bytes = fed, self.probe.added
        into = [tensor for tensor in tensors(fed) if tensor.requires_grad]
        return self._last_block(cut_off(self.state, self.hand_over, into))

    def _last_block(self, state: State) -> State:
        """What leaves it, held by nobody else: it dies when its backward does not need it."""
        given = {id(tensor) for tensor in tensors(state)}
        output = self.blocks.run(len(self.blocks) - 1, *state)
        for number, tensor in enumerate(tensors(output)):
            self.held.append(None)
            if tensor.grad_fn is not None and id(tensor) not in given:
                note = partial(self._note, number, tensor.output_nr)
                tensor.grad_fn.register_prehook(note)
        self.behind.begin()
        return output
