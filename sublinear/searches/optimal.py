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

# Columns of a table that are filled side by side: a row is read from memory once for all of them.
TOGETHER = 8

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

    ``inside[s, t, m]`` is C, finite from ``enough[s, t]`` slots on. ``held``, ``saved`` and
    ``mark`` are those of `Needs` in slots; ``begins[s]`` are seconds of bare forwards before s,
    less those of a checkpoint itself.
    ``alike``: without skips a checkpoint holds the same wherever it began.
    """

    def __init__(
        self, chain: Chain, capacity: int, *, menu: bool, slots: int | None = None
    ) -> None:
        slots = slots or slots_for(len(chain))
        super().__init__(chain, needs_of(chain, menu=menu), capacity, slots, method_name(menu))
        needs, n, width = self.needs, self.needs.n, self.slots + 1
        self.held = self.size(needs.held)
        self.saved, self.mark = self.size(needs.saved_by).tolist(), self.size(needs.mark).tolist()
        above = np.triu_indices(n)
        self.alike = bool((self.held == np.diagonal(self.held))[above].all())
        self.begins = (needs.elapsed - needs.checkpoint).tolist()
        self.floors = floors_of(chain, menu=menu)
        self.inside = _empty(n, n, width)
        # Whole rows lie side by side, and are added twice as quickly as parts of them.
        self.in_rows = self.inside.flags.c_contiguous
        # Work space.
        self.sums = _empty(TOGETHER, n, width)
        self.mask = _empty(TOGETHER, n, width, kind=np.bool_)
        self.enough = np.zeros((n, n), np.int64)
        for begin in range(0, n, TOGETHER):
            columns = _Columns(self, begin, min(begin + TOGETHER, n))
            columns.fill()
            for last, column in enumerate(columns.values, begin):
                self.inside[: last + 1, last] = column[: last + 1]
                self.enough[: last + 1, last] = columns.enough[last - begin, : last + 1]
        self.times = self.inside[0, n - 1].astype(np.float64)

    def plan(self, memory: int) -> Plan:
        free = max(memory - self.needs.base, int(self.floors.inside[0, -1]))
        nodes = self.floors.nodes(0, self.needs.n - 1, free, self)
        # Without the loss.
        return Plan(nodes[:-1], self.method, self.chain)

    def guess(
        self, first: int | np.ndarray, last: int | np.ndarray, memory: int | np.ndarray
    ) -> np.ndarray:
        """Seconds of blocks first..last in so many bytes.

        Where slots say never, those in the fewest slots that will do.
        """
        slots = np.maximum(memory // self.slot, self.enough[first, last])
        found = self.inside[first, last, np.minimum(slots, self.slots)]
        return np.minimum(found.astype(np.float64), UNKNOWN)


class _Columns:
    """Plans that end with block ``begin``, .., ``end`` - 1, from those that end before ``begin``.

    ``values[last - begin, first, slots]``: as `OptimalTable.inside`; nothing follows the last one.
    ``enough[last - begin, first]``: the fewest slots in which it is finite.
    ``after[last - begin, k, slots]``: seconds of what follows a checkpoint that ends with k, and of
    bare runs so far; ``shifts[k]``: the slots that the checkpoint holds in it.
    """

    def __init__(self, table: OptimalTable, begin: int, end: int) -> None:
        self.table, self.begin, self.end = table, begin, end
        needs, width, count = table.needs, table.slots + 1, end - begin
        self.behind = [table.floors.behind(last) for last in range(begin, end)]
        self.values = np.full((count, end + 1, width), np.inf, np.float32)
        self.values[np.arange(count), np.arange(begin, end) + 1] = 0
        self.enough = np.zeros((count, end + 1), np.int64)
        self.after, self.shifts = _empty(count, end, width), np.full(end, -1)
        forward = needs.forward_by[:end, :, None] + np.array(self.behind)
        need = table.need(np.maximum(forward, needs.backward_by[:end, :, None]))
        saved = table.size(needs.saved_by[:end, :, None])
        self.lows = np.maximum(need, saved).tolist()
        # What bare runs may need.
        self.rooms = np.arange(width) * table.slot - np.array(self.behind)[:, None]

    def fill(self) -> None:
        """``values``, from the last block to the first."""
        for first in range(self.end - 1, -1, -1):
            self._follow(first)
            if first < self.begin:
                self._checkpoints(first)
            self._keep(first)
            for k in range(max(first, self.begin), self.end - 1):
                self._checkpoint(first, k)
            found = np.isfinite(self.values[:, first])
            self.enough[:, first] = found.shape[1] - found.sum(axis=1)

    def _follow(self, first: int) -> None:
        """Bring ``after`` up to date for checkpoints that begin with ``first``."""
        table, place = self.table, max(0, first + 1 - self.begin)
        ends = slice(first, first + 1 if table.alike else self.end - 1)
        rest = self.values[place:, first + 1 :]
        elapsed = table.needs.elapsed[first + 1 :]
        after, shifts = self.after[place:, ends], self.shifts[ends]
        table.follow(after, table.held[first, ends], shifts, rest, elapsed)

    def _checkpoints(self, first: int) -> None:
        """Fastest with a checkpoint of first..k, any k before ``begin``."""
        table, width = self.table, self.table.slots + 1
        bare = table.needs.bare[first, first : self.begin]
        # It never falls with k.
        ends = int(np.searchsorted(bare, self.rooms[:, -1].max(), side="right"))
        if not ends:
            return
        bare, end = bare[:ends], first + ends
        own = table.mark[first]
        low = -(-(int(bare[0]) + min(self.behind)) // table.slot)
        low = max(low, self._fewest(first, end))
        if low >= width:
            return
        high = min(width, -(-(int(bare[-1]) + max(self.behind)) // table.slot))
        # Beside what the checkpoint itself holds.
        begin = own if table.in_rows and 2 * low < width else low
        inside = table.inside[first, first:end, begin - own : width - own]
        sums = table.sums[: self.end - self.begin, :ends, begin:]
        np.add(inside, self.after[:, first:end, begin:], out=sums)
        sums = sums[:, :, low - begin :]
        if high > low:
            mask = table.mask[: len(sums), :ends, : high - low]
            np.greater(bare[:, None], self.rooms[:, None, low:high], out=mask)
            np.copyto(sums[:, :, : high - low], np.inf, where=mask)
        best = self.values[:, first, low:]
        np.minimum.reduce(sums, axis=1, out=best)
        best -= table.begins[first]

    def _fewest(self, first: int, end: int) -> int:
        """The fewest slots in which a checkpoint of first..k, any k before ``end``, may be."""
        table = self.table
        beside = self.enough[:, first + 1 : end + 1] + table.held[first, first:end]
        inside = table.enough[first, first:end] + table.mark[first]
        return int(np.maximum(beside, inside).min())

    def _checkpoint(self, first: int, k: int) -> None:
        """The same for a k among the columns, in those behind it."""
        table, width, place = self.table, self.table.slots + 1, k - self.begin
        bare, own = int(table.needs.bare[first, k]), table.mark[first]
        lows = [-(-(bare + behind) // table.slot) for behind in self.behind[place + 1 :]]
        low = min(lows)
        if low >= width:
            return
        inside = self.values[place, first, low - own : width - own]
        found = inside + self.after[place + 1 :, k, low:]
        found -= table.begins[first]
        _improve(self.values[place + 1 :, first], found, lows)

    def _keep(self, first: int) -> None:
        """Fastest with ``first`` kept, with any option."""
        table, needs, width = self.table, self.table.needs, self.table.slots + 1
        place = max(0, first - self.begin)
        if self.begin <= first < needs.n - 1:
            # The last one of a checkpoint saves everything, see `options_of`.
            enough = int(table.need(needs.last_one[first]))
            self.values[place, first, enough:] = needs.seconds[first][0]
            place += 1
        if place == self.end - self.begin:
            return
        rest = self.values[place:, first + 1]
        for option, plus in enumerate(needs.seconds[first]):
            lows, shift = self.lows[first][option][place:], table.saved[first][option]
            low = min(lows)
            if low < width:
                found = rest[:, low - shift : width - shift] + plus
                _improve(self.values[place:, first], found, lows)


def _improve(best: np.ndarray, found: np.ndarray, lows: list[int]) -> None:
    """The lesser of ``best[column]`` and, from so many slots on, of ``found[column]``.

    ``found`` begins with the fewest of these slots.
    """
    begin = min(lows)
    for row, low in zip(found, lows, strict=True):
        if low > begin:
            row[: low - begin] = np.inf
    best = best[:, begin:]
    np.minimum(best, found, out=best)


def _empty(*shape: int, kind: type = np.float32) -> np.ndarray:
    """Of ``(..., blocks, slots)``, in memory with the longer of these two side by side."""
    *outer, blocks, slots = shape
    if blocks <= slots:
        return np.empty(shape, kind)
    return np.empty((*outer, slots, blocks), kind).swapaxes(-1, -2)


def lowest_peak(chain: Chain, *, menu: bool) -> Plan:
    """The plan with the lowest peak, nested to any depth: exact to the byte, no slots."""
    floors = floors_of(chain, menu=menu)
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
            kept = self._seconds_kept(first, last, memory, table, opens)
            opens = False
            dropped = np.empty(0)
            if not kept or (table and min(kept)[0] > self._at_least(first, last)):
                dropped = self._seconds_dropped(first, last, memory, table)
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
                memory -= int(needs.held[first, first + end])
                first += end + 1
        return tuple(nodes)

    def _at_least(self, first: int, last: int) -> float:
        """Seconds that first..last take if a checkpoint begins with ``first``, or fewer.

        Each block runs once, ``first`` twice; half of that is far beyond what sums are rounded by.
        """
        once, elapsed = self.needs.once, self.needs.elapsed
        again = elapsed[first + 1] - elapsed[first] + self.needs.checkpoint
        return float(once[last + 1] - once[first] + again / 2)

    def _seconds_kept(
        self, first: int, last: int, memory: int, table: OptimalTable | None, opens: bool
    ) -> list[tuple[float, int]]:
        """(seconds of first..last, option) for each option of ``first`` that fits.

        Without a table, only the block's own seconds count.
        """
        needs = self.needs
        seconds = needs.seconds_by[first]
        if table and first < last:
            left = memory - needs.saved_by[first]
            seconds = seconds + table.guess(first + 1, last, left)
        kept = self.kept(first, last, opens)
        return [(float(seconds[option]), option) for need, option in kept if need <= memory]

    def _seconds_dropped(
        self, first: int, last: int, memory: int, table: OptimalTable | None
    ) -> np.ndarray:
        """Seconds of first..last for a checkpoint that ends with k, each k < last.

        Infinite where it does not fit; without a table, 0 where it does.
        """
        needs = self.needs
        found = np.full(last - first, np.inf)
        fits = np.flatnonzero(self.dropped(first, last) <= memory)
        found[fits] = 0
        if table and len(fits):
            ends = first + fits
            seconds = needs.elapsed[ends + 1] - (needs.elapsed[first] - needs.checkpoint)
            seconds += table.guess(first, ends, memory - needs.mark[first])
            seconds += table.guess(ends + 1, last, memory - needs.held[first, ends])
            found[fits] = seconds
        return found


floors_of = OncePerChain(lambda chain, menu: _NestedFloors(needs_of(chain, menu=menu)))


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
