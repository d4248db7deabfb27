"""What a plan costs: peak memory and time of one step. Every search is judged by this one account.

Two things are easily counted wrong. A tensor that crosses several cuts, as a skip does, is held
once: it counts where it is first kept. And the loss, with a wrapped model's own code behind its
blocks, needs its memory once, between the two passes, whatever the plan; counted to the last block
it made the peaks of small models up to 44 % too high.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from labkit.text import format_bytes, format_seconds
from sublinear.chain import Around, Chain
from sublinear.events import RUNS, Event, events
from sublinear.nodes import Node


class Moment(NamedTuple):
    """One event of a step.

    A block's ``forward`` that saves, ``bare`` forward that does not, or ``backward``.
    ``alive_bytes``: right after it; ``peak_bytes``: the most at any time in it. The loss counts to
    the last block's forward, see `Chain`.
    """

    event: str
    block: int
    alive_bytes: int
    peak_bytes: int


@dataclass(frozen=True)
class Costs:
    """What a plan costs: the peak in bytes, seconds a step, how often each block's forward runs."""

    peak_bytes: int
    seconds: float
    block_forwards: tuple[int, ...]
    timeline: tuple[Moment, ...]

    @cached_property
    def bottleneck(self) -> Moment:
        """The first event that reaches the peak."""
        return next(moment for moment in self.timeline if moment.peak_bytes == self.peak_bytes)

    @property
    def run_again(self) -> int:
        """How many forwards a step has beyond one of each block."""
        return sum(self.block_forwards) - len(self.block_forwards)

    def __str__(self) -> str:
        peak, seconds = format_bytes(self.peak_bytes), format_seconds(self.seconds)
        return f"{peak}, {seconds} a step, {self.run_again} blocks run again"


def account(chain: Chain, nodes: Sequence[Node], *, nested: bool) -> Costs:
    """Run one step on paper, with the blocks of ``chain`` kept and checkpointed as ``nodes`` say.

    A kept block holds what its option saves until its backward. A checkpoint runs its blocks
    without saving and holds the last one's output. Its backward drops that output, runs the plan
    inside forward, with the gradient of the output alive, and then backward. Each backward has the
    gradient of its block's output alive, and leaves behind the gradients of the block's parameters.
    Between the two passes over the chain stands the loss (`Chain.after`), once, and at the end what
    `Chain.before` says. `sublinear.events` has the order.
    """
    step = _Step(chain, chain.spare_bytes if nested else 0)
    for event in events(nodes):
        step.add(event)
    peak = max(moment.peak_bytes for moment in step.timeline)
    return Costs(peak, step.seconds, tuple(step.forwards), tuple(step.timeline))


class _Step:
    """The account of one step: what is alive, and what has passed."""

    def __init__(self, chain: Chain, spare: int) -> None:
        self.chain, self.blocks = chain, chain.blocks
        self.alive = chain.fixed_bytes + chain.input_bytes + spare
        self.seconds = chain.extra_seconds
        self.forwards = [0] * len(chain.blocks)
        # Of each forward under way, the last checkpoint so far, an empty one before its first; what
        # each, and each kept block, has let go early.
        self.checkpoints: list[tuple[int, int]] = [(0, -1)]
        self.released: dict[tuple[int, int], int] = {}
        self.timeline: list[Moment] = []

    def add(self, event: Event) -> None:
        kind = event.kind
        if kind in RUNS:
            run = {"forward": self._forward, "bare": self._bare, "backward": self._backward}
            run[kind](event)
        elif kind == "drop":
            gone = self.released.pop((event.first, event.block), 0)
            self.alive -= self.chain.left(event.first, event.block) - gone
        elif kind == "rerun":
            self.checkpoints.append((event.first, event.first - 1))
            self.alive += self.blocks[event.block].cotangent_bytes
        elif kind == "rerun over":
            self.alive -= self.blocks[event.block].cotangent_bytes
            self.alive -= self._release(event.block, over=True)
            self.checkpoints.pop()
        elif kind == "over":
            self.alive -= self.chain.waiting[event.block]
        elif kind == "loss":
            self._around(self.chain.after)
        else:
            self._around(self.chain.before)
            # By then all is gone but what the optimizer reads.
            self._around(Around(peak_bytes=self.chain.step_bytes))

    def _own_waiting(self, event: Event) -> int:
        """What of a block's own output waits for the next one only.

        Nothing of what a selective option may have chosen to save.
        """
        return 0 if event.option else self.chain.waiting[event.block + 1]

    def _forward(self, event: Event) -> None:
        block = self.blocks[event.block]
        option = block.options[event.option]
        self.forwards[event.block] += 1
        if event.last and block.rerun is not None:
            # What it saves is a part of its backward.
            self._note(event, self._entering(event) + block.rerun.forward, 0, option.forward)
            return
        above = self._entering(event) + option.forward_peak
        stays = option.saved_bytes - self._own_waiting(event)
        if event.option:
            # It runs again, and so holds what it reads and what crosses it.
            self.checkpoints[-1] = event.block + 1, event.block
        gone = 0 if event.last else self._release(event.block)
        self._note(event, above, stays - gone, option.forward)

    def _release(self, block: int, over: bool = False) -> int:
        """What nobody but a checkpoint's first run, or its maker's, held for its last reader.

        A later checkpoint would hold it, too. ``over``: see `Chain.released`.
        """
        last = self.checkpoints[-1]
        found = self.chain.released(block, *last, over)
        for maker, gone in found.items():
            holder = last if maker <= last[1] else (maker, maker)
            self.released[holder] = self.released.get(holder, 0) + gone
        return sum(found.values())

    def _entering(self, event: Event) -> int:
        """What a block reads and nobody holds; a checkpoint holds what its first one reads."""
        return 0 if event.opens else self.chain.waiting[event.block]

    def _bare(self, event: Event) -> None:
        costs, chain = self.blocks[event.block], self.chain
        change, above = self.chain.left(event.first, event.block), costs.bare_peak
        waiting = chain.waiting[event.block]
        if event.block == event.first:
            # What it reads stays until it has run again.
            self.alive += waiting
        else:
            change -= self.chain.left(event.first, event.block - 1)
            above += waiting
        self.forwards[event.block] += 1
        self.checkpoints[-1] = event.first, event.block
        self._note(event, above, change, costs.forward)

    def _backward(self, event: Event) -> None:
        costs = self.blocks[event.block]
        option = costs.options[event.option]
        waiting = self._own_waiting(event)
        saved, peak = option.saved_bytes - waiting, option.backward_peak + waiting
        if event.last and costs.rerun is not None:
            saved, peak = 0, costs.rerun.backward
        else:
            gone = self.released.pop((event.block, event.block), 0)
            saved, peak = saved - gone, peak + gone
        above = costs.cotangent_bytes + max(0, costs.gradient_bytes + peak)
        self._note(event, above, costs.gradient_bytes - saved, option.backward)

    def _note(self, event: Event, above: int, change: int, seconds: float) -> None:
        """An event that needs ``above`` bytes over what is alive, and leaves ``change`` more."""
        peak = self.alive + above
        self.alive += change
        self.seconds += seconds
        self.timeline.append(Moment(event.kind, event.block, self.alive, peak))

    def _around(self, stage: Around) -> None:
        """What runs right after the last event counts as part of it."""
        last = self.timeline[-1]
        peak = max(last.peak_bytes, self.alive + stage.gradient_bytes + stage.peak_bytes)
        self.alive += stage.gradient_bytes
        self.timeline[-1] = last._replace(alive_bytes=self.alive, peak_bytes=peak)
