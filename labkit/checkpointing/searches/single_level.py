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
        dropped = np.maximum(segments[first, first : n - 1], needs.output[first : n - 1] + rest[first + 1 : n])
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
        self._kept = self.need(np.array([max(f[0], b[0]) for f, b in zip(needs.forward, needs.backward, strict=True)]))
        self._output, self._segments = self.size(needs.output), self.need(needs.kept_segment())
        self._best = np.full((n + 1, width), np.inf)
        self._best[n] = 0
        self._after = np.full((n, width), np.inf)  # [t, m]: seconds of the blocks behind t, if t is a checkpoint's end
        slot = np.arange(width)
        for first in range(n - 1, -1, -1):
            if (held := self._output[first]) < width:
                self._after[first, held:] = self._best[first + 1, : width - held]
            choices = np.where(
                slot >= self._segments[first, first : n - 1, None], self._checkpointed(first, slot), np.inf
            )
            best = choices.min(axis=0, initial=np.inf)
            low = max(self._kept[first], self._saved[first])
            if low < width:
                kept = (
                    needs.seconds[first][0]
                    + self._best[first + 1, low - self._saved[first] : width - self._saved[first]]
                )
                np.minimum(best[low:], kept, out=best[low:])
            self._best[first] = best
        self.times = self._best[0]

    def _checkpointed(self, first: int, slot: np.ndarray | int) -> np.ndarray:
        """Seconds if a checkpoint covers first..t, for t up to the last block but one: its blocks run twice."""
        needs, last = self.needs, self.needs.n - 1
        inside = np.cumsum([row[0] for row in needs.seconds[first:last]])
        twice = inside + needs.elapsed[first + 1 : last + 1] - needs.elapsed[first]
        after = self._after[first:last, slot]
        return after + (twice[:, None] if after.ndim == 2 else twice)

    def nodes(self, slots: int) -> tuple[Node, ...]:
        needs, n = self.needs, self.needs.n
        nodes: list[Node] = []
        first = 0
        while first < n:
            choices = np.where(slots >= self._segments[first, first : n - 1], self._checkpointed(first, slots), np.inf)
            kept = np.inf
            if slots >= max(self._kept[first], self._saved[first]):
                kept = needs.seconds[first][0] + self._best[first + 1, slots - self._saved[first]]
            if kept <= choices.min(initial=np.inf):
                nodes.append(Keep(first))
                slots -= int(self._saved[first])
                first += 1
            else:
                last = first + int(choices.argmin())
                nodes.append(_segment(first, last))
                slots -= int(self._output[last])
                first = last + 1
        return tuple(nodes)


def _segment(first: int, last: int) -> Checkpoint:
    return Checkpoint(tuple(Keep(block) for block in range(first, last + 1)))
