"""The optimal dynamic program for heterogeneous chains, checkpoints nested to any depth.

Beaumont, Eyraud-Dubois, Hermann, Joly, Shilova 2019/2020, "Optimal checkpointing for heterogeneous chains: how to
train deep neural networks with limited memory" (their tool is called rotor). Here each block may also be kept with any
option of its menu.
"""

from __future__ import annotations

import numpy as np

from labkit.checkpointing.chain import Chain
from labkit.checkpointing.plan import Checkpoint, Keep, Node, Plan
from labkit.checkpointing.searches.needs import Needs
from labkit.checkpointing.searches.table import Table

SLOTS = 500
CELLS = 12_000_000  # of the table at most, 4 bytes each: long chains get fewer slots


def method_name(menu: bool) -> str:
    """ "menu" where blocks may use all options, "optimal" where they save everything or nothing."""
    return "menu" if menu else "optimal"


class OptimalTable(Table):
    """C[s, t, m]: least seconds to run the plan inside a checkpoint of blocks s..t, forward and backward, in m slots.

    Either block s is kept with one of its options and s+1..t go on in what it leaves, or s..k is a checkpoint, runs
    bare, k+1..t go on beside its output, and C[s, k, m] runs it again. A checkpoint that reaches t would hold and
    repeat for nothing. The step itself is such a plan too, with no gradient alive while it first runs forward: the
    last column. O(n^3 m), in O(n^2) NumPy calls.
    """

    def __init__(self, chain: Chain, capacity: int, *, menu: bool, slots: int | None = None) -> None:
        slots = slots or min(SLOTS, max(100, CELLS // len(chain) ** 2))
        super().__init__(chain, needs := Needs(chain, menu=menu), capacity, slots, method_name(menu))
        n, width = needs.n, self.slots + 1
        self._held = self.size(needs.held)
        self._saved = [self.size(np.array(row)) for row in needs.saved]
        self._inside = np.full((n, n, width), np.inf, np.float32)
        self._scratch = np.empty((n, width), np.float32)
        for last in range(n - 1):
            self._fill(last, int(needs.behind[last]), self._inside[:, last])
        self._fill(n - 1, 0, self._inside[:, n - 1])  # the step: no checkpoint needs this column
        self.times = self._inside[0, n - 1].astype(np.float64)

    def _fill(self, last: int, behind: int, column: np.ndarray) -> None:
        """Column ``[first, slots]`` of plans that end with block ``last``, from the columns before it."""
        needs, width = self.needs, self.slots + 1
        # [k, m]: seconds of what follows a checkpoint that ends with k, and of all bare runs up to there.
        after, shifts = np.empty((last, width), np.float32), np.full(last, -1)
        limits = np.minimum(self.need(needs.bare[: last + 1, : last + 1] + behind), width)
        for first in range(last, -1, -1):
            best = column[first]
            if first < last:
                ends, rest, elapsed = slice(first, last), column[first + 1 :], needs.elapsed[first + 1 :]
                self.follow(after[ends], self._held[first, ends], shifts[ends], rest, elapsed)
                self._checkpoint(first, last, after, limits[first, ends], best)
            for option, low, follows in self._kept(first, last, behind, column):
                if low < width:
                    np.minimum(best[low:], follows + np.float32(needs.seconds[first][option]), out=best[low:])

    def _checkpoint(self, first: int, last: int, after: np.ndarray, limits: np.ndarray, best: np.ndarray) -> None:
        """Fastest with a checkpoint of first..k, any k < last. ``limits[k]``: slots for its bare run, never falling."""
        low, high = int(limits[0]), int(limits[-1])
        sums = self._scratch[: last - first, low:]
        np.add(self._inside[first, first:last, low:], after[first:last, low:], out=sums)
        if high > low:
            sums[:, : high - low][np.arange(low, high) < limits[:, None]] = np.inf
        sums.min(axis=0, out=best[low:])
        best[low:] -= np.float32(self.needs.elapsed[first])

    def _kept(self, first: int, last: int, behind: int, column: np.ndarray) -> list[tuple[int, int, np.ndarray]]:
        """Per option: its number, the slots it needs, and the seconds of the blocks after ``first`` from there on.

        Last in a checkpoint a block saves everything, see `simulate`.
        """
        needs, width = self.needs, self.slots + 1
        found = []
        rest = column[first + 1] if first < last else np.zeros(width, np.float32)
        options = self._saved[first][: 1 if first == last < needs.n - 1 else None]
        for option, saved in enumerate(options.tolist()):
            need = self.need(max(behind + needs.forward[first][option], needs.backward[first][option]))
            low = max(int(need), saved)
            found.append((option, low, rest[low - saved : width - saved]))
        return found

    def nodes(self, slots: int) -> tuple[Node, ...]:
        return self._nodes(0, self.needs.n - 1, 0, slots)

    def _nodes(self, first: int, last: int, behind: int, slots: int) -> tuple[Node, ...]:
        """The nodes of the plan that column ``last`` has for ``first``, found by looking at the choices again."""
        needs, column = self.needs, self._inside[:, last]
        nodes: list[Node] = []
        while first <= last:
            kept = [
                (
                    needs.seconds[first][option] + float(rest[slots - low]),
                    option,
                )
                for option, low, rest in self._kept(first, last, behind, column)
                if low <= slots
            ]
            left = slots - self._held[first, first:last]
            ends = np.arange(first, last)
            possible = (left >= 0) & (slots >= self.need(needs.bare[first, first:last] + behind))
            again = np.where(
                possible,
                self._inside[first, first:last, slots]
                + column[ends + 1, np.maximum(left, 0)]
                + (needs.elapsed[first + 1 : last + 1] - needs.elapsed[first]),
                np.inf,
            )
            seconds, option = min(kept, default=(np.inf, 0))
            if seconds <= again.min(initial=np.inf):
                nodes.append(Keep(first, option))
                slots -= int(self._saved[first][option])
                first += 1
            else:
                end = first + int(again.argmin())
                nodes.append(Checkpoint(self._nodes(first, end, int(needs.behind[end]), slots)))
                slots -= int(self._held[first, end])
                first = end + 1
        return tuple(nodes)


def lowest_peak(chain: Chain, *, menu: bool) -> Plan:
    """The plan with the lowest peak, checkpoints nested to any depth: exact to the byte, no slots.

    The same choices as in `OptimalTable`, but what counts is the least memory in which blocks s..t can run at all.
    """
    return _Lowest(Needs(chain, menu=menu)).plan(method_name(menu))


class _Lowest:
    def __init__(self, needs: Needs) -> None:
        self.needs = needs
        self.inside = np.zeros((needs.n, needs.n), np.int64)  # the last column is that of the whole step
        for last in range(needs.n):
            behind = self.behind(last)
            for first in range(last, -1, -1):
                kept = min(need for need, _ in self.kept(first, last, behind))
                self.inside[first, last] = min(kept, self.dropped(first, last, behind).min(initial=kept))

    def behind(self, last: int) -> int:
        return int(self.needs.behind[last]) if last < self.needs.n - 1 else 0

    def kept(self, first: int, last: int, behind: int) -> list[tuple[int, int]]:
        needs, rest = self.needs, int(self.inside[first + 1, last]) if first < last else 0
        rows = list(zip(needs.forward[first], needs.backward[first], needs.saved[first], strict=True))
        rows = rows[: 1 if first == last < needs.n - 1 else None]  # see OptimalTable
        return [(max(behind + f, b, saved + rest), option) for option, (f, b, saved) in enumerate(rows)]

    def dropped(self, first: int, last: int, behind: int) -> np.ndarray:
        needs, inside = self.needs, self.inside
        beside = needs.held[first, first:last] + inside[first + 1 : last + 1, last]
        return np.maximum(np.maximum(beside, inside[first, first:last]), needs.bare[first, first:last] + behind)

    def plan(self, method: str) -> Plan:
        return Plan(self.nodes(0, self.needs.n - 1, int(self.inside[0, -1])), method)

    def nodes(self, first: int, last: int, memory: int) -> tuple[Node, ...]:
        """A plan within ``memory``: blocks are kept as long as that fits, then the middle one of the ends that do."""
        needs, behind = self.needs, self.behind(last)
        nodes: list[Node] = []
        while first <= last:
            options = [(needs.seconds[first][o], o) for need, o in self.kept(first, last, behind) if need <= memory]
            if options:
                nodes.append(Keep(first, min(options)[1]))
                memory -= needs.saved[first][min(options)[1]]
                first += 1
            else:
                ends = first + np.flatnonzero(self.dropped(first, last, behind) <= memory)
                end = int(ends[len(ends) // 2])
                nodes.append(Checkpoint(self.nodes(first, end, memory)))
                memory -= int(needs.held[first, end])
                first = end + 1
        return tuple(nodes)
