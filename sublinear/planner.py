"""Plan a step: by any method, within a budget of memory or of time, at any batch size."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from labkit.text import format_bytes
from sublinear.chain import Chain
from sublinear.cost import Prediction, simulate
from sublinear.plan import Plan
from sublinear.searches import optimal, simple, single_level, table
from sublinear.teaching import genetic, grid, recursive, segments


@dataclass(frozen=True)
class BudgetedMethod:
    """A search that minds a budget: its plan with the lowest peak, and its tables of fastest plans."""

    lowest_peak: Callable[[Chain], Plan]
    table: Callable[[Chain, int], table.Table]


FIXED: dict[str, Callable[[Chain], Plan]] = {
    "none": simple.keep_all,
    "every": simple.every_block,
    "sqrt": segments.sqrt_segments,
    "grid": grid.grid,
    "genetic": genetic.genetic,
    "recursive": recursive.recursive,
}
SEARCHES: dict[str, BudgetedMethod] = {
    "single-level": BudgetedMethod(single_level.lowest_peak, single_level.SingleLevelTable),
    "optimal": BudgetedMethod(
        partial(optimal.lowest_peak, menu=False), partial(optimal.OptimalTable, menu=False)
    ),
    "menu": BudgetedMethod(
        partial(optimal.lowest_peak, menu=True), partial(optimal.OptimalTable, menu=True)
    ),
}
METHODS = (*FIXED, *SEARCHES)


def plan(
    chain: Chain,
    *,
    budget: int | None = None,
    max_overhead: float | None = None,
    batch_size: int | None = None,
    method: str = "menu",
) -> Plan:
    """The plan that ``method`` finds for ``chain``, rescaled to ``batch_size``.

    ``budget``: bytes that the peak may reach; the fastest plan within them. ``max_overhead``: what a step may take more
    than a plain one, as a fraction; the lowest peak within that. Neither: the lowest peak. At most one of the two.
    The methods in `FIXED` know no budget: they give their one plan, or ValueError if it breaks the budget. So does a
    budget below the floor, the lowest peak that any plan of the method has; the message says which block sets it.
    """
    _check(chain, budget, max_overhead, method)
    if budget is not None and max_overhead is not None:
        raise ValueError(
            f"budget={budget!r} and max_overhead={max_overhead!r}: give one of them, the other is the result"
        )
    chain = chain if batch_size is None else chain.at_batch(batch_size)
    if method in FIXED:
        return _fixed(chain, FIXED[method](chain), budget, max_overhead)
    search = SEARCHES[method]
    floor = search.lowest_peak(chain)
    lowest = simulate(chain, floor)
    if budget is not None and budget < lowest.peak_bytes:
        raise ValueError(
            f"budget={_size(budget)} is too small for {chain.batch_size} samples: {_floor(chain, method, lowest)}"
        )
    if max_overhead is None:
        return _fastest(chain, method, floor, lowest.peak_bytes if budget is None else int(budget))
    return _smallest(chain, method, floor, _plain(chain).seconds * (1 + max_overhead))


def largest_batch(
    chain: Chain, budget: int, *, max_overhead: float | None = None, method: str = "menu"
) -> int:
    """The largest batch size for which ``method`` has a plan within ``budget`` bytes, and within ``max_overhead``.

    Raises ValueError where not even one sample fits.
    """
    _check(chain, budget, max_overhead, method)

    def fits(batch_size: int) -> bool:
        scaled = chain.at_batch(batch_size)
        found = FIXED[method](scaled) if method in FIXED else SEARCHES[method].lowest_peak(scaled)
        costs = simulate(scaled, found)
        if costs.peak_bytes > budget or max_overhead is None:
            return costs.peak_bytes <= budget
        if method in SEARCHES:  # the plan above was for the least memory, not for the least time
            costs = simulate(scaled, _fastest(scaled, method, found, int(budget)))
        return costs.seconds <= _plain(scaled).seconds * (1 + max_overhead) * table.CLOSE

    if not fits(1):
        plan(
            chain, budget=budget, batch_size=1, method=method
        )  # says so, unless it is the time that forbids it
        raise ValueError(
            f"max_overhead={max_overhead!r}: within {_size(budget)} not even one sample is as fast as that"
        )
    low, high = 1, 2
    while fits(high):
        low, high = high, 2 * high
        if high > 2**40:
            raise ValueError(
                f"budget={_size(budget)}: any batch fits, since no block's memory grows with the batch"
            )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


# Plans of one level are also plans of the nested searches. To look there first takes a tenth of the time, and its slots
# are finer: what the nested search finds is compared with it.


def _fastest(chain: Chain, method: str, floor: Plan, budget: int) -> Plan:
    found = table.fastest(chain, SEARCHES[method].table, floor, budget)
    flat = SEARCHES["single-level"]
    if (
        method != "single-level"
        and simulate(chain, known := flat.lowest_peak(chain)).peak_bytes <= budget
    ):
        rival = table.fastest(chain, flat.table, known, budget)
        found = min(found, rival, key=lambda plan: simulate(chain, plan).seconds)
    return Plan(found.nodes, method)


def _smallest(chain: Chain, method: str, floor: Plan, seconds: float) -> Plan:
    flat, known = SEARCHES["single-level"], simple.keep_all(chain)
    flat_floor = floor if method == "single-level" else flat.lowest_peak(chain)
    for _ in range(2):  # the second time with finer slots
        known = table.smallest(chain, flat.table, flat_floor, known, seconds)
    if method != "single-level":
        known = table.smallest(chain, SEARCHES[method].table, floor, known, seconds)
    return Plan(known.nodes, method)


def _fixed(chain: Chain, found: Plan, budget: int | None, max_overhead: float | None) -> Plan:
    """The plan itself, or ValueError where it breaks a limit that its method does not know."""
    costs = simulate(chain, found)
    if budget is not None and costs.peak_bytes > budget:
        lowest = simulate(chain, SEARCHES["menu"].lowest_peak(chain))
        raise ValueError(
            f"budget={_size(budget)}: method {found.method!r} minds no budget, and its peak is "
            f"{_size(costs.peak_bytes)}; {_floor(chain, 'menu', lowest)}"
        )
    if (
        max_overhead is not None
        and costs.seconds > (plain := _plain(chain).seconds) * (1 + max_overhead) * table.CLOSE
    ):
        raise ValueError(
            f"max_overhead={max_overhead!r}: method {found.method!r} minds no such limit, and its step takes "
            f"{costs.seconds / plain - 1:.3f} more than a plain one; 'single-level', 'optimal' and 'menu' do"
        )
    return found


def _plain(chain: Chain) -> Prediction:
    return simulate(chain, simple.keep_all(chain))


def _floor(chain: Chain, method: str, lowest: Prediction) -> str:
    event, number, *_ = lowest.bottleneck
    return (
        f"the floor of method {method!r} is {_size(lowest.peak_bytes)}, "
        f"set by the {event} of block {number} ({chain.blocks[number].name!r})"
    )


def _size(size: float) -> str:
    return f"{size:.0f} bytes ({format_bytes(size)})"


def _check(chain: Chain, budget: float | None, max_overhead: float | None, method: str) -> None:
    if not isinstance(chain, Chain):
        raise TypeError(f"chain={chain!r}: plan takes a Chain, as profile makes it from a model")
    if method not in METHODS:
        raise ValueError(f"method={method!r}: choose one of {', '.join(map(repr, METHODS))}")
    for name, value in (("budget", budget), ("max_overhead", max_overhead)):
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError(f"{name}={value!r}: use a number")
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name}={value!r}: use a finite number, 0 or more")
