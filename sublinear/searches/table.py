"""What both dynamic programs share: the least bytes of all pieces, slots, the quickest choice.

And how to choose from a table of fastest plans: the fastest within bytes, the smallest in time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

from sublinear.chain import Chain
from sublinear.nodes import Checkpoint, Keep, Node
from sublinear.plan import Plan, keep_all
from sublinear.searches.needs import Needs, options_of

# Rounded sizes may ask for a little more than the capacity where the true ones do not.
HEADROOM = 1.05

# Sums of seconds in another order may differ by so much.
CLOSE = 1 + 1e-9

# The same of sums in single precision, as tables may have them.
CLOSE_SINGLE = 1 + 1e-6

# Seconds, where rounding makes the table deny what is possible: last choice of all.
UNKNOWN = 1e30


class Floors:
    """``inside[s, t]``: the least bytes in which the plan of s..t, the end of a checkpoint, runs.

    Exactly, to the byte: no budget enters, so nothing has to be bisected. The last column is that
    of the whole step. ``alone[s, t]``: the same if the checkpoint begins with s, and holds what s
    reads.
    """

    inside: np.ndarray
    alone: np.ndarray

    def __init__(self, needs: Needs) -> None:
        self.needs = needs

    def behind(self, last: int) -> int:
        """Bytes there when the plan for blocks ..last begins its forward; none for a whole step."""
        if last == self.needs.n - 1:
            return 0
        return int(self.needs.behind[last])

    def kept(self, first: int, last: int, opens: bool) -> list[tuple[int, int]]:
        """(bytes that first..last need, option) if ``first`` is kept with that option."""
        needs, behind = self.needs, self.behind(last)
        if first == last < needs.n - 1:
            return [(needs.only_one[first] if opens else needs.last_one[first], 0)]
        rest = int(self.inside[first + 1, last]) if first < last else 0
        held = int(needs.mark[first]) if opens else 0
        found = []
        for option in range(options_of(needs, first, last)):
            forward = behind + needs.forward[first, option] - held
            follows = needs.saved[first, option] + rest
            found.append((int(max(forward, needs.backward[first, option], follows)), option))
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
        table: Table | None = None,
        opens: bool = False,
    ) -> tuple[Node, ...]:
        """The choices that fit into ``memory`` bytes, by ``table`` the fastest.

        Without a table, blocks are kept as long as that fits. ``opens``: a checkpoint begins with
        ``first``.
        """
        needs = self.needs
        nodes: list[Node] = []
        while first <= last:
            kept = self._seconds_kept(first, last, memory, table, opens)
            opens = False
            dropped = np.empty(0)
            if table or not kept:
                dropped = self._seconds_dropped(first, last, memory, table)
            option, end = choose(kept, dropped)
            if end is None:
                nodes.append(Keep(first, option))
                memory -= int(needs.saved[first, option])
                first += 1
            else:
                free = memory - int(needs.mark[first])
                nodes.append(Checkpoint(self.within(first, first + end, free, table)))
                memory -= int(needs.held[first, first + end])
                first += end + 1
        return tuple(nodes)

    def within(self, first: int, last: int, memory: int, table: Table | None) -> tuple[Node, ...]:
        """The choices within a checkpoint."""
        return self.nodes(first, last, memory, table, opens=True)

    def _seconds_kept(
        self, first: int, last: int, memory: int, table: Table | None, opens: bool
    ) -> list[tuple[float, int]]:
        """(seconds of first..last, option) for each option of ``first`` that fits.

        Without a table those of the block alone.
        """
        needs = self.needs
        seconds = needs.seconds[first]
        if table and first < last:
            left = memory - needs.saved[first]
            seconds = seconds + table.guess(first + 1, last, left)
        kept = self.kept(first, last, opens)
        return [(float(seconds[option]), option) for need, option in kept if need <= memory]

    def _seconds_dropped(
        self, first: int, last: int, memory: int, table: Table | None
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
            seconds = needs.elapsed[ends + 1] - needs.elapsed[first]
            seconds += table.guess(first, ends, memory - needs.mark[first])
            seconds += table.guess(ends + 1, last, memory - needs.held[first, ends])
            found[fits] = seconds
        return found


class Table(ABC):
    """The fastest plans for every number of memory slots up to ``capacity`` bytes of a step.

    With slots of one byte, on small chains, the table is exact. Else sizes are rounded to the
    nearest slot, and its seconds only say which choice is fast: which ones fit, `plan` decides to
    the byte by the least memory that the rest can do with. ``times[m]``: seconds with m slots,
    infinite where impossible.
    """

    times: np.ndarray

    def __init__(self, chain: Chain, floors: Floors, capacity: int, slots: int) -> None:
        self.chain, self.floors, self.needs = chain, floors, floors.needs
        free = max(1, capacity - self.needs.base)
        self.slot = -(-free // slots)
        self.slots = free
        if self.slot > 1:
            self.slots = int(free * HEADROOM) // self.slot

    def size(self, size: np.ndarray) -> np.ndarray:
        """Bytes that stay, in slots."""
        return (size + self.slot // 2) // self.slot

    def need(self, size: int | np.ndarray) -> np.ndarray:
        """The least number of slots that hold so many bytes."""
        return -(-np.asarray(size) // self.slot)

    def follow(
        self,
        after: np.ndarray,
        held: np.ndarray,
        shifts: np.ndarray,
        rest: np.ndarray,
        plus: np.ndarray,
    ) -> None:
        """Bring up to date ``after[k, m]``: seconds of what follows a checkpoint that ends with k.

        The checkpoint holds ``held[k]`` slots, so that is ``rest[k]`` of that many slots less,
        plus ``plus[k]``. ``shifts``: what each row has now.
        """
        width = after.shape[1]
        for end in np.flatnonzero(held != shifts).tolist():
            shifts[end] = shift = min(int(held[end]), width)
            after[end, :shift] = np.inf
            # As a plain number it does not widen single precision.
            np.add(rest[end, : width - shift], float(plus[end]), out=after[end, shift:])

    @abstractmethod
    def guess(
        self, first: int | np.ndarray, last: int | np.ndarray, memory: int | np.ndarray
    ) -> np.ndarray:
        """Seconds of first..last in so many bytes, or in the fewest slots that will do."""

    def plan(self, memory: int) -> Plan:
        """A fast plan whose peak is at most ``memory`` bytes, or the lowest that is known to fit.

        What a checkpoint lets go early (`Chain.released`) is not known to the search: its plans may
        need less than it says.
        """
        free = max(memory - self.needs.base, int(self.floors.inside[0, -1]))
        return _plan(self.chain, self.floors, free, self)


def lowest_peak(chain: Chain, floors: Floors) -> Plan:
    """The plan with the lowest peak: exact to the byte, no slots."""
    return _plan(chain, floors, int(floors.inside[0, -1]))


def _plan(chain: Chain, floors: Floors, memory: int, table: Table | None = None) -> Plan:
    # Without the loss; a method gives it its name.
    return Plan(floors.nodes(0, len(chain), memory, table)[:-1], "", chain)


def choose(kept: list[tuple[float, int]], dropped: np.ndarray) -> tuple[int, int | None]:
    """The quickest choice: the option of a kept block and None, or 0 and the end of a checkpoint.

    ``kept``: (seconds, option); ``dropped``: seconds for each end. Of equal ends the middle one.
    """
    seconds, option = min(kept, default=(np.inf, 0))
    least = dropped.min(initial=np.inf)
    if seconds <= least:
        return option, None
    ends = np.flatnonzero(dropped == least)
    return 0, int(ends[len(ends) // 2])


# ---------------------------------------------------------------------------------- within a limit

# The table of a chain for a capacity in bytes.
TableOf = Callable[[Chain, int], Table]


def fastest(chain: Chain, table_of: TableOf, floor: Plan, budget: int) -> Plan:
    """The fastest plan within ``budget`` bytes, no less than the peak of ``floor``, the lowest."""
    plain = keep_all(chain)
    if plain.costs.peak_bytes <= budget:
        return plain
    found = table_of(chain, budget).plan(budget)
    # Sizes were rounded.
    quicker = found.costs.seconds < floor.costs.seconds
    return found if quicker and found.costs.peak_bytes <= budget else floor


def smallest(chain: Chain, table_of: TableOf, floor: Plan, known: Plan, seconds: float) -> Plan:
    """The plan with the lowest peak that takes at most ``seconds``.

    ``floor``: the plan with the lowest peak of all. ``known``: one that is fast enough; the lower
    its peak, the finer the slots in which a better one is looked for.
    """
    if floor.costs.seconds <= seconds * CLOSE:
        return floor
    table = table_of(chain, known.costs.peak_bytes)
    in_time = table.times + chain.extra_seconds <= seconds * CLOSE_SINGLE
    first = int(np.argmax(in_time))
    # Sizes were rounded: a plan for some slots less may be fast enough, or only one for more.
    for slots in range(first - 4, min(first + 12, table.slots + 1)):
        found = table.plan(table.needs.base + slots * table.slot)
        if found.costs.seconds <= seconds * CLOSE:
            return min(found, known, key=lambda plan: plan.costs.peak_bytes)
    return known
