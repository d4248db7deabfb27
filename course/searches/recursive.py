"""Recursive bisection: memory that grows with the logarithm of the depth, for more forwards."""

from __future__ import annotations

from sublinear.chain import Chain
from sublinear.nodes import Checkpoint, Keep, Node
from sublinear.plan import Plan


def recursive(chain: Chain) -> Plan:
    """Checkpoint the first half, bisected inside in the same way, then go on with the second half.

    On n equal blocks log2(n) outputs are alive at most, and n * (1 + log2(n) / 2) forwards run. It
    looks at no cost: Chen et al. 2016, section 4.4 ("more general recursive schedules").
    """
    return Plan(_bisect(0, len(chain)), "recursive", chain)


def _bisect(first: int, end: int) -> tuple[Node, ...]:
    if end - first == 1:
        return (Keep(first),)
    middle = (first + end) // 2
    return Checkpoint(_bisect(first, middle)), *_bisect(middle, end)
