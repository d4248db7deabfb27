"""A solver for the compiler's own memory budget that keeps to it.

    from torch._functorch import config
    config.activation_memory_budget = 0.5
    config.activation_memory_budget_solver = Knapsack()

AOTAutograd then asks it which activations to save: a 0-1 knapsack of their bytes and of the time
that it takes to compute them again (`torch/_functorch/partitioners.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import fx
from torch._functorch import partitioners
from torch._inductor.custom_graph_pass import CustomKnapsackSolver, get_hash_for_files

# Of the budget: sizes are rounded up to a whole number of them, so that no sum is too large.
PARTS = 4096


def most_saved(sizes: Sequence[float], seconds: Sequence[float], room: float) -> list[int]:
    """The items, by number, that save the most seconds and need at most ``room`` together.

    Exact but for the rounding of sizes up to a 4096th of all of them. More room never saves less.
    """
    total = math.fsum(sizes)
    if room >= total:
        return list(range(len(sizes)))
    unit = total / PARTS
    free = max(0, math.floor(room / unit))
    needs = [math.ceil(size / unit) for size in sizes]
    best = np.zeros(free + 1)
    taken = np.zeros((len(needs), free + 1), np.bool_)
    for item, (need, gain) in enumerate(zip(needs, seconds, strict=True)):
        if need <= free:
            found = best[: free + 1 - need] + gain
            taken[item, need:] = found > best[need:]
            best[need:] = np.maximum(best[need:], found)
    items = []
    for item in reversed(range(len(needs))):
        if taken[item, free]:
            items.append(item)
            free -= needs[item]
    return items[::-1]


class Knapsack(CustomKnapsackSolver):
    """`most_saved` for ``torch._functorch.config.activation_memory_budget_solver``."""

    def __call__(
        self,
        memory: list[float],
        joint_graph: fx.Graph,
        max_memory: float,
        node_info: Any,
        all_recomputable_banned_nodes: list[fx.Node],
    ) -> tuple[list[int], list[int]]:
        """Numbers of the values to save, and of those to compute again."""
        seconds = [partitioners.estimate_runtime(node) for node in all_recomputable_banned_nodes]
        saved = most_saved(memory, seconds, max_memory)
        return saved, sorted(set(range(len(memory))) - set(saved))

    def uuid(self) -> Any:
        """What compiled code is kept by."""
        return get_hash_for_files((__file__,))
