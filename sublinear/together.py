"""Several graphs in one step: a plan for each, so that together they keep to one budget.

While a graph runs, those before it hold what they keep for the backward pass; while it runs
backward, those behind it have left the gradients of their weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from labkit.text import format_bytes
from sublinear.chain import Chain
from sublinear.plan import Plan, keep_all
from sublinear.planner import plan as find

# Halvings of the share of what may be saved, for several graphs.
_HALVINGS = 8


class Together(NamedTuple):
    """The plans of graphs, in the order in which they run, and what a step by them costs."""

    plans: tuple[Plan, ...]
    peak_bytes: int
    seconds: float


def plain(chains: Sequence[Chain]) -> Together:
    """Nothing is computed again."""
    return _together([keep_all(chain) for chain in chains])


def by_overhead(chains: Sequence[Chain], max_overhead: float | None, method: str) -> Together:
    """Of each graph the lowest peak within ``max_overhead``, a share of its own time."""
    return _together([find(chain, max_overhead=max_overhead, method=method) for chain in chains])


def by_budget(
    chains: Sequence[Chain], limit: float, method: str, *, nearest: bool = False
) -> Together:
    """The fastest plans found whose peak is at most ``limit`` bytes.

    Raises ValueError, with the lowest peak, if there are none; ``nearest``: gives those instead.
    """
    best = plain(chains)
    if best.peak_bytes <= limit:
        return best
    floors = [find(chain, method=method) for chain in chains]
    lowest = _together(floors)
    if lowest.peak_bytes > limit and nearest:
        return lowest
    if lowest.peak_bytes > limit:
        raise ValueError(
            f"budget={limit:.0f} bytes ({format_bytes(limit)}) is too small: with the lowest peak "
            f"of all plans a step needs {format_bytes(lowest.peak_bytes)}; what helps: a smaller "
            "batch, autocast, smaller modules"
        )
    least = [floor.costs.peak_bytes for floor in floors]
    most = [keep_all(chain).costs.peak_bytes for chain in chains]
    if len(chains) == 1:
        return _together([find(chains[0], budget=limit - _beside(floors, 0), method=method)])
    found, low, high = lowest, 0.0, 1.0
    for _ in range(_HALVINGS):
        share = (low + high) / 2
        plans = []
        for chain, one, other in zip(chains, least, most, strict=True):
            plans.append(find(chain, budget=one + share * (other - one), method=method))
        trial = _together(plans)
        if trial.peak_bytes > limit:
            high = share
            continue
        low = share
        if trial.seconds < found.seconds:
            found = trial
    return found


def _together(plans: Sequence[Plan]) -> Together:
    peak = 0
    for number, plan in enumerate(plans):
        peak = max(peak, plan.costs.peak_bytes + _beside(plans, number))
    return Together(tuple(plans), peak, sum(plan.costs.seconds for plan in plans))


def _beside(plans: Sequence[Plan], number: int) -> int:
    """What other graphs hold while one runs: their inputs and weights, and what they keep."""
    size = 0
    for other, plan in enumerate(plans):
        if other < number:
            size += _kept(plan)
        elif other > number:
            size += plan.known_chain.fixed_bytes
    return size


def _kept(plan: Plan) -> int:
    """What is alive between the forward pass and the backward pass of a graph."""
    last = len(plan) - 1
    for moment in plan.costs.timeline:
        if moment.block == last and moment.event in ("forward", "bare"):
            return moment.alive_bytes
    raise AssertionError("a plan runs its last block")
