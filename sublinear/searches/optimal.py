"""The optimal dynamic program for heterogeneous chains, checkpoints nested to any depth.

Beaumont, Eyraud-Dubois, Hermann, Joly, Shilova 2019/2020, "Optimal checkpointing for heterogeneous
chains: how to train deep neural networks with limited memory" (their tool is called rotor). Here
each block may also be kept with any option of its menu.
"""

from __future__ import annotations

import numpy as np

from sublinear.chain import Chain
from sublinear.nodes import Checkpoint, Keep, Node
from sublinear.plan import Plan
from sublinear.searches.needs import Needs, OncePerChain, needs_of
from sublinear.searches.table import UNKNOWN, Table, choose

# Of a table at most, with 4 bytes in each: long chains get fewer slots.
SLOTS = 4000
CELLS = 12_000_000

# Additions that a table may take, a few seconds of them.
ADDITIONS = 8_000_000_000


def slots_for(count: int) -> int:
    """How many slots a chain of so many blocks gets."""
    return max(40, min(SLOTS, CELLS // count**2, 6 * ADDITIONS // count**3))


def method_name(menu: bool) -> str:
    """ "menu" where blocks may use all options, "optimal" where they save everything or nothing."""
    return "menu" if menu else "optimal"


class OptimalTable(Table):
    """C[s, t, m]: least seconds of the plan inside a checkpoint of blocks s..t, in m slots.

    Forward and backward: either block s is kept with one of its options and s+1..t go on in what it
    leaves, or s..k is a checkpoint, runs bare, k+1..t go on beside its output, and C[s, k, m] runs
    it again. A checkpoint that reaches t would hold and repeat for nothing. No checkpoint reaches
    the loss, so the last column is free for the step itself, a plan in whose first run no gradient
    is alive. O(n^3 m), in O(n^2) NumPy calls.
    """

    def __init__(
        self, chain: Chain, capacity: int, *, menu: bool, slots: int | None = None
    ) -> None:
        slots = slots or slots_for(len(chain))
        super().__init__(chain, needs_of(chain, menu=menu), capacity, slots, method_name(menu))
        needs, n, width = self.needs, self.needs.n, self.slots + 1
        self._held = self.size(needs.held)
        self._saved, self._mark = self.size(needs.saved_by), self.size(needs.mark).tolist()
        above = np.triu_indices(n)
        self._alike = bool((self._held == np.diagonal(self._held))[above].all())
        self._elapsed = needs.elapsed.tolist()
        self._inside = _empty(n, n, width)
        self._sums, self._mask = _empty(n, width), _empty(n, width, kind=np.bool_)
        self._bytes = np.arange(width) * self.slot
        self._nothing = np.zeros(width, np.float32)
        # The fewest slots with which anything will do.
        self._enough = np.zeros((n, n), np.int64)
        self._floors = _floors_of(chain, menu=menu)
        for last in range(n):
            column = self._column(last, self._floors.behind(last))
            self._inside[: last + 1, last] = column
            self._enough[: last + 1, last] = np.isfinite(column).argmax(axis=1)
        self.times = self._inside[0, n - 1].astype(np.float64)

    def _column(self, last: int, behind: int) -> np.ndarray:
        """[first, slots] of plans that end with block ``last``, from those that end before it."""
        needs, width = self.needs, self.slots + 1
        column = np.full((last + 1, width), np.inf, np.float32)
        # [k, m]: seconds of what follows a checkpoint that ends with k, and of bare runs so far.
        after, shifts = _empty(last, width), np.full(last, -1)
        rows = slice(0, last + 1)
        need = self.need(np.maximum(needs.forward_by[rows] + behind, needs.backward_by[rows]))
        lows = np.maximum(need, self._saved[rows]).tolist()
        saved = self._saved[rows].tolist()
        if last < needs.n - 1:
            lows[last], saved[last] = [int(self.need(needs.last_one[last]))], [0]
        # Slots for the bare run of one block, and of all but the last.
        shortest = self.need(np.diagonal(needs.bare)[rows] + behind).tolist()
        longest = self.need(needs.bare[rows, last - 1] + behind).tolist()
        for first in range(last, -1, -1):
            best = column[first]
            rest = self._nothing
            if first < last:
                rest = column[first + 1]
                self._follow(first, after, shifts, column)
                if shortest[first] < width:
                    slots = shortest[first], longest[first]
                    self._checkpoint(first, after, slots, behind, best)
            for option in range(options_of(needs, first, last)):
                low, shift = lows[first][option], saved[first][option]
                if low < width:
                    seconds = rest[low - shift : width - shift] + needs.seconds[first][option]
                    np.minimum(best[low:], seconds, out=best[low:])
        return column

    def _follow(
        self, first: int, after: np.ndarray, shifts: np.ndarray, column: np.ndarray
    ) -> None:
        """Bring ``after`` up to date for checkpoints that begin with ``first``."""
        if not self._alike:
            held, elapsed = self._held[first, first : len(after)], self.needs.elapsed[first + 1 :]
            self.follow(after[first:], held, shifts[first:], column[first + 1 :], elapsed)
            return
        # Without skips a checkpoint holds the same wherever it began.
        width = after.shape[1]
        shift = min(int(self._held[first, first]), width)
        after[first, :shift] = np.inf
        rest = column[first + 1, : width - shift]
        np.add(rest, self._elapsed[first + 1], out=after[first, shift:])

    def _checkpoint(
        self,
        first: int,
        after: np.ndarray,
        slots: tuple[int, int],
        behind: int,
        best: np.ndarray,
    ) -> None:
        """Fastest with a checkpoint of first..k, any k for which ``after`` has what follows.

        ``slots``: for the bare run of the shortest and of the longest.
        """
        low, high = slots
        end, width = len(after), self.slots + 1
        bare = self.needs.bare[first, first:end]
        if high >= width:
            # It never falls with k.
            fit = np.searchsorted(bare, int(self._bytes[-1]) - behind, side="right")
            end, high = first + int(fit), width
        sums = self._sums[: end - first, low:]
        # Beside what the checkpoint itself holds.
        own = min(low, self._mark[first])
        inside = self._inside[first, first:end, low - own : width - own]
        np.add(inside, after[first:end, low:], out=sums)
        if high > low:
            mask = self._mask[: end - first, : high - low]
            room = self._bytes[low:high] - behind
            np.greater(bare[: end - first, None], room, out=mask)
            np.copyto(sums[:, : high - low], np.inf, where=mask)
        np.minimum.reduce(sums, axis=0, out=best[low:])
        best[low:] -= self._elapsed[first]

    def plan(self, memory: int) -> Plan:
        free = max(memory - self.needs.base, int(self._floors.inside[0, -1]))
        nodes = self._floors.nodes(0, self.needs.n - 1, free, self)
        # Without the loss.
        return Plan(nodes[:-1], self.method, self.chain)

    def guess(
        self, first: int | np.ndarray, last: int | np.ndarray, memory: int | np.ndarray
    ) -> np.ndarray:
        """Seconds of blocks first..last in so many bytes.

        Where slots say never, those in the fewest slots that will do.
        """
        enough = self._enough[first, last]
        slots = np.clip(np.asarray(memory) // self.slot, enough, self.slots)
        found = self._inside[first, last, slots]
        return np.minimum(found.astype(np.float64), UNKNOWN)


def _empty(*shape: int, kind: type = np.float32) -> np.ndarray:
    """Of ``(..., blocks, slots)``, in memory with the longer of these two side by side."""
    *outer, blocks, slots = shape
    if blocks <= slots:
        return np.empty(shape, kind)
    return np.empty((*outer, slots, blocks), kind).swapaxes(-1, -2)


def lowest_peak(chain: Chain, *, menu: bool) -> Plan:
    """The plan with the lowest peak, nested to any depth: exact to the byte, no slots."""
    floors = _floors_of(chain, menu=menu)
    nodes = floors.nodes(0, len(chain), int(floors.inside[0, -1]))
    return Plan(nodes[:-1], method_name(menu), chain)


class _NestedFloors:
    """``inside[s, t]``: the least bytes in which the plan of s..t, the end of a checkpoint, runs.

    Exactly: the choices are those of `OptimalTable`, of which the one that asks for the least
    memory counts. As there, the last column is that of the whole step. ``alone[s, t]``: the same if
    the checkpoint begins with s, and holds what s reads.
    """

    def __init__(self, needs: Needs) -> None:
        self.needs = needs
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
        """`kept` of all pieces of a length, the best option of each; and for `alone`."""
        needs = self.needs
        count = needs.n - length
        if not length:
            last = max(needs.forward[-1][0], needs.backward[-1][0])
            return np.array([*needs.last_one[:-1], last]), np.array([*needs.only_one[:-1], last])
        follows = needs.saved_by[:count] + to_last[length:, length - 1, None]
        np.maximum(follows, needs.backward_by[:count], out=follows)
        forward = needs.forward_by[:count] + behind[length:, None]
        alone = np.maximum(forward - needs.mark[:count, None], follows)
        return np.maximum(forward, follows).min(axis=1), alone.min(axis=1)

    def behind(self, last: int) -> int:
        """Bytes there when the plan for blocks ..last begins its forward, see `Needs`.

        None at the start of a step.
        """
        if last == self.needs.n - 1:
            return 0
        return int(self.needs.behind[last])

    def kept(self, first: int, last: int, opens: bool) -> list[tuple[int, int]]:
        """(bytes that first..last need, option) if ``first`` is kept with that option.

        ``opens``: a checkpoint begins with ``first``.
        """
        needs, behind = self.needs, self.behind(last)
        if first == last < needs.n - 1:
            return [(needs.only_one[first] if opens else needs.last_one[first], 0)]
        rest = int(self.inside[first + 1, last]) if first < last else 0
        held = int(needs.mark[first]) if opens else 0
        found = []
        for option in range(options_of(needs, first, last)):
            forward = behind + needs.forward[first][option] - held
            follows = needs.saved[first][option] + rest
            found.append((max(forward, needs.backward[first][option], follows), option))
        return found

    def dropped(self, first: int, last: int) -> np.ndarray:
        """Bytes that first..last need for a checkpoint from ``first`` to k, each k < last."""
        needs = self.needs
        beside = needs.held[first, first:last] + self.inside[first + 1 : last + 1, last]
        bare = needs.bare[first, first:last] + self.behind(last)
        again = self.alone[first, first:last] + needs.mark[first]
        return np.maximum(np.maximum(beside, again), bare)

    def nodes(
        self,
        first: int,
        last: int,
        memory: int,
        table: OptimalTable | None = None,
        opens: bool = False,
    ) -> tuple[Node, ...]:
        """The choices that fit into ``memory`` bytes, by ``table`` the fastest.

        Without a table, blocks are kept as long as that fits. ``opens``: of a checkpoint that
        begins with ``first``.
        """
        needs = self.needs
        nodes: list[Node] = []
        while first <= last:
            held = needs.held[first, first:last]
            kept = self._seconds_kept(first, last, memory, table, opens)
            opens = False
            dropped = self._seconds_dropped(first, last, memory, table)
            if kept and not table:
                dropped[:] = np.inf
            option, end = choose(kept, dropped)
            if end is None:
                nodes.append(Keep(first, option))
                memory -= needs.saved[first][option]
                first += 1
            else:
                inside = int(needs.mark[first])
                nodes.append(
                    Checkpoint(self.nodes(first, first + end, memory - inside, table, True))
                )
                memory -= int(held[end])
                first += end + 1
        return tuple(nodes)

    def _seconds_kept(
        self, first: int, last: int, memory: int, table: OptimalTable | None, opens: bool
    ) -> list[tuple[float, int]]:
        """(seconds of first..last, option) for each option of ``first`` that fits.

        Without a table, only the block's own seconds count.
        """
        needs = self.needs
        found = []
        for need, option in self.kept(first, last, opens):
            if need > memory:
                continue
            seconds = needs.seconds[first][option]
            if table and first < last:
                left = memory - needs.saved[first][option]
                seconds += float(table.guess(first + 1, last, left))
            found.append((seconds, option))
        return found

    def _seconds_dropped(
        self, first: int, last: int, memory: int, table: OptimalTable | None
    ) -> np.ndarray:
        """Seconds of first..last for a checkpoint that ends with k, each k < last.

        Infinite where it does not fit; without a table, 0 where it does.
        """
        needs, ends = self.needs, np.arange(first, last)
        seconds = np.zeros(last - first)
        if table:
            left = memory - needs.held[first, first:last]
            seconds += needs.elapsed[first + 1 : last + 1] - needs.elapsed[first]
            seconds += table.guess(first, ends, memory - needs.mark[first])
            seconds += table.guess(ends + 1, last, left)
        return np.where(self.dropped(first, last) <= memory, seconds, np.inf)


_floors_of = OncePerChain(lambda chain, menu: _NestedFloors(needs_of(chain, menu=menu)))


def _by_length(square: np.ndarray) -> np.ndarray:
    """[first, length] of an array [first, last]."""
    n = len(square)
    found = np.zeros_like(square)
    for first in range(n):
        found[first, : n - first] = square[first, first:]
    return found


def options_of(needs: Needs, first: int, last: int) -> int:
    """How many options block ``first`` of a plan for first..last has.

    Last in a checkpoint it saves everything, see `sublinear.events.as_rerun`.
    """
    if first == last < needs.n - 1:
        return 1
    return len(needs.saved[first])
