"""What runs around the blocks: a wrapped model's own code, and the loss.

It needs its memory once in a step, whatever the plan. To see it alone, a step runs with none of the
blocks but the last. Where the gradients of what enters that one are there, those of what enters the
first are given in their place: one backward, as a skip around the blocks cannot be walked twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import torch

from sublinear.blocks import Blocks, State
from sublinear.chain import Around
from sublinear.probe import Phase, probing
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


def gradients_made(parameters: Iterable[torch.Tensor]) -> Made:
    """The gradients that parameters have now."""
    made = {}
    for parameter in parameters:
        if parameter.grad is not None:
            made[id(parameter)] = size_of(parameter.grad)
    return made


class Surroundings:
    """A step with no block but the last: ``before`` and ``after`` the blocks, as in `Chain`.

    ``saved_bytes``: what the code before them saves. ``made``: the gradients of parameters that the
    code behind them makes, the loss included. ``gradients``: where those of the last block's output
    lie, tensor by tensor; None of what the loss does not use. ``state``: what crosses into the last
    block.
    """

    def __init__(self, blocks: Blocks, device: torch.device, task: Training, state: State) -> None:
        self.blocks, self.task, self.state = blocks, task, state
        # What enters the first block stays alive, as it does in a step.
        self.fed: State = ()
        self.saved_bytes = own = 0
        self.made: Made = {}
        self.arrived = self.handed_over = False
        self.held: list[torch.Tensor | None] = []
        self.entering: Gradients = {}
        torch.clear_autocast_cache()
        with probing(device) as self.probe:
            self.behind, self.ahead = Phase(self.probe), Phase(self.probe)
            self._loss().backward()
            if not self.arrived:
                # Nothing in the last block needs a gradient.
                self._arrive()
            if self.handed_over:
                self.ahead.end()
                own = sum(self._gradients().values()) - self.made_before
        drop_gradients(blocks.model.parameters())
        others = sum(self.made.values())
        self.before = Around(max(0, self.ahead.above - own), own)
        self.after = Around(max(0, self.behind.above - others), others)
        self.saved_bytes = max(0, self.saved_bytes)
        self.gradients: list[Place | None] = []
        for gradient in self.held:
            self.gradients.append(None if gradient is None else place_of(gradient))
        del self.state, self.fed, self.held, self.entering

    def _gradients(self) -> Made:
        return gradients_made(self.blocks.model.parameters())

    def _loss(self) -> torch.Tensor:
        task = self.task
        if self.blocks.partial:
            with self.blocks.standing_in(self._stand_in):
                return task.loss(self.blocks.model(*task.args, **task.kwargs))
        return task.loss(self._last_block(leaves(self.state))[0])

    def _stand_in(self, *fed: object) -> State:
        self.fed, self.saved_bytes = fed, self.probe.added
        into = [tensor for tensor in tensors(fed) if tensor.requires_grad]
        return self._last_block(cut_off(self.state, self._hand_over, into))

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

    def _note(self, number: int, place: int, gradients: tuple[torch.Tensor | None, ...]) -> None:
        self.held[number] = gradients[place]
        self._arrive()

    def _arrive(self) -> None:
        """Up to here, the gradient of the last block's output, the code behind it has run."""
        self.arrived = True
        self.behind.end()
        self.made = self._gradients()

    def _hand_over(self, entering: Gradients) -> None:
        """From here on the code before the blocks runs; ``entering``: gradients of the last one."""
        if not self.arrived:
            self._arrive()
        # Held, so that they count as alive when the phase begins and when it ends.
        self.handed_over, self.entering = True, entering
        self.made_before = sum(self._gradients().values())
        self.ahead.begin()
