"""What a plan costs: peak memory and time of one step, event by event. Every search is judged by this one account."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from labkit.text import format_bytes, format_seconds
from sublinear.chain import Around, Chain
from sublinear.plan import Keep, Node, Plan, span


class Moment(NamedTuple):
    """One event of a step: a block's ``forward`` that saves, ``bare`` forward that does not, or ``backward``.

    ``alive_bytes``: right after it; ``peak_bytes``: the most at any time in it. The loss counts to the last block's
    forward, see `Chain`.
    """

    event: str
    block: int
    alive_bytes: int
    peak_bytes: int


@dataclass(frozen=True)
class Prediction:
    """What a plan will cost: the peak in bytes, seconds a step, and how often each block's forward runs."""

    peak_bytes: int
    seconds: float
    block_forwards: tuple[int, ...]
    timeline: tuple[Moment, ...]

    @cached_property
    def bottleneck(self) -> Moment:
        """The first event that reaches the peak."""
        return next(moment for moment in self.timeline if moment.peak_bytes == self.peak_bytes)

    def __str__(self) -> str:
        extra = sum(self.block_forwards) - len(self.block_forwards)
        return f"{format_bytes(self.peak_bytes)}, {format_seconds(self.seconds)} a step, {extra} blocks run again"


def simulate(chain: Chain, plan: Plan) -> Prediction:
    """Run one step of ``plan`` on paper. Raises ValueError where the plan does not fit the chain.

    A kept block holds what its option saves until its backward. A checkpoint runs its blocks without saving and holds
    the last one's output. Its backward drops that output, runs the plan inside forward, with the gradient of the output
    alive, and then backward. Each backward has the gradient of its block's output alive, and leaves behind the
    gradients of the block's parameters. Between the two passes over the chain stands the loss (`Chain.after`), once,
    and at the end what `Chain.before` says.

    Torch ends the run for the backward of a checkpoint as soon as all that it saves is there. So the last node inside
    is not run if it is a checkpoint, which only needs its input, and saves everything if it is a kept block, whatever
    its option, since its own selective run would come right after. That less than a block may be left out is ignored.
    """
    plan.check(chain)
    step = _Step(chain)
    step.forward(plan.nodes, inside=False)
    step.around(chain.after)
    step.backward(plan.nodes, inside=False)
    step.around(chain.before)
    peak = max(moment.peak_bytes for moment in step.timeline)
    return Prediction(peak, step.seconds, tuple(step.forwards), tuple(step.timeline))


class _Step:
    def __init__(self, chain: Chain) -> None:
        self.chain, self.blocks = chain, chain.blocks
        self.alive = chain.fixed_bytes + chain.input_bytes
        self.seconds = chain.extra_seconds
        self.forwards = [0] * len(chain.blocks)
        self.timeline: list[Moment] = []

    def note(self, event: str, block: int, above: int, change: int, seconds: float) -> None:
        """An event that needs ``above`` bytes over what is alive, and leaves ``change`` more."""
        peak = self.alive + above
        self.alive += change
        self.seconds += seconds
        self.forwards[block] += event != "backward"
        self.timeline.append(Moment(event, block, self.alive, peak))

    def around(self, stage: Around) -> None:
        """What runs right after the last event counts as part of it."""
        *_, (event, block, _, peak) = self.timeline
        peak = max(peak, self.alive + stage.gradient_bytes + stage.peak_bytes)
        self.alive += stage.gradient_bytes
        self.timeline[-1] = Moment(event, block, self.alive, peak)

    def forward(self, nodes: Sequence[Node], *, inside: bool) -> None:
        for node in nodes:
            early = inside and node is nodes[-1]
            if isinstance(node, Keep):
                option = self.blocks[node.block].options[0 if early else node.option]
                self.note(
                    "forward", node.block, option.forward_peak, option.saved_bytes, option.forward
                )
            elif not early:
                blocks = span(node)
                previous = 0  # bytes of what crossed from the block before, unless that is the input of the segment
                for block in blocks:
                    costs, held = self.blocks[block], self.chain.held(blocks[0], block)
                    self.alive += previous
                    self.note("bare", block, costs.bare_peak, held - previous, costs.forward)
                    self.alive -= held
                    previous = held
                self.alive += previous

    def backward(self, nodes: Sequence[Node], *, inside: bool) -> None:
        for node in reversed(nodes):
            early = inside and node is nodes[-1]
            if isinstance(node, Keep):
                costs = self.blocks[node.block]
                option = costs.options[0 if early else node.option]
                above = costs.output_bytes + costs.gradient_bytes + option.backward_peak
                change = costs.gradient_bytes - option.saved_bytes
                self.note("backward", node.block, above, change, option.backward)
            else:
                blocks = span(node)
                gradient = self.blocks[blocks[-1]].output_bytes
                if not early:
                    self.alive -= self.chain.held(blocks[0], blocks[-1])
                self.alive += gradient
                self.forward(node.inside, inside=True)
                self.alive -= gradient
                self.backward(node.inside, inside=True)
