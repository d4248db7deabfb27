"""Exact plans of one level: each block is kept, or lies in a checkpoint that keeps its blocks when it runs again."""

from __future__ import annotations

import numpy as np

from labkit.checkpointing.chain import Chain
from labkit.checkpointing.plan import Checkpoint, Keep, Node, Plan
from labkit.checkpointing.searches.needs import Needs
from labkit.checkpointing.searches.table import Table

METHOD = "single-level"
SLOTS = 1000


def lowest_peak(chain: Chain) -> Plan:
    """The plan of one level with the lowest peak, in O(n^2).

    What the blocks from s on need above the bytes held before them is, for the best choice of the piece s..t that comes
    first, the larger of what that piece needs and of what it holds plus what the rest needs. No budget enters, so
    nothing has to be bisected.
    """
    needs = Needs(chain, menu=False)
    segments, n = needs.kept_segment(), needs.n
    rest = np.zeros(n + 1, np.int64)  # what the blocks from here on need
    ends = [n] * n  # where the first piece ends; n: the block is kept
    for first in range(n - 1, -1, -1):
        kept = max(needs.forward[first][0], needs.backward[first][0], needs.saved[first][0] + rest[first + 1])
        # The last block is never in a checkpoint: to keep it needs no more.
        dropped = np.maximum(segments[first, first : n - 1], needs.held[first, first : n - 1] + rest[first + 1 : n])
        rest[first] = kept
        if len(dropped) and dropped.min() < kept:
            ends[first], rest[first] = first + int(dropped.argmin()), dropped.min()
    nodes: list[Node] = []
    first = 0
    while first < n:
        nodes.append(_segment(first, ends[first]) if ends[first] < n else Keep(first))
        first = 1 + (ends[first] if ends[first] < n else first)
    return Plan(tuple(nodes), METHOD)


class SingleLevelTable(Table):
    """The fastest plans of one level, by a dynamic program over blocks and slots."""

    def __init__(self, chain: Chain, capacity: int, slots: int = SLOTS) -> None:
        super().__init__(chain, needs := Needs(chain, menu=False), capacity, slots, METHOD)
        n, width = needs.n, self.slots + 1
        self._saved = self.size(np.array([row[0] for row in needs.saved]))
        kept = self.need(np.array([max(f[0], b[0]) for f, b in zip(needs.forward, needs.backward, strict=True)]))
        self._kept = np.maximum(kept, self._saved)
        self._held, self._segments = self.size(needs.held), self.need(needs.kept_segment())
        self._seconds = np.array([row[0] for row in needs.seconds])
        self._twice = needs.elapsed + np.concatenate([[0.0], np.cumsum(self._seconds)])  # blocks before, in checkpoints
        self._rest = np.full((n + 1, width), np.inf)  # [s, m]: seconds of the blocks from s on
        self._rest[n] = 0
        # [t, m]: seconds of a checkpoint that ends with t, and of what follows. The last block is in none.
        after, shifts, slot = np.empty((n - 1, width)), np.full(n - 1, -1), np.arange(width)
        for first in range(n - 1, -1, -1):
            ends, best = slice(first, n - 1), self._rest[first]
            behind, twice = self._rest[first + 1 : n], self._twice[first + 1 : n]
            self.follow(after[ends], self._held[first, ends], shifts[ends], behind, twice)
            choices = np.where(slot >= self._segments[first, ends, None], after[ends], np.inf)
            np.subtract(choices.min(axis=0, initial=np.inf), self._twice[first], out=best)
            low, saved = self._kept[first], self._saved[first]
            if low < width:
                kept = self._rest[first + 1, low - saved : width - saved] + self._seconds[first]
                np.minimum(best[low:], kept, out=best[low:])
        self.times = self._rest[0]

    def nodes(self, slots: int) -> tuple[Node, ...]:
        n, first = self.needs.n, 0
        nodes: list[Node] = []
        while first < n:
            left = slots - self._held[first, first : n - 1]
            possible = (left >= 0) & (slots >= self._segments[first, first : n - 1])
            rest = self._rest[np.arange(first + 1, n), np.maximum(left, 0)]
            choices = np.where(possible, rest + self._twice[first + 1 : n] - self._twice[first], np.inf)
            kept = np.inf
            if slots >= self._kept[first]:
                kept = self._seconds[first] + self._rest[first + 1, slots - self._saved[first]]
            if kept <= choices.min(initial=np.inf):
                nodes.append(Keep(first))
                slots -= int(self._saved[first])
                first += 1
            else:
                last = first + int(choices.argmin())
                nodes.append(_segment(first, last))
                slots -= int(self._held[first, last])
                first = last + 1
        return tuple(nodes)


def _segment(first: int, last: int) -> Checkpoint:
    return Checkpoint(tuple(Keep(block) for block in range(first, last + 1)))
