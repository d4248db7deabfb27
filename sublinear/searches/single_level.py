"""Exact plans of one level: each block is kept, or lies in a checkpoint that keeps its blocks."""

from __future__ import annotations

import numpy as np

from sublinear.chain import Chain
from sublinear.nodes import Checkpoint, Keep, Node, kept
from sublinear.plan import Plan
from sublinear.searches.needs import Needs, needs_of, once
from sublinear.searches.table import UNKNOWN, Table, choose

METHOD = "single-level"
SLOTS = 1000


def lowest_peak(chain: Chain) -> Plan:
    """The plan of one level with the lowest peak, exact to the byte, in O(n^2)."""
    floors = _floors_of(chain)
    return Plan(floors.nodes(int(floors.rest[0]))[:-1], METHOD, chain)


class SingleLevelTable(Table):
    """The fastest plans of one level, by a dynamic program over blocks and slots."""

    def __init__(self, chain: Chain, capacity: int, slots: int = SLOTS) -> None:
        super().__init__(chain, needs_of(chain, menu=False), capacity, slots, METHOD)
        self._floors = _floors_of(chain)
        # [s, m]: seconds of the blocks from s on.
        self._rest = np.full((self.needs.n + 1, self.slots + 1), np.inf)
        self._rest[-1] = 0
        self._fill()
        # The fewest slots with which anything will do.
        self._enough = np.isfinite(self._rest).argmax(axis=1)
        self.times = self._rest[0]

    def _fill(self) -> None:
        needs, width = self.needs, self.slots + 1
        n, seconds, twice = needs.n, self._floors.seconds, self._floors.twice
        saved, held = self.size(needs.saved_all), self.size(needs.held)
        segments = self.need(self._floors.segments)
        lowest = self.need(np.maximum(needs.forward_all, needs.backward_all))
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
                np.subtract(choices.min(axis=0), twice[first] - needs.checkpoint, out=best)
            low = lowest[first]
            if low < width:
                follows = self._rest[first + 1, low - saved[first] : width - saved[first]]
                np.minimum(best[low:], follows + seconds[first], out=best[low:])

    def plan(self, memory: int) -> Plan:
        free = max(memory - self.needs.base, int(self._floors.rest[0]))
        nodes = self._floors.nodes(free, self)
        # Without the loss.
        return Plan(nodes[:-1], self.method, self.chain)

    def guess(self, first: int | np.ndarray, memory: int | np.ndarray) -> np.ndarray:
        """Seconds of the blocks from ``first`` on in so many bytes.

        Where slots say never, those in the fewest slots that will do.
        """
        slots = np.maximum(memory // self.slot, self._enough[first])
        return np.minimum(self._rest[first, np.minimum(slots, self.slots)], UNKNOWN)


class _FlatFloors:
    """``rest[s]``: the least bytes above those held before, in which the blocks from s on can run.

    That is exact: for the best choice of the piece s..t that comes first, the larger of what the
    piece needs and of what it holds plus what the rest needs. No budget enters, so nothing has to
    be bisected.
    """

    def __init__(self, needs: Needs) -> None:
        self.needs, self.segments = needs, needs.kept_segment()
        self.seconds = np.array([row[0] for row in needs.seconds])
        # Seconds before each block if all before are in checkpoints.
        self.twice = needs.elapsed + np.concatenate([[0.0], np.cumsum(self.seconds)])
        self.rest = np.zeros(needs.n + 1, np.int64)
        for first in range(needs.n - 1, -1, -1):
            self.rest[first] = self.dropped(first).min(initial=self.kept(first))

    def kept(self, first: int) -> int:
        """Bytes that the blocks from ``first`` on need if it is kept."""
        needs = self.needs
        behind = needs.saved[first][0] + int(self.rest[first + 1])
        return max(needs.forward[first][0], needs.backward[first][0], behind)

    def dropped(self, first: int) -> np.ndarray:
        """The same if a checkpoint reaches from ``first`` to t, for every t but the loss."""
        n = self.needs.n
        ends = slice(first, n - 1)
        beside = self.needs.held[first, ends] + self.rest[first + 1 : n]
        return np.maximum(self.segments[first, ends], beside)

    def nodes(self, memory: int, table: SingleLevelTable | None = None) -> tuple[Node, ...]:
        """The choices that fit into ``memory`` bytes, by ``table`` the fastest.

        Without a table, blocks are kept as long as that fits.
        """
        needs, first = self.needs, 0
        nodes: list[Node] = []
        while first < needs.n:
            _, end = choose(*self._seconds(first, memory, table))
            if end is None:
                nodes.append(Keep(first))
                memory -= needs.saved[first][0]
                first += 1
            else:
                nodes.append(Checkpoint(kept(first, first + end + 1)))
                memory -= int(needs.held[first, first + end])
                first += end + 1
        return tuple(nodes)

    def _seconds(
        self, first: int, memory: int, table: SingleLevelTable | None
    ) -> tuple[list[tuple[float, int]], np.ndarray]:
        """What `choose` asks for; without a table 0 where it fits."""
        needs, ends = self.needs, np.arange(first, self.needs.n - 1)
        one, dropped = 0.0, np.zeros(len(ends))
        if table:
            left = memory - needs.saved[first][0]
            one = float(self.seconds[first] + table.guess(first + 1, left))
            dropped = self.twice[ends + 1] - (self.twice[first] - needs.checkpoint)
            dropped += table.guess(ends + 1, memory - needs.held[first, ends])
        fits = self.dropped(first) <= memory
        kept = [(one, 0)] if self.kept(first) <= memory else []
        return kept, np.where(fits, dropped, np.inf)


@once
def _floors_of(chain: Chain) -> _FlatFloors:
    return _FlatFloors(needs_of(chain, menu=False))
