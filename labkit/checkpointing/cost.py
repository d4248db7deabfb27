"""What a plan costs: peak memory and time of one step, event by event. Every search is judged by this one account."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from labkit.checkpointing.chain import Chain
from labkit.checkpointing.plan import Keep, Node, Plan, keeps
from labkit.units import format_bytes, format_seconds


class Moment(NamedTuple):
    """One event of a step: a block's ``forward`` that saves, ``bare`` forward that does not, or ``backward``.

    ``alive_bytes``: right after it; ``peak_bytes``: the most at any time in it.
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
    gradients of the block's parameters. Torch may end a recomputation before the last block's output; that is ignored.
    """
    plan.check(chain)
    step = _Step(chain)
    step.forward(plan.nodes)
    step.backward(plan.nodes)
    peak = max(moment.peak_bytes for moment in step.timeline)
    return Prediction(peak, step.seconds, tuple(step.forwards), tuple(step.timeline))


class _Step:
    def __init__(self, chain: Chain) -> None:
        self.blocks = chain.blocks
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

    def forward(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            if isinstance(node, Keep):
                option = self.blocks[node.block].options[node.option]
                self.note("forward", node.block, option.forward_peak, option.saved_bytes, option.forward)
            else:
                previous = 0  # the output of the block before, unless that is the input of the segment
                for block in (keep.block for keep in keeps(node.inside)):
                    costs = self.blocks[block]
                    self.alive += previous
                    self.note("bare", block, costs.bare_peak, costs.output_bytes - previous, costs.forward)
                    self.alive -= costs.output_bytes
                    previous = costs.output_bytes
                self.alive += previous

    def backward(self, nodes: Sequence[Node]) -> None:
        for node in reversed(nodes):
            if isinstance(node, Keep):
                costs = self.blocks[node.block]
                option = costs.options[node.option]
                change = costs.gradient_bytes - option.saved_bytes
                self.note("backward", node.block, costs.output_bytes + option.backward_peak, change, option.backward)
            else:
                # The output is dropped, and as many bytes of its gradient are there: the account stays as it is.
                self.forward(node.inside)
                self.alive -= self.blocks[_last(node).block].output_bytes
                self.backward(node.inside)


def _last(node: Node) -> Keep:
    while not isinstance(node, Keep):
        node = node.inside[-1]
    return node
