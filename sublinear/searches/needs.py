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

import numpy as np

from sublinear.chain import Block, Chain, Option


class Needs:
    """Bytes (int64) and seconds of the ``n`` blocks of a chain, the loss included.

    ``base``: alive through the whole step.
    ``behind[t]``: bytes there while the plan of a checkpoint that ends in t runs forward: the
    gradient of t's output, and the gradients of the parameters behind t.
    ``saved[t][option]``: what stays after a forward that saves; ``held[s, t]``: after a run of s..t
    that does not.
    ``forward[t][option]``, ``backward[t][option]``: needed in a forward that saves, without
    ``behind``; in its backward, all gradients and what it saved included.
    ``bare[s, t]``: in a run of s..t that does not save.
    ``saved_all`` and so on: those of option 0, which saves everything, as arrays.
    ``elapsed[t]``: seconds of bare forwards before t.
    ``seconds[t][option]``: of a forward that saves, and backward.
    """

    def __init__(self, chain: Chain, *, menu: bool) -> None:
        chain = _with_loss(chain)
        blocks = chain.blocks
        self.n = len(blocks)
        self.base = chain.fixed_bytes + chain.input_bytes
        output = np.array([block.output_bytes for block in blocks], np.int64)
        gradients = np.array([block.gradient_bytes for block in blocks], np.int64)
        # The block's own gradients too.
        through = output + gradients[::-1].cumsum()[::-1]
        self.behind = through - gradients

        self.saved: list[list[int]] = []
        self.forward: list[list[int]] = []
        self.backward: list[list[int]] = []
        self.seconds: list[list[float]] = []
        for block, gradient in zip(blocks, through.tolist(), strict=True):
            options = block.options if menu else block.options[:1]
            self.saved.append([o.saved_bytes for o in options])
            self.forward.append([o.forward_peak for o in options])
            self.backward.append([gradient + o.saved_bytes + o.backward_peak for o in options])
            self.seconds.append([o.forward + o.backward for o in options])
        end = int(through[0] - output[0]) + chain.before.gradient_bytes + chain.before.peak_bytes
        self.backward[0] = [max(backward, end) for backward in self.backward[0]]

        self.saved_all = _first(self.saved)
        self.forward_all = _first(self.forward)
        self.backward_all = _first(self.backward)
        bare_seconds = [block.forward for block in blocks]
        self.elapsed = np.concatenate([[0.0], np.cumsum(bare_seconds)])
        self.held, self.bare = _segments(chain)

    def kept_segment(self) -> np.ndarray:
        """(n, n) bytes that a checkpoint of s..t needs which keeps every block inside.

        Its first run is included.
        """
        saved, forward, backward = self.saved_all, self.forward_all, self.backward_all
        before = saved.cumsum() - saved
        needs = self.bare.copy()
        for first in range(self.n):
            highest_forward = np.maximum.accumulate(before[first:] + forward[first:])
            highest_backward = np.maximum.accumulate(before[first:] + backward[first:])
            inside = np.maximum(highest_forward + self.behind[first:], highest_backward)
            np.maximum(needs[first, first:], inside - before[first], out=needs[first, first:])
        return needs


def _with_loss(chain: Chain) -> Chain:
    """The chain with one more block, for what runs between the two passes."""
    option = Option("", 0, 0.0, 0.0, 0, chain.after.peak_bytes)
    loss = Block("loss", 0, (option,), chain.after.gradient_bytes, 0, 0.0)
    return replace(chain, blocks=(*chain.blocks, loss))


def _first(rows: list[list[int]]) -> np.ndarray:
    return np.array([row[0] for row in rows], np.int64)


def _segments(chain: Chain) -> tuple[np.ndarray, np.ndarray]:
    """``held`` and ``bare`` of `Needs`."""
    n = len(chain)
    held, bare = np.zeros((n, n), np.int64), np.zeros((n, n), np.int64)
    peaks = np.array([block.bare_peak for block in chain.blocks], np.int64)
    for first in range(n):
        held[first, first:] = [chain.held(first, last) for last in range(first, n)]
        bare[first, first:] = peaks[first:]
        bare[first, first + 1 :] += held[first, first:-1]
        np.maximum.accumulate(bare[first, first:], out=bare[first, first:])
    return held, bare
