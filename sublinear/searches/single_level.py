"""Exact plans of one level: each block is kept, or lies in a checkpoint that keeps its blocks."""

from __future__ import annotations

import numpy as np

from sublinear.chain import Chain
from sublinear.nodes import Node, kept
from sublinear.plan import Plan
from sublinear.searches import table
from sublinear.searches.needs import Needs, needs_of, once
from sublinear.searches.table import UNKNOWN, Floors, Table

SLOTS = 1000


def lowest_peak(chain: Chain) -> Plan:
    """The plan of one level with the lowest peak, in O(n^2)."""
    return table.lowest_peak(chain, _floors_of(chain))


class SingleLevelTable(Table):
    """The fastest plans of one level, by a dynamic program over blocks and slots."""

    def __init__(self, chain: Chain, capacity: int, slots: int = SLOTS) -> None:
        super().__init__(chain, _floors_of(chain), capacity, slots)
        # Seconds of all blocks before each, kept.
        self._total = np.concatenate([[0.0], np.cumsum(self.needs.seconds[:, 0])])
        # [s, m]: seconds of the blocks from s on.
        self._rest = np.full((self.needs.n + 1, self.slots + 1), np.inf)
        self._rest[-1] = 0
        self._fill()
        # The fewest slots with which anything will do.
        self._enough = np.isfinite(self._rest).argmax(axis=1)
        self.times = self._rest[0]

    def _fill(self) -> None:
        needs, width = self.needs, self.slots + 1
        n, seconds, twice = needs.n, needs.seconds[:, 0], needs.elapsed + self._total
        saved, held = self.size(needs.saved[:, 0]), self.size(needs.held)
        segments = self.need(self.floors.alone + needs.mark[:, None])
        lowest = self.need(np.maximum(needs.forward[:, 0], needs.backward[:, 0]))
        lowest = np.maximum(saved, lowest)
        # [t, m]: seconds of a checkpoint that ends with t, and of what follows; without the loss.
        after, shifts, slot = np.empty((n - 1, width)), np.full(n - 1, -1), np.arange(width)
        for first in range(n - 1, -1, -1):
            best = self._rest[first]
            fits = np.flatnonzero(segments[first, first : n - 1] < width)
            if len(fits):
                end = first + int(fits[-1]) + 1
                ends = slice(first, end)
                rest, again = self._rest[first + 1 : end + 1], twice[first + 1 : end + 1]
                self.follow(after[ends], held[first, ends], shifts[ends], rest, again)
                choices = np.where(slot >= segments[first, ends, None], after[ends], np.inf)
                np.subtract(choices.min(axis=0), twice[first], out=best)
            low = lowest[first]
            if low < width:
                follows = self._rest[first + 1, low - saved[first] : width - saved[first]]
                np.minimum(best[low:], follows + seconds[first], out=best[low:])

    def guess(
        self, first: int | np.ndarray, last: int | np.ndarray, memory: int | np.ndarray
    ) -> np.ndarray:
        if np.max(last) < self.needs.n - 1:
            # A checkpoint, which keeps every block.
            return self._total[np.add(last, 1)] - self._total[first]
        slots = np.maximum(memory // self.slot, self._enough[first])
        return np.minimum(self._rest[first, np.minimum(slots, self.slots)], UNKNOWN)


class _FlatFloors(Floors):
    """Of checkpoints that keep every block; of ``inside`` there is the last column alone."""

    def __init__(self, needs: Needs) -> None:
        super().__init__(needs)
        last = needs.n - 1
        self.alone = needs.kept_segment() - needs.mark[:, None]
        self.inside = np.zeros((needs.n, needs.n), np.int64)
        for first in range(last, -1, -1):
            [(need, _)] = self.kept(first, last, opens=False)
            self.inside[first, last] = self.dropped(first, last).min(initial=need)

    def within(self, first: int, last: int, memory: int, table: Table | None) -> tuple[Node, ...]:
        return kept(first, last + 1)


@once
def _floors_of(chain: Chain) -> _FlatFloors:
    return _FlatFloors(needs_of(chain, menu=False))
