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
    table = table_of(chain, budget)
    least = floor.costs.peak_bytes
    tries = 1
    if table.slot > 1:
        # With rounded sizes the plan for a little less memory may be the faster one.
        tries = 6
    plans = [floor]
    sizes = [max(least, budget - slots * table.slot) for slots in range(tries)]
    for memory in dict.fromkeys(sizes):
        found = table.plan(memory)
        if found.costs.peak_bytes <= budget:
            plans.append(found)
    return min(plans, key=lambda plan: plan.costs.seconds)


def smallest(chain: Chain, table_of: TableOf, floor: Plan, known: Plan, seconds: float) -> Plan:
    """The plan with the lowest peak that takes at most ``seconds``.

    ``floor``: the plan with the lowest peak of all. ``known``: one that is fast enough; the lower
    its peak, the finer the slots in which a better one is looked for.
    """
    if floor.costs.seconds <= seconds * CLOSE:
        return floor
    best = known
    table = table_of(chain, known.costs.peak_bytes)
    in_time = table.times + chain.extra_seconds <= seconds * CLOSE_SINGLE
    first = int(np.argmax(in_time))
    # Sizes were rounded: a plan for some slots less or more may be fast enough, or the smaller one.
    before = floor
    for slots in range(first - 4, min(first + 12, table.slots + 1)):
        memory = table.needs.base + slots * table.slot
        if memory < floor.costs.peak_bytes:
            continue
        plan = table.plan(memory)
        if plan.nodes == before.nodes:
            continue
        before = plan
        quick = plan.costs.seconds <= seconds * CLOSE
        if quick and plan.costs.peak_bytes < best.costs.peak_bytes:
            best = plan
    return best
