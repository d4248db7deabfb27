"""The cost model as arrays: what each piece of a plan needs above what was alive before it.

Why a dynamic program is exact: the gradients of parameters that exist while blocks s..t run forward
and backward for good are those of the blocks behind t, whatever the plan. So a piece of a plan
depends on the rest of it only through the bytes that the pieces before it hold, and those only
raise its peak. The loss is one more block here, the last, which is always kept; a checkpoint may
well reach the block before it. What the chain runs last of all comes right after the backward of
the first block.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from sublinear.chain import Block, Chain, Option

# Bytes of an option that a block does not have; sums of a few of them are numbers yet.
_TOO_LARGE = 2**60

# A search asks for the same chain, with and without its menu, again and again.
once = lru_cache(maxsize=8)


class Needs:
    """Bytes (int64) and seconds of the ``n`` blocks of a chain, the loss included.

    ``base``: alive through the whole step.
    ``behind[t]``: bytes there while the plan of a checkpoint that ends in t runs forward: the
    gradient of t's output, and the gradients of the parameters behind t.
    ``saved[t, option]``: what stays after a forward that saves; ``held[s, t]``: after a run of s..t
    that does not.
    ``forward[t, option]``, ``backward[t, option]``: needed in a forward that saves, without
    ``behind``; in its backward, all gradients and what it saved included.
    ``seconds[t, option]``: of a forward that saves, and backward. ``counts[t]``: how many options a
    block has, of which the first saves everything; what is beyond is far too large.
    ``bare[s, t]``: in a run of s..t that does not save. ``mark[s]``: what only a checkpoint that
    begins with s holds, to the end of its backward, a part of both.
    ``last_one[t]``: needed by the block that a checkpoint ends with as it runs again, forward and
    backward, ``behind`` included; ``only_one[t]``: if the checkpoint begins with it, too.
    ``elapsed[t]``: seconds of bare forwards before t.
    """

    def __init__(self, chain: Chain, *, menu: bool) -> None:
        # What runs between the two passes is one more block.
        after = Option("", 0, 0.0, 0.0, 0, chain.after.peak_bytes)
        loss = Block("loss", 0, (after,), chain.after.gradient_bytes, 0, 0.0)
        chain = replace(chain, blocks=(*chain.blocks, loss))
        blocks = chain.blocks
        self.n = len(blocks)
        self.base = chain.fixed_bytes + chain.input_bytes + chain.spare_bytes
        output = np.array([block.cotangent_bytes for block in blocks], np.int64)
        gradients = np.array([block.gradient_bytes for block in blocks], np.int64)
        # The block's own gradients too.
        through = output + gradients[::-1].cumsum()[::-1]
        self.behind = through - gradients

        self.counts = [len(block.options) if menu else 1 for block in blocks]
        most = self.n, max(self.counts)
        self.saved, self.forward = np.full(most, _TOO_LARGE), np.full(most, _TOO_LARGE)
        self.backward, self.seconds = np.full(most, _TOO_LARGE), np.full(most, np.inf)
        self.last_one: list[int] = []
        self.only_one: list[int] = []
        for number in range(self.n):
            self._add(chain, number)
        end = int(through[0] - output[0]) + chain.before.gradient_bytes
        end += max(chain.before.peak_bytes, chain.step_bytes)
        np.maximum(self.backward[0], end, out=self.backward[0])
        self.last_one[0] = self.only_one[0] = max(self.last_one[0], end)

        self.elapsed = np.concatenate([[0.0], np.cumsum([block.forward for block in blocks])])
        self.mark = np.array(chain.waiting[: self.n], np.int64)
        square = self.n, self.n
        self.held, self.bare = np.zeros(square, np.int64), np.zeros(square, np.int64)
        for first, mark in enumerate(self.mark.tolist()):
            above = 0
            for last in range(first, self.n):
                self.bare[first, last] = mark + above + blocks[last].bare_peak
                above = chain.held(first, last)
                self.held[first, last] = mark + above - chain.gone(first, last)
            np.maximum.accumulate(self.bare[first, first:], out=self.bare[first, first:])

    def _add(self, chain: Chain, number: int) -> None:
        """What one block needs."""
        block, others = chain.blocks[number], int(self.behind[number])
        own, entering = block.gradient_bytes, chain.waiting[number]
        waits = chain.waiting[number + 1]
        for i, option in enumerate(block.options[: self.counts[number]]):
            # Nothing waits that was not counted, whoever made the chain.
            saved = max(0, option.saved_bytes - waits)
            self.saved[number, i] = saved
            self.forward[number, i] = entering + option.forward_peak
            peak = _own(own, option.backward_peak + waits)
            self.backward[number, i] = others + saved + peak
            self.seconds[number, i] = option.forward + option.backward
            # Of what a selective option may have chosen to save, nothing waits.
            waits = 0
        forward, backward = int(self.forward[number, 0]), int(self.backward[number, 0])
        last = max(forward + others, backward)
        alone = max(forward - entering + others, backward)
        if block.rerun is not None:
            ahead, back = block.rerun
            last = max(others + entering + ahead, others + _own(own, back))
            alone = max(others + ahead, others + _own(own, back))
        self.last_one.append(last)
        self.only_one.append(alone)

    def kept_segment(self) -> np.ndarray:
        """(n, n) bytes that a checkpoint of s..t needs which keeps every block inside.

        Its first run is included.
        """
        saved, forward, backward = self.saved[:, 0], self.forward[:, 0], self.backward[:, 0]
        last_one, only_one = np.array(self.last_one), np.array(self.only_one)
        before = saved.cumsum() - saved
        needs = self.bare.copy()
        for first in range(self.n):
            # Of the blocks before the last one, which is another matter. What the first one reads
            # is counted with the checkpoint.
            ahead = before[first:] + forward[first:]
            ahead[0] -= self.mark[first]
            np.maximum.accumulate(ahead, out=ahead)
            back = np.maximum.accumulate(before[first:] + backward[first:])
            inside = before[first:] + last_one[first:]
            inside[0] = before[first] + only_one[first]
            ahead = ahead[:-1] + self.behind[first + 1 :]
            inside[1:] = np.maximum(inside[1:], np.maximum(ahead, back[:-1]))
            inside += self.mark[first] - before[first]
            np.maximum(needs[first, first:], inside, out=needs[first, first:])
        return needs


@once
def needs_of(chain: Chain, *, menu: bool) -> Needs:
    """The needs of a chain, which are made once."""
    return Needs(chain, menu=menu)


def options_of(needs: Needs, first: int, last: int) -> int:
    """How many options block ``first`` of a plan for first..last has: in a checkpoint, one."""
    return needs.counts[first] if last == needs.n - 1 else 1


def _own(gradients: int, peak: int) -> int:
    """What a backward needs beside what was there before."""
    return max(0, gradients + peak)
