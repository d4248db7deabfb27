"""The optimal search where there is a link to the CPU's memory.

Checkpoints that lie in no other one may send what they hold there. What goes on inside checkpoints
is not changed by that, so this is one more column beside those of the nested search: the step
itself, a sequence of kept blocks and of checkpoints. What sending frees depends on the piece
before, which may hold it as well. Of a tensor that has crossed an earlier cut it depends on more
than that piece: such a one counts here as sent, and as held all the same.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sublinear.chain import Chain
from sublinear.nodes import Checkpoint, Keep, Node
from sublinear.plan import Plan
from sublinear.searches import optimal
from sublinear.searches.needs import OncePerChain
from sublinear.searches.optimal import OptimalTable, method_name, slots_for
from sublinear.searches.table import UNKNOWN, Table

# What kind of piece comes before: a checkpoint, a block that saves everything, or a block that runs
# again in part.
DROPPED, KEPT, CHOSEN = range(3)


def lowest_peak(chain: Chain, *, menu: bool) -> Plan:
    """The plan with the lowest peak; without a link, that of the nested search."""
    lowest = optimal.lowest_peak(chain, menu=menu)
    if chain.link is None:
        return lowest
    floors = _floors_of(chain, menu=menu)
    nodes = floors.nodes(int(floors.rest[CHOSEN, 0]))
    found = Plan(nodes[:-1], method_name(menu), chain)
    return min(lowest, found, key=lambda plan: plan.costs.peak_bytes)


def table(chain: Chain, capacity: int, *, menu: bool) -> Table:
    """The table of fastest plans; without a link, that of the nested search."""
    if chain.link is None:
        return OptimalTable(chain, capacity, menu=menu)
    return OffloadTable(chain, capacity, menu=menu)


class OffloadTable(Table):
    """R[p, s, m]: least seconds of the blocks from s on, in m slots, behind a piece of kind p.

    Either s is kept, or s..k is a checkpoint, as in `OptimalTable`; or that checkpoint sends what
    it holds, and k+1.. go on in as much more. O(n^2 m) beside the nested table.
    """

    def __init__(
        self, chain: Chain, capacity: int, *, menu: bool, slots: int | None = None
    ) -> None:
        slots = slots or slots_for(len(chain))
        self.nested = OptimalTable(chain, capacity, menu=menu, slots=slots)
        super().__init__(chain, self.nested.needs, capacity, slots, method_name(menu))
        self.floors = _floors_of(chain, menu=menu)
        n, width = self.needs.n, self.slots + 1
        self.rest = np.full((3, n + 1, width), np.inf)
        self.rest[:, n] = 0
        for first in range(n - 1, -1, -1):
            self._fill(first)
        # The fewest slots with which anything will do.
        self.enough = np.isfinite(self.rest).argmax(axis=2)
        self.times = self.rest[CHOSEN, 0]

    def _fill(self, first: int) -> None:
        here = self.floors.here(first)
        own = self.seconds(first, here, np.arange(self.slots + 1) * self.slot)
        best = self._fastest(here, own)
        for kind in (DROPPED, KEPT, CHOSEN):
            self.rest[kind, first] = best
            places, sending = self.floors.sending(first, kind, here)
            if len(places):
                more = sending.seconds - here.seconds[places]
                found = self._fastest(sending, own[places] + more[:, None])
                np.minimum(self.rest[kind, first], found, out=self.rest[kind, first])

    def _fastest(self, pieces: Pieces, own: np.ndarray) -> np.ndarray:
        """Least seconds by slots of any of the pieces, with ``own`` seconds, and of the rest."""
        slots = np.arange(self.slots + 1)
        left = slots - self.size(pieces.held)[:, None]
        rest = self.rest[pieces.kind, pieces.then]
        seconds = own + np.take_along_axis(rest, np.clip(left, 0, self.slots), axis=1)
        seconds[(left < 0) | (slots < self.need(pieces.need)[:, None])] = np.inf
        least: np.ndarray = seconds.min(axis=0)
        return least

    def seconds(self, first: int, pieces: Pieces, memory: np.ndarray) -> np.ndarray:
        """Of each piece itself, (pieces, len(memory)), in so many bytes."""
        ends = pieces.then[pieces.checkpoint] - 1
        found = np.repeat(pieces.seconds[:, None], len(memory), axis=1)
        left = memory[None] - self.needs.mark[first]
        found[pieces.checkpoint] += self.nested.guess(first, ends[:, None], left)
        return found

    def plan(self, memory: int) -> Plan:
        free = max(memory - self.needs.base, int(self.floors.rest[CHOSEN, 0]))
        # Without the loss.
        return Plan(self.floors.nodes(free, self)[:-1], self.method, self.chain)

    def guess(self, pieces: Pieces, memory: int) -> np.ndarray:
        """Seconds of what follows each piece in so many bytes less what the piece holds.

        Where slots say never, those in the fewest slots that will do.
        """
        kind, then = pieces.kind, pieces.then
        slots = np.maximum((memory - pieces.held) // self.slot, self.enough[kind, then])
        return np.minimum(self.rest[kind, then, np.minimum(slots, self.slots)], UNKNOWN)


class Pieces(NamedTuple):
    """What may come first of the blocks from one on: kept, with each option, or a checkpoint.

    ``need``: bytes that it needs itself; ``held``: those gone while the rest runs, negative where
    sending gives back more. ``then``: the block that follows; ``kind``: of the piece, as the rest
    sees it. ``seconds``: without those of the plan inside a checkpoint.
    """

    need: np.ndarray
    held: np.ndarray
    then: np.ndarray
    kind: np.ndarray
    seconds: np.ndarray

    @property
    def checkpoint(self) -> np.ndarray:
        """Whether each is a checkpoint."""
        return self.kind == DROPPED


class _Floors:
    """``rest[p, s]``: least bytes in which the blocks from s on can run, behind a piece of kind p.

    Exact but for what is freed, see `sublinear.searches.optimal`.
    """

    def __init__(self, chain: Chain, menu: bool) -> None:
        # Not the chain, which would never die: what is kept of it lives as long as it does.
        assert chain.link is not None
        self.link = chain.link
        self.crossings = [_crossings(chain, first) for first in range(len(chain) + 1)]
        self.inside = optimal.floors_of(chain, menu=menu)
        self.needs = self.inside.needs
        n = self.needs.n
        self.rest = np.zeros((3, n + 1), np.int64)
        for first in range(n - 1, -1, -1):
            here = self.here(first)
            least = self.least(here).min()
            for kind in (DROPPED, KEPT, CHOSEN):
                _, sending = self.sending(first, kind, here)
                self.rest[kind, first] = self.least(sending).min(initial=least)

    def least(self, pieces: Pieces) -> np.ndarray:
        """Bytes that are needed with each piece, the rest included."""
        return np.maximum(pieces.need, pieces.held + self.rest[pieces.kind, pieces.then])

    def here(self, first: int) -> Pieces:
        """What may come first of the blocks from ``first`` on, and sends nothing."""
        needs = self.needs
        ends = np.arange(first, needs.n - 1)
        options = len(needs.saved[first])
        forward, backward = np.array(needs.forward[first]), np.array(needs.backward[first])
        again = self.inside.alone[first, ends] + needs.mark[first]
        seconds = needs.elapsed[ends + 1] - (needs.elapsed[first] - needs.checkpoint)
        kinds = [KEPT] + [CHOSEN] * (options - 1) + [DROPPED] * len(ends)
        return Pieces(
            np.append(np.maximum(forward, backward), np.maximum(again, needs.bare[first, ends])),
            np.append(needs.saved[first], needs.held[first, ends]),
            np.append(np.full(options, first + 1), ends + 1),
            np.array(kinds),
            np.append(needs.seconds[first], seconds),
        )

    def sending(self, first: int, kind: int, here: Pieces) -> tuple[np.ndarray, Pieces]:
        """The checkpoints among those ``here`` that may send what that frees, and their places.

        ``kind``: of the piece before.
        """
        count = len(here.then)
        sent, freed = np.zeros(count, np.int64), np.zeros(count, np.int64)
        for crossing in self.crossings[first]:
            goes = here.checkpoint & (here.then > crossing.last)
            sent[goes] += crossing.size
            if crossing.freed[kind]:
                freed[goes] += crossing.size
        places = np.flatnonzero(freed)
        need, held, then, kinds, seconds = (row[places] for row in here)
        seconds = seconds + self.link.seconds(1) * sent[places]
        # What is sent and not freed may come back beside itself.
        copies = sent[places] - freed[places]
        return places, Pieces(need + copies, held - freed[places], then, kinds, seconds)

    def nodes(self, memory: int, table: OffloadTable | None = None) -> tuple[Node, ...]:
        """The choices that fit into ``memory`` bytes, by ``table`` the fastest.

        Without a table, the first that fits: blocks are kept where they can be.
        """
        first, kind = 0, CHOSEN
        nodes: list[Node] = []
        while first < self.needs.n:
            here = self.here(first)
            _, sending = self.sending(first, kind, here)
            pieces = Pieces(*map(np.append, here, sending))
            seconds = np.zeros(len(pieces.need))
            if table:
                seconds = table.seconds(first, pieces, np.array([memory]))[:, 0]
                seconds += table.guess(pieces, memory)
            seconds[self.least(pieces) > memory] = np.inf
            found = int(np.argmin(seconds))
            if pieces.checkpoint[found]:
                last = int(pieces.then[found]) - 1
                inside = self._inside(first, last, memory, table)
                nodes.append(Checkpoint(inside, offload=found >= len(here.need)))
            else:
                nodes.append(Keep(first, found))
            memory -= int(pieces.held[found])
            first, kind = int(pieces.then[found]), int(pieces.kind[found])
        return tuple(nodes)

    def _inside(
        self, first: int, last: int, memory: int, table: OffloadTable | None
    ) -> tuple[Node, ...]:
        left = memory - int(self.needs.mark[first])
        nested = table.nested if table else None
        return self.inside.nodes(first, last, left, nested, True)


class _Crossing(NamedTuple):
    """A tensor that a checkpoint may send, if it ends with block ``last`` or later.

    ``freed``: whether that frees it, behind each kind of piece; see `sublinear.sent`.
    """

    last: int
    size: int
    freed: tuple[bool, ...]


def _crossings(chain: Chain, first: int) -> list[_Crossing]:
    """What crosses into ``first``, without what the model was given."""
    found: list[_Crossing] = []
    if not first:
        return found
    before = chain.blocks[first - 1]
    for number, size in chain.cuts[first].items():
        if number in chain.cuts[0]:
            continue
        last = first
        while last < len(chain) and number in chain.cuts[last + 1]:
            last += 1
        if number in before.waits:
            freed = (True, True, True)
        elif number in chain.cuts[first - 1]:
            freed = (False, False, False)
        else:
            freed = (True, before.saves is not None and number not in before.saves, False)
        found.append(_Crossing(last, size, freed))
    return found


_floors_of = OncePerChain(lambda chain, menu: _Floors(chain, menu))
