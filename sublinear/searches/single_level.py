"""Exact plans of one level: each block is kept, or lies in a checkpoint that keeps its blocks when it runs again."""

from __future__ import annotations

import numpy as np

from sublinear.chain import Chain
from sublinear.plan import Checkpoint, Keep, Node, Plan
from sublinear.searches.needs import Needs
from sublinear.searches.table import UNKNOWN, Table, choose

METHOD = "single-level"
SLOTS = 1000


def lowest_peak(chain: Chain) -> Plan:
    """The plan of one level with the lowest peak, exact to the byte, in O(n^2)."""
    fits = _FlatFloors(Needs(chain, menu=False))
    return Plan(fits.nodes(int(fits.rest[0]))[:-1], METHOD)


class SingleLevelTable(Table):
    """The fastest plans of one level, by a dynamic program over blocks and slots."""

    def __init__(self, chain: Chain, capacity: int, slots: int = SLOTS) -> None:
        super().__init__(chain, needs := Needs(chain, menu=False), capacity, slots, METHOD)
        self._floors = _FlatFloors(needs)
        n, width, seconds, twice = needs.n, self.slots + 1, self._floors.seconds, self._floors.twice
        saved, held, segments = (
            self.size(needs.saved_all),
            self.size(needs.held),
            self.need(self._floors.segments),
        )
        kept = np.maximum(saved, self.need(np.maximum(needs.forward_all, needs.backward_all)))
        self._rest = np.full((n + 1, width), np.inf)  # [s, m]: seconds of the blocks from s on
        self._rest[n] = 0
        # [t, m]: seconds of a checkpoint that ends with t, and of what follows. The loss is in none.
        after, shifts, slot = np.empty((n - 1, width)), np.full(n - 1, -1), np.arange(width)
        for first in range(n - 1, -1, -1):
            ends, best = slice(first, n - 1), self._rest[first]
            self.follow(
                after[ends],
                held[first, ends],
                shifts[ends],
                self._rest[first + 1 : n],
                twice[first + 1 : n],
            )
            choices = np.where(slot >= segments[first, ends, None], after[ends], np.inf)
            np.subtract(choices.min(axis=0, initial=np.inf), twice[first], out=best)
            if (low := kept[first]) < width:
                follows = self._rest[first + 1, low - saved[first] : width - saved[first]]
                np.minimum(best[low:], follows + seconds[first], out=best[low:])
        self.times = self._rest[0]

    def plan(self, memory: int) -> Plan:
        return Plan(
            self._floors.nodes(memory - self.needs.base, self)[:-1], self.method
        )  # without the loss

    def guess(self, first: int | np.ndarray, memory: int | np.ndarray) -> np.ndarray:
        """Seconds of the blocks from ``first`` on in so many bytes; where slots say never, in the fewest that do."""
        enough = np.isfinite(self._rest[first]).argmax(axis=-1)
        found = self._rest[first, np.clip(np.asarray(memory) // self.slot, enough, self.slots)]
        return np.minimum(found, UNKNOWN)


class _FlatFloors:
    """``rest[s]``: the least bytes above those held before them in which the blocks from s on can run, exactly.

    That is, for the best choice of the piece s..t that comes first, the larger of what the piece needs and of what it
    holds plus what the rest needs. No budget enters, so nothing has to be bisected.
    """

    def __init__(self, needs: Needs) -> None:
        self.needs, self.segments = needs, needs.kept_segment()
        self.seconds = np.array([row[0] for row in needs.seconds])
        self.twice = needs.elapsed + np.concatenate(
            [[0.0], np.cumsum(self.seconds)]
        )  # if all before are in checkpoints
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
        ends, n = slice(first, self.needs.n - 1), self.needs.n
        return np.maximum(
            self.segments[first, ends], self.needs.held[first, ends] + self.rest[first + 1 : n]
        )

    def nodes(self, memory: int, table: SingleLevelTable | None = None) -> tuple[Node, ...]:
        """The choices that fit into ``memory`` bytes, by ``table`` the fastest; without, kept as long as that fits."""
        needs, n, first = self.needs, self.needs.n, 0
        nodes: list[Node] = []
        while first < n:
            held, saved = needs.held[first, first : n - 1], needs.saved[first][0]
            keep, drop = 0.0, np.zeros(n - 1 - first)
            if table:
                keep = self.seconds[first] + float(table.guess(first + 1, memory - saved))
                again = self.twice[first + 1 : n] - self.twice[first]
                drop = again + table.guess(np.arange(first + 1, n), memory - held)
            drop = np.where(self.dropped(first) <= memory, drop, np.inf)
            _, end = choose([(keep, 0)] if self.kept(first) <= memory else [], drop)
            if end is None:
                nodes.append(Keep(first))
                memory -= saved
                first += 1
            else:
                nodes.append(
                    Checkpoint(tuple(Keep(block) for block in range(first, first + end + 1)))
                )
                memory -= int(held[end])
                first += end + 1
        return tuple(nodes)
