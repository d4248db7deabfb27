"""How to choose from a table of fastest plans: the fastest within bytes, the smallest in time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sublinear.chain import Chain
from sublinear.plan import Plan
from sublinear.searches.simple import keep_all
from sublinear.searches.table import CLOSE, CLOSE_SINGLE, Table

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
