"""What dynamic programs over discrete memory share: slots, and how to choose from a table of fastest plans."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

from sublinear.chain import Chain
from sublinear.cost import simulate
from sublinear.plan import Plan
from sublinear.searches.needs import Needs
from sublinear.searches.simple import keep_all

HEADROOM = (
    1.05  # rounded sizes may ask for a little more than the capacity where the true ones do not
)
CLOSE = 1 + 1e-9  # sums of seconds in another order


class Table(ABC):
    """The fastest plans for every number of memory slots up to ``capacity`` bytes (of the whole step).

    With slots of one byte, on small chains, the table is exact. Else sizes are rounded to the nearest slot, and its
    seconds only say which choice is fast: which ones fit, `plan` decides to the byte by the least memory that the rest
    can do with. ``times[m]``: seconds with m slots, infinite where impossible.
    """

    times: np.ndarray

    def __init__(self, chain: Chain, needs: Needs, capacity: int, slots: int, method: str) -> None:
        self.chain, self.needs, self.method = chain, needs, method
        free = max(1, capacity - needs.base)
        self.slot = -(-free // slots)
        self.slots = free if self.slot == 1 else int(free * HEADROOM) // self.slot

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
        """Bring ``after[k, m]`` up to date, the seconds of what follows a checkpoint that ends with k and holds
        ``held[k]`` slots: ``rest[k]`` of that many slots less, ``plus[k]``. ``shifts``: what each row has now."""
        for end in np.flatnonzero(held != shifts).tolist():
            shifts[end] = shift = min(int(held[end]), after.shape[1])
            after[end, :shift] = np.inf
            np.add(rest[end, : after.shape[1] - shift], plus[end], out=after[end, shift:])

    @abstractmethod
    def plan(self, memory: int) -> Plan:
        """A fast plan whose peak is at most ``memory`` bytes, which is no less than the lowest peak."""


def choose(kept: list[tuple[float, int]], dropped: np.ndarray) -> tuple[int, int | None]:
    """The quicker of two: the option of a kept block, from (seconds, option) of those that fit, or the end of a
    checkpoint, None if the block is kept, from the seconds for each end. Of equal ends the middle one."""
    seconds, option = min(kept, default=(np.inf, 0))
    least = dropped.min(initial=np.inf)
    if seconds <= least:
        return option, None
    ends = np.flatnonzero(dropped == least)
    return 0, int(ends[len(ends) // 2])


UNKNOWN = 1e30  # seconds, where rounding makes the table deny what is possible: last choice of all
TableOf = Callable[[Chain, int], Table]  # chain, capacity in bytes -> table


def fastest(chain: Chain, table_of: TableOf, floor: Plan, budget: int) -> Plan:
    """The fastest plan within ``budget`` bytes, which are no less than the peak of ``floor``, the lowest."""
    plain = keep_all(chain)
    if simulate(chain, plain).peak_bytes <= budget:
        return plain
    table, least = table_of(chain, budget), simulate(chain, floor).peak_bytes
    # With rounded sizes the plan for a little less memory may be the faster one.
    plans = [
        table.plan(max(least, budget - slots * table.slot))
        for slots in range(1 if table.slot == 1 else 6)
    ]
    return min(plans, key=lambda plan: simulate(chain, plan).seconds)


def smallest(chain: Chain, table_of: TableOf, floor: Plan, known: Plan, seconds: float) -> Plan:
    """The plan with the lowest simulated peak that takes at most ``seconds``.

    ``floor``: the plan with the lowest peak of all. ``known``: one that is fast enough; the lower its peak, the finer
    the slots in which a better one is looked for.
    """
    costs = simulate(chain, floor)
    if costs.seconds <= seconds * CLOSE:
        return floor
    best, lowest, least = known, simulate(chain, known).peak_bytes, costs.peak_bytes
    table = table_of(chain, lowest)
    in_time = table.times + chain.extra_seconds <= seconds * (
        1 + 1e-6
    )  # times may be of single precision
    first = int(np.argmax(in_time))
    # Sizes were rounded: the plan for some slots less or more may be fast enough, or have the lower peak.
    for slots in range(first - 4, min(first + 12, table.slots + 1)):
        if (memory := table.needs.base + slots * table.slot) >= least:
            costs = simulate(chain, plan := table.plan(memory))
            if costs.seconds <= seconds * CLOSE and costs.peak_bytes < lowest:
                best, lowest = plan, costs.peak_bytes
    return best


def front(chain: Chain, table_of: TableOf, floor: Plan, count: int) -> list[Plan]:
    """``count`` plans from the lowest peak, that of ``floor``, to that of plain training, evenly spaced in memory."""
    plain = keep_all(chain)
    least, most = (simulate(chain, plan).peak_bytes for plan in (floor, plain))
    table = table_of(chain, most)
    plans = [table.plan(int(memory)) for memory in np.linspace(least, most, count)[:-1]]
    return [*plans, Plan(plain.nodes, table.method)]
