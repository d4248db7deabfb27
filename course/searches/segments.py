"""Chen's first plan: segments of equal length, about sqrt(n) of n blocks."""

from __future__ import annotations

import math

from course.searches.splits import from_splits
from sublinear.chain import Chain
from sublinear.plan import Plan


def sqrt_segments(chain: Chain) -> Plan:
    """About sqrt(n) segments of equal length, O(sqrt(n)) memory for one forward more.

    That holds on a chain of equal blocks: Chen, Xu, Zhang, Guestrin 2016, "Training deep nets with
    sublinear memory cost".
    """
    count = len(chain)
    segments = math.isqrt(count - 1) + 1
    splits = [round(count * part / segments) for part in range(1, segments)]
    return from_splits(chain, splits, "sqrt")
