"""The optimal dynamic program for heterogeneous chains, checkpoints nested to any depth.

Beaumont, Eyraud-Dubois, Hermann, Joly, Shilova 2019/2020, "Optimal checkpointing for heterogeneous chains: how to
train deep neural networks with limited memory" (their tool is called rotor). Here each block may also be kept with any
option of its menu.
"""

from __future__ import annotations

import numpy as np

from sublinear.chain import Chain
from sublinear.plan import Checkpoint, Keep, Node, Plan
from sublinear.searches.needs import Needs
from sublinear.searches.table import UNKNOWN, Table, choose

SLOTS = 500
CELLS = 12_000_000  # of the table at most, 4 bytes each: long chains get fewer slots


def method_name(menu: bool) -> str:
    """ "menu" where blocks may use all options, "optimal" where they save everything or nothing."""
    return "menu" if menu else "optimal"


class OptimalTable(Table):
    """C[s, t, m]: least seconds to run the plan inside a checkpoint of blocks s..t, forward and backward, in m slots.

    Either block s is kept with one of its options and s+1..t go on in what it leaves, or s..k is a checkpoint, runs
    bare, k+1..t go on beside its output, and C[s, k, m] runs it again. A checkpoint that reaches t would hold and
    repeat for nothing. No checkpoint reaches the loss, so the last column is free for the step itself, a plan in whose
    first run no gradient is alive. O(n^3 m), in O(n^2) NumPy calls.
    """

    def __init__(
        self, chain: Chain, capacity: int, *, menu: bool, slots: int | None = None
    ) -> None:
        slots = slots or min(SLOTS, max(100, CELLS // len(chain) ** 2))
        super().__init__(
            chain, needs := Needs(chain, menu=menu), capacity, slots, method_name(menu)
        )
        n, width = needs.n, self.slots + 1
        self._held = self.size(needs.held)
        self._saved = [self.size(np.array(row)) for row in needs.saved]
        self._inside = np.full((n, n, width), np.inf, np.float32)
        self._scratch, self._nothing = np.empty((n, width), np.float32), np.zeros(width, np.float32)
        self._floors = _NestedFloors(needs)
        for last in range(n):
            self._fill(last, self._floors.behind(last), self._inside[:, last])
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
                ends, elapsed = slice(first, last), needs.elapsed[first + 1 :]
                self.follow(
                    after[ends], self._held[first, ends], shifts[ends], column[first + 1 :], elapsed
                )
                self._checkpoint(first, last, after, limits[first, ends], best)
            rest = column[first + 1] if first < last else self._nothing
            for option in range(options_of(needs, first, last)):
                saved = int(self._saved[first][option])
                need = self.need(
                    max(behind + needs.forward[first][option], needs.backward[first][option])
                )
                if (low := max(saved, int(need))) < width:
                    seconds = rest[low - saved : width - saved] + np.float32(
                        needs.seconds[first][option]
                    )
                    np.minimum(best[low:], seconds, out=best[low:])

    def _checkpoint(
        self, first: int, last: int, after: np.ndarray, limits: np.ndarray, best: np.ndarray
    ) -> None:
        """Fastest with a checkpoint of first..k, any k < last. ``limits[k]``: slots for its bare run, never falling."""
        low, high = int(limits[0]), int(limits[-1])
        sums = self._scratch[: last - first, low:]
        np.add(self._inside[first, first:last, low:], after[first:last, low:], out=sums)
        if high > low:
            sums[:, : high - low][np.arange(low, high) < limits[:, None]] = np.inf
        sums.min(axis=0, out=best[low:])
        best[low:] -= np.float32(self.needs.elapsed[first])

    def plan(self, memory: int) -> Plan:
        nodes = self._floors.nodes(0, self.needs.n - 1, memory - self.needs.base, self)
        return Plan(nodes[:-1], self.method)  # without the loss

    def guess(
        self, first: int | np.ndarray, last: int | np.ndarray, memory: int | np.ndarray
    ) -> np.ndarray:
        """Seconds of blocks first..last in so many bytes; where slots say never, in the fewest that will do."""
        enough = np.isfinite(self._inside[first, last]).argmax(axis=-1)
        found = self._inside[
            first, last, np.clip(np.asarray(memory) // self.slot, enough, self.slots)
        ]
        return np.minimum(found.astype(np.float64), UNKNOWN)


def lowest_peak(chain: Chain, *, menu: bool) -> Plan:
    """The plan with the lowest peak, checkpoints nested to any depth: exact to the byte, no slots."""
    fits = _NestedFloors(Needs(chain, menu=menu))
    return Plan(fits.nodes(0, len(chain), int(fits.inside[0, -1]))[:-1], method_name(menu))


class _NestedFloors:
    """``inside[s, t]``: the least bytes in which the plan inside a checkpoint of s..t can run, exactly.

    The choices are those of `OptimalTable`, of which the one that asks for the least memory counts. As there, the last
    column is that of the whole step.
    """

    def __init__(self, needs: Needs) -> None:
        self.needs = needs
        self.inside = np.zeros((needs.n, needs.n), np.int64)
        for last in range(needs.n):
            for first in range(last, -1, -1):
                kept = min(need for need, _ in self.kept(first, last))
                self.inside[first, last] = self.dropped(first, last).min(initial=kept)

    def behind(self, last: int) -> int:
        """Bytes there when the plan for blocks ..last begins its forward, see `Needs`: none at the start of a step."""
        return int(self.needs.behind[last]) if last < self.needs.n - 1 else 0

    def kept(self, first: int, last: int) -> list[tuple[int, int]]:
        """(bytes that first..last need, option) if ``first`` is kept with that option."""
        needs, behind = self.needs, self.behind(last)
        rest = int(self.inside[first + 1, last]) if first < last else 0
        rows = zip(needs.forward[first], needs.backward[first], needs.saved[first], strict=True)
        found = [
            (max(behind + forward, backward, saved + rest), o)
            for o, (forward, backward, saved) in enumerate(rows)
        ]
        return found[: options_of(needs, first, last)]

    def dropped(self, first: int, last: int) -> np.ndarray:
        """Bytes that first..last need if a checkpoint reaches from ``first`` to k, for every k < last."""
        needs, inside = self.needs, self.inside
        beside = needs.held[first, first:last] + inside[first + 1 : last + 1, last]
        bare = needs.bare[first, first:last] + self.behind(last)
        return np.maximum(np.maximum(beside, inside[first, first:last]), bare)

    def nodes(
        self, first: int, last: int, memory: int, table: OptimalTable | None = None
    ) -> tuple[Node, ...]:
        """The choices that fit into ``memory`` bytes, by ``table`` the fastest; without, kept as long as that fits."""
        needs = self.needs
        nodes: list[Node] = []
        while first <= last:
            kept = [
                (needs.seconds[first][option], option)
                for need, option in self.kept(first, last)
                if need <= memory
            ]
            held, ends = needs.held[first, first:last], np.arange(first, last)
            dropped = np.full(last - first, np.inf if kept and not table else 0.0)
            if table:
                if first < last:
                    rest = [
                        float(table.guess(first + 1, last, memory - needs.saved[first][o]))
                        for _, o in kept
                    ]
                    kept = [
                        (own + others, option)
                        for (own, option), others in zip(kept, rest, strict=True)
                    ]
                bare = needs.elapsed[first + 1 : last + 1] - needs.elapsed[first]
                dropped = (
                    bare
                    + table.guess(first, ends, memory)
                    + table.guess(ends + 1, last, memory - held)
                )
            option, end = choose(
                kept, np.where(self.dropped(first, last) <= memory, dropped, np.inf)
            )
            if end is None:
                nodes.append(Keep(first, option))
                memory -= needs.saved[first][option]
                first += 1
            else:
                nodes.append(Checkpoint(self.nodes(first, first + end, memory, table)))
                memory -= int(held[end])
                first += end + 1
        return tuple(nodes)


def options_of(needs: Needs, first: int, last: int) -> int:
    """How many options block ``first`` of a plan for first..last has: last in a checkpoint it saves everything, see
    `simulate`."""
    return 1 if first == last < needs.n - 1 else len(needs.saved[first])
