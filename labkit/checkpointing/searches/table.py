"""What dynamic programs over discrete memory share: slots, and how to choose from a table of fastest plans."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

import numpy as np

from labkit.checkpointing.chain import Chain
from labkit.checkpointing.cost import simulate
from labkit.checkpointing.plan import Node, Plan
from labkit.checkpointing.searches.needs import Needs
from labkit.checkpointing.searches.simple import keep_all

HEADROOM = 1.04  # sizes are rounded to slots, up or down: a plan for a little more memory may fit in truth
CLOSE = 1 + 1e-9  # sums of seconds in another order


class Table(ABC):
    """The fastest plan for every number of memory slots up to ``capacity`` bytes (of the whole step).

    With a slot of one byte, on small chains, the table is exact. Else sizes are rounded to the nearest slot, and
    whoever takes a plan from the table simulates it. ``times[m]``: seconds with m slots, infinite where impossible.
    """

    times: np.ndarray

    def __init__(self, chain: Chain, needs: Needs, capacity: int, slots: int, method: str) -> None:
        self.chain, self.needs, self.method = chain, needs, method
        free = max(1, capacity - needs.base)
        self.slot = -(-free // slots)
        self.slots = free if self.slot == 1 else int(free * HEADROOM) // self.slot + 1

    def size(self, size: int | np.ndarray) -> np.ndarray:
        """Bytes that stay, in slots."""
        return (np.asarray(size) + self.slot // 2) // self.slot

    def need(self, size: int | np.ndarray) -> np.ndarray:
        """The least number of slots that hold so many bytes."""
        return -(-np.asarray(size) // self.slot)

    def follow(
        self, after: np.ndarray, held: np.ndarray, shifts: np.ndarray, rest: np.ndarray, plus: np.ndarray
    ) -> None:
        """Bring ``after[k, m]`` up to date, the seconds of what follows a checkpoint that ends with k and holds
        ``held[k]`` slots: ``rest[k]`` of that many slots less, ``plus[k]``. ``shifts``: what each row has now."""
        for end in np.flatnonzero(held != shifts).tolist():
            shifts[end] = shift = min(int(held[end]), after.shape[1])
            after[end, :shift] = np.inf
            np.add(rest[end, : after.shape[1] - shift], plus[end], out=after[end, shift:])

    @abstractmethod
    def nodes(self, slots: int) -> tuple[Node, ...]:
        """The nodes of the fastest plan within so many slots."""

    def plans(self, order: range) -> Iterator[Plan]:
        """The plans for these numbers of slots, one for each time that differs."""
        last = np.inf
        for slots in order:
            if np.isfinite(self.times[slots]) and self.times[slots] != last:
                last = self.times[slots]
                yield Plan(self.nodes(slots), self.method)


TableOf = Callable[[Chain, int], Table]  # chain, capacity in bytes -> table


def fastest(chain: Chain, table_of: TableOf, floor: Plan, budget: int) -> Plan:
    """The fastest plan whose simulated peak is within ``budget``. ``floor`` is the plan with the lowest peak."""
    plain = keep_all(chain)
    if (most := simulate(chain, plain).peak_bytes) <= budget:
        return Plan(plain.nodes, floor.method)
    table = table_of(chain, min(budget, most))
    for plan in table.plans(range(table.slots, -1, -1)):
        if (costs := simulate(chain, plan)).peak_bytes <= budget:
            return plan if costs.seconds <= simulate(chain, floor).seconds else floor
    return floor


def smallest(chain: Chain, table_of: TableOf, floor: Plan, known: Plan, seconds: float) -> Plan:
    """The plan with the lowest simulated peak that takes at most ``seconds``.

    ``floor``: the plan with the lowest peak of all. ``known``: one that is fast enough; the lower its peak, the finer
    the slots in which a better one is looked for.
    """
    if simulate(chain, floor).seconds <= seconds * CLOSE:
        return floor
    best, lowest = known, simulate(chain, known).peak_bytes
    table = table_of(chain, lowest)
    first = int(
        np.argmax(table.times + chain.extra_seconds <= seconds * (1 + 1e-6))
    )  # times may be of single precision
    # Sizes were rounded: a plan for some slots more may have the lower peak in truth.
    for plan in table.plans(range(first, min(first + 12, table.slots + 1))):
        costs = simulate(chain, plan)
        if costs.seconds <= seconds * CLOSE and costs.peak_bytes < lowest:
            best, lowest = plan, costs.peak_bytes
    return best


def front(chain: Chain, table_of: TableOf, floor: Plan, count: int) -> list[Plan]:
    """About ``count`` plans between the lowest peak and that of plain training, evenly spaced in memory."""
    plain = keep_all(chain)
    table = table_of(chain, simulate(chain, plain).peak_bytes)
    reachable = np.flatnonzero(np.isfinite(table.times))
    first = int(reachable[0]) if len(reachable) else table.slots
    places = np.unique(np.linspace(first, table.slots, count).astype(int))
    return [floor, *(Plan(table.nodes(int(place)), table.method) for place in places if len(reachable))]
