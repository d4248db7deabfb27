"""The cost model as arrays: what each piece of a plan needs above what was alive before it.

Why a dynamic program is exact: the gradients of parameters that exist while blocks s..t run forward and backward for
good are those of the blocks behind t, whatever the plan. So a piece of a plan depends on the rest of it only through
the bytes that the pieces before it hold, and those only raise its peak. The loss is one more block here, the last,
which is always kept; what the chain runs last of all comes right after the backward of the first block.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sublinear.chain import Block, Chain, Option


class Needs:
    """Bytes (int64) and seconds of the ``n`` blocks of a chain, the loss included.

    ``base``: alive through the whole step.
    ``behind[t]``: bytes there while the plan of a checkpoint that ends in t runs forward: the gradient of t's output,
    and the gradients of the parameters behind t. ``saved[t][option]``: what stays after a forward that saves;
    ``held[s, t]``: after a run of s..t that does not.
    ``forward[t][option]``, ``backward[t][option]``: needed in a forward that saves, without ``behind``; in its
    backward, all gradients and what it saved included. ``bare[s, t]``: in a run of s..t that does not save.
    ``saved_all`` and so on: those of option 0, which saves everything, as arrays.
    ``elapsed[t]``: seconds of bare forwards before t. ``seconds[t][option]``: of a forward that saves, and backward.
    """

    def __init__(self, chain: Chain, *, menu: bool) -> None:
        loss = Option("", 0, 0.0, 0.0, 0, chain.after.peak_bytes)
        chain = replace(
            chain,
            blocks=(*chain.blocks, Block("loss", 0, (loss,), chain.after.gradient_bytes, 0, 0.0)),
        )
        blocks = chain.blocks
        options = [block.options if menu else block.options[:1] for block in blocks]
        self.n = len(blocks)
        self.base = chain.fixed_bytes + chain.input_bytes
        output = np.array([block.output_bytes for block in blocks], np.int64)
        gradients = np.array([block.gradient_bytes for block in blocks], np.int64)
        through = output + gradients[::-1].cumsum()[::-1]  # the block's own gradients too
        self.behind = through - gradients
        self.saved = [[option.saved_bytes for option in menu] for menu in options]
        self.forward = [[option.forward_peak for option in menu] for menu in options]
        self.backward = [
            [int(gradient) + option.saved_bytes + option.backward_peak for option in menu]
            for gradient, menu in zip(through, options, strict=True)
        ]
        end = int(through[0] - output[0]) + chain.before.gradient_bytes + chain.before.peak_bytes
        self.backward[0] = [max(backward, end) for backward in self.backward[0]]
        self.seconds = [[option.forward + option.backward for option in menu] for menu in options]
        self.saved_all, self.forward_all, self.backward_all = (
            np.array([row[0] for row in rows], np.int64)
            for rows in (self.saved, self.forward, self.backward)
        )
        self.elapsed = np.concatenate([[0.0], np.cumsum([block.forward for block in blocks])])
        self.held = np.zeros((self.n, self.n), np.int64)
        self.bare = np.zeros((self.n, self.n), np.int64)
        peaks = np.array([block.bare_peak for block in blocks], np.int64)
        for first in range(self.n):
            self.held[first, first:] = [chain.held(first, last) for last in range(first, self.n)]
            self.bare[first, first:] = peaks[first:]
            self.bare[first, first + 1 :] += self.held[first, first:-1]
            np.maximum.accumulate(self.bare[first, first:], out=self.bare[first, first:])

    def kept_segment(self) -> np.ndarray:
        """(n, n) bytes that a checkpoint of s..t which keeps every block inside needs, first run included."""
        saved, forward, backward = self.saved_all, self.forward_all, self.backward_all
        before = saved.cumsum() - saved
        needs = self.bare.copy()
        for first in range(self.n):
            highest_forward = (
                np.maximum.accumulate(before[first:] + forward[first:]) + self.behind[first:]
            )
            highest_backward = np.maximum.accumulate(before[first:] + backward[first:])
            inside = np.maximum(highest_forward, highest_backward) - before[first]
            np.maximum(needs[first, first:], inside, out=needs[first, first:])
        return needs
