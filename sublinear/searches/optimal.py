"""The optimal dynamic program for heterogeneous chains, checkpoints nested to any depth.

Beaumont, Eyraud-Dubois, Hermann, Joly, Shilova 2019/2020, "Optimal checkpointing for heterogeneous
chains: how to train deep neural networks with limited memory" (their tool is called rotor). Here
each block may also be kept with any option of its menu.
"""

from __future__ import annotations

import numpy as np

from sublinear.chain import Chain
from sublinear.plan import Plan
from sublinear.searches import table
from sublinear.searches.needs import Needs, needs_of, once, options_of
from sublinear.searches.table import UNKNOWN, Floors, Table

# Of a table at most, with 4 bytes in each: long chains get fewer slots.
SLOTS = 4000
CELLS = 6_000_000

# Additions that a table may take, a few seconds of them.
ADDITIONS = 4_000_000_000


def slots_for(count: int) -> int:
    """How many slots a chain of so many blocks gets."""
    return max(40, min(SLOTS, CELLS // count**2, 6 * ADDITIONS // count**3))


class OptimalTable(Table):
    """C[s, t, m]: least seconds of the plan inside a checkpoint of blocks s..t, in m slots.

    Forward and backward: either block s is kept and s+1..t go on in what it leaves, or s..k is a
    checkpoint, runs bare, k+1..t go on beside its output, and C[s, k, m] runs it again. A
    checkpoint that reaches t would hold and repeat for nothing. No checkpoint reaches the loss, so
    the last column is free for the step itself, a plan in whose first run no gradient is alive, and
    whose blocks may be kept with any of their options. O(n^3 m), in O(n^2) NumPy calls.

    ``inside[s, t, m]`` is C, finite from ``enough[s, t]`` slots on. ``held``, ``saved`` and
    ``mark`` are those of `Needs` in slots.
    """

    def __init__(
        self, chain: Chain, capacity: int, *, menu: bool, slots: int | None = None
    ) -> None:
        slots = slots or slots_for(len(chain))
        super().__init__(chain, floors_of(chain, menu=menu), capacity, slots)
        needs, n, width = self.needs, self.needs.n, self.slots + 1
        self.held = self.size(needs.held)
        self.saved, self.mark = self.size(needs.saved), self.size(needs.mark).tolist()
        self.inside = np.full((n, n, width), np.inf, np.float32)
        # Work space.
        self.sums = np.empty((n, width), np.float32)
        for last in range(n):
            self._fill(last)
        self.enough = np.isinf(self.inside).sum(axis=2)
        self.times = self.inside[0, n - 1].astype(np.float64)

    def _fill(self, last: int) -> None:
        """All plans that end with block ``last``, from those that end before."""
        needs, width = self.needs, self.slots + 1
        behind = self.floors.behind(last)
        # Seconds of what follows a checkpoint that ends with k, and of bare runs so far.
        after, shifts = np.empty((last, width), np.float32), np.full(last, -1)
        column = self.inside[:, last]
        self._keep(last, last, behind)
        for first in range(last - 1, -1, -1):
            ends = slice(first, last)
            rest, elapsed = column[first + 1 :], needs.elapsed[first + 1 :]
            self.follow(after[ends], self.held[first, ends], shifts[ends], rest, elapsed)
            self._checkpoint(first, last, behind, after[first:])
            self._keep(first, last, behind)

    def _checkpoint(self, first: int, last: int, behind: int, after: np.ndarray) -> None:
        """Fastest with a checkpoint of first..k, any k before ``last``."""
        needs, own = self.needs, self.mark[first]
        # It never falls with k.
        lows = self.need(needs.bare[first, first:last] + behind)
        end, low = int(np.searchsorted(lows, self.slots, side="right")), max(own, int(lows[0]))
        if not end or low > self.slots:
            return
        inside = self.inside[first, first : first + end, low - own : self.slots + 1 - own]
        found = np.add(inside, after[:end, low:], out=self.sums[:end, low:])
        high = max(low, int(lows[end - 1]))
        np.copyto(found[:, : high - low], np.inf, where=np.arange(low, high) < lows[:end, None])
        self.inside[first, last, low:] = found.min(axis=0) - np.float32(needs.elapsed[first])

    def _keep(self, first: int, last: int, behind: int) -> None:
        """Fastest with ``first`` kept, with any option that it has."""
        needs, best = self.needs, self.inside[first, last]
        if first == last < needs.n - 1:
            best[int(self.need(needs.last_one[first])) :] = needs.seconds[first, 0]
            return
        for option in range(options_of(needs, first, last)):
            saved = int(self.saved[first, option])
            need = max(behind + needs.forward[first, option], needs.backward[first, option])
            low = max(saved, int(self.need(need)))
            if low > self.slots:
                continue
            found = np.full(len(best) - low, np.float32(needs.seconds[first, option]))
            if first < last:
                found += self.inside[first + 1, last, low - saved : len(best) - saved]
            np.minimum(best[low:], found, out=best[low:])

    def guess(
        self, first: int | np.ndarray, last: int | np.ndarray, memory: int | np.ndarray
    ) -> np.ndarray:
        slots = np.maximum(memory // self.slot, self.enough[first, last])
        found = self.inside[first, last, np.minimum(slots, self.slots)]
        return np.minimum(found.astype(np.float64), UNKNOWN)


def lowest_peak(chain: Chain, *, menu: bool) -> Plan:
    """The plan with the lowest peak, nested to any depth."""
    return table.lowest_peak(chain, floors_of(chain, menu=menu))


class _NestedFloors(Floors):
    """Of the choices of `OptimalTable` the one that asks for the least memory counts."""

    def __init__(self, needs: Needs) -> None:
        super().__init__(needs)
        n = needs.n
        self.inside, self.alone = np.zeros((n, n), np.int64), np.zeros((n, n), np.int64)
        behind = np.array([self.behind(last) for last in range(n)], np.int64)
        # The same by (first, length) and by (last, length), so that all pieces of one length are
        # one array.
        from_first, to_last = np.zeros((n, n), np.int64), np.zeros((n, n), np.int64)
        held, bare = _by_length(needs.held), _by_length(needs.bare)
        marked = bool(needs.mark.any())
        for length in range(n):
            count = n - length
            found, alone = self._kept_by(length, behind, to_last)
            if length:
                beside = held[:count, :length] + to_last[length:, length - 1 :: -1]
                again = from_first[:count, :length]
                if marked:
                    again = again + needs.mark[:count, None]
                np.maximum(beside, again, out=beside)
                np.maximum(beside, bare[:count, :length] + behind[length:, None], out=beside)
                dropped = beside.min(axis=1)
                np.minimum(found, dropped, out=found)
                np.minimum(alone, dropped, out=alone)
            from_first[:count, length], to_last[length:, length] = alone, found
            place = np.arange(count), np.arange(length, n)
            self.inside[place], self.alone[place] = found, alone

    def _kept_by(
        self, length: int, behind: np.ndarray, to_last: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """`kept` of all pieces of a length, and for `alone`; of the last one the best option."""
        needs, count = self.needs, self.needs.n - length
        if not length:
            last = max(needs.forward[-1, 0], needs.backward[-1, 0])
            return np.array([*needs.last_one[:-1], last]), np.array([*needs.only_one[:-1], last])
        follows = needs.saved[:count, 0] + to_last[length:, length - 1]
        np.maximum(follows, needs.backward[:count, 0], out=follows)
        forward = needs.forward[:count, 0] + behind[length:]
        found = np.maximum(forward, follows)
        found[-1] = min(need for need, _ in self.kept(count - 1, needs.n - 1, opens=False))
        return found, np.maximum(forward - needs.mark[:count], follows)


@once
def floors_of(chain: Chain, *, menu: bool) -> _NestedFloors:
    """The floors of a chain, which are made once."""
    return _NestedFloors(needs_of(chain, menu=menu))


def _by_length(square: np.ndarray) -> np.ndarray:
    """[first, length] of an array [first, last]."""
    n = len(square)
    found = np.zeros_like(square)
    for first in range(n):
        found[first, : n - first] = square[first, first:]
    return found
