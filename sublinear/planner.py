"""Plan a step: by any method, within a budget of memory or of time, at any batch size."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from labkit.text import format_bytes
from sublinear.chain import Chain
from sublinear.plan import Plan, every_block, keep_all
from sublinear.searches import optimal, single_level, table

# Gives one plan, whatever the budget.
Search = Callable[[Chain], Plan]


@dataclass(frozen=True)
class BudgetedMethod:
    """A method that minds a budget: its plan with the lowest peak, its tables of fastest plans."""

    name: str
    lowest_peak: Search
    table_of: table.TableOf


_FLAT = BudgetedMethod("single-level", single_level.lowest_peak, single_level.SingleLevelTable)
_NESTED = BudgetedMethod(
    "optimal",
    partial(optimal.lowest_peak, menu=False),
    partial(optimal.OptimalTable, menu=False),
)
_MENU = BudgetedMethod(
    "menu",
    partial(optimal.lowest_peak, menu=True),
    partial(optimal.OptimalTable, menu=True),
)
BUDGETED = {method.name: method for method in (_FLAT, _NESTED, _MENU)}

# By name. Others may be added: the course does so with those that it compares.
METHODS: dict[str, Search | BudgetedMethod] = {
    "none": keep_all,
    "every": every_block,
    **BUDGETED,
}


def plan(
    chain: Chain,
    *,
    budget: float | None = None,
    max_overhead: float | None = None,
    batch_size: int | None = None,
    method: str = "menu",
) -> Plan:
    """The plan that ``method`` finds for ``chain``, rescaled to ``batch_size``.

    ``budget``: bytes that the peak may reach; the fastest plan within them. ``max_overhead``: what
    a step may take more than a plain one, as a fraction; the lowest peak within that. Neither: the
    lowest peak. At most one of the two.

    Those of `METHODS` that are functions know no budget: they give their one plan, or ValueError if
    it breaks the budget. So does a budget below the floor, the lowest peak that any plan of the
    method has; the message says which block sets it.
    """
    _check_chain(chain)
    check_limits(budget, max_overhead, method)
    check_one(budget, max_overhead)
    if batch_size is not None:
        chain = chain.at_batch(batch_size)
    search = METHODS[method]
    if not isinstance(search, BudgetedMethod):
        return _within_limits(chain, search(chain), budget, max_overhead)
    floor = search.lowest_peak(chain)
    least = floor.costs.peak_bytes
    if max_overhead is not None:
        return _smallest(chain, search, floor, _seconds_allowed(chain, max_overhead))
    if budget is not None and budget >= least:
        return _fastest(chain, search, floor, int(budget))
    # What a checkpoint lets go early may make a plan smaller than the search knows.
    lowest = _fastest(chain, search, floor, least)
    if budget is not None and lowest.costs.peak_bytes > budget:
        raise ValueError(
            f"budget={_size(budget)} is too small for {chain.batch_size} samples: "
            f"{_about(chain, lowest)}; {_remedies(chain, budget, search)}"
        )
    return lowest


def largest_batch(
    chain: Chain,
    budget: int,
    *,
    max_overhead: float | None = None,
    method: str = "menu",
) -> int:
    """The largest batch size for which ``method`` has a plan within ``budget`` bytes.

    And within ``max_overhead``, if that is given. Raises ValueError where not even one sample fits.
    """
    _check_chain(chain)
    check_limits(budget, max_overhead, method)
    search = METHODS[method]

    def fits(batch_size: int) -> bool:
        return _fits(chain.at_batch(batch_size), int(budget), max_overhead, search)

    if not fits(1):
        # Says so, unless it is the time that forbids it.
        plan(chain, budget=budget, batch_size=1, method=method)
        raise ValueError(
            f"max_overhead={max_overhead!r}: within {_size(budget)} not even one sample is as fast "
            "as that"
        )
    low, high = 1, 2
    while fits(high):
        low, high = high, 2 * high
        if high > 2**40:
            raise ValueError(
                f"budget={_size(budget)}: any batch fits, since no block's memory grows with it"
            )
    return low + _how_many(fits, range(low + 1, high))


def _check_chain(chain: object) -> None:
    if not isinstance(chain, Chain):
        raise TypeError(f"chain={chain!r}: plan takes a Chain, as profile makes it from a model")


def _how_many(fits: Callable[[int], bool], sizes: range) -> int:
    """How many of the sizes fit, of which a smaller one always does."""
    return bisect_right(sizes, False, key=lambda size: not fits(size))


def _fits(
    chain: Chain, budget: int, max_overhead: float | None, search: Search | BudgetedMethod
) -> bool:
    if not isinstance(search, BudgetedMethod):
        found = search(chain)
    else:
        found = search.lowest_peak(chain)
    if found.costs.peak_bytes > budget:
        return False
    if max_overhead is None:
        return True
    if isinstance(search, BudgetedMethod):
        # The plan above was for the least memory, not for the least time.
        found = _fastest(chain, search, found, budget)
    return found.costs.seconds <= _seconds_allowed(chain, max_overhead) * table.CLOSE


# Plans of one level are also plans of the nested searches. To look there first takes a tenth of the
# time, and its slots are finer: what the nested search finds is compared with it.


def _fastest(chain: Chain, method: BudgetedMethod, floor: Plan, budget: int) -> Plan:
    found = table.fastest(chain, method.table_of, floor, budget)
    if method is not _FLAT:
        flat_floor = _FLAT.lowest_peak(chain)
        if flat_floor.costs.peak_bytes <= budget:
            rival = table.fastest(chain, _FLAT.table_of, flat_floor, budget)
            found = min(found, rival, key=lambda plan: plan.costs.seconds)
    return found.named(method.name)


def _smallest(chain: Chain, method: BudgetedMethod, floor: Plan, seconds: float) -> Plan:
    flat_floor = _FLAT.lowest_peak(chain)
    known = keep_all(chain)
    # The second time with finer slots.
    for _ in range(2):
        known = table.smallest(chain, _FLAT.table_of, flat_floor, known, seconds)
    if method is not _FLAT:
        known = table.smallest(chain, method.table_of, floor, known, seconds)
    return known.named(method.name)


def _within_limits(
    chain: Chain, found: Plan, budget: float | None, max_overhead: float | None
) -> Plan:
    """The plan itself, or ValueError where it breaks a limit that its method does not know."""
    costs = found.costs
    if budget is not None and costs.peak_bytes > budget:
        floor = _MENU.lowest_peak(chain).named("menu")
        raise ValueError(
            f"budget={_size(budget)}: method {found.method!r} minds no budget, and its peak is "
            f"{_size(costs.peak_bytes)}; {_about(chain, floor)}"
        )
    plain = keep_all(chain).costs.seconds
    if max_overhead is not None and costs.seconds > plain * (1 + max_overhead) * table.CLOSE:
        raise ValueError(
            f"max_overhead={max_overhead!r}: method {found.method!r} minds no such limit, and its "
            f"step takes {costs.seconds / plain - 1:.3f} more than a plain one; "
            f"{', '.join(map(repr, BUDGETED))} mind it"
        )
    return found


def _seconds_allowed(chain: Chain, max_overhead: float) -> float:
    return keep_all(chain).costs.seconds * (1 + max_overhead)


def _about(chain: Chain, floor: Plan) -> str:
    event, number, *_ = floor.costs.bottleneck
    return (
        f"the floor of method {floor.method!r} is {_size(floor.costs.peak_bytes)}, "
        f"set by the {event} of block {number} ({chain.blocks[number].name!r})"
    )


def _size(size: float) -> str:
    return f"{size:.0f} bytes ({format_bytes(size)})"


def _remedies(chain: Chain, budget: float, search: BudgetedMethod) -> str:
    """What would fit, and what would help."""
    largest = max(chain.blocks, key=lambda block: block.options[0].saved_bytes)

    def fit(batch_size: int) -> bool:
        return _fits(chain.at_batch(batch_size), int(budget), None, search)

    most = _how_many(fit, range(1, chain.batch_size))
    if not most:
        fits = f"not even one sample fits: {_size(chain.fixed_bytes)} do not depend on the batch"
    else:
        fits = f"{most} samples would fit" if most > 1 else "one sample would fit"
    return (
        f"{fits}; what helps: a smaller batch with accumulated gradients, autocast, an optimizer "
        f"with less state, smaller modules than the largest block ({largest.name!r}, which saves "
        f"{_size(largest.options[0].saved_bytes)})"
    )


def check_one(budget: object, max_overhead: object) -> None:
    """Raise ValueError for a budget of memory beside one of time."""
    if budget is not None and max_overhead is not None:
        raise ValueError(
            f"budget={budget!r} and max_overhead={max_overhead!r}: "
            "give one of them, the other is the result"
        )


def check_limits(budget: object, max_overhead: object, method: str) -> None:
    """Raise ValueError or TypeError for a limit that is no number, or another method."""
    if method not in METHODS:
        raise ValueError(f"method={method!r}: choose one of {', '.join(map(repr, METHODS))}")
    for name, value in (("budget", budget), ("max_overhead", max_overhead)):
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError(f"{name}={value!r}: use a number")
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name}={value!r}: use a finite number, 0 or more")
