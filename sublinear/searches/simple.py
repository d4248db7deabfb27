"""Plans that need no search: keep everything, checkpoint every block, or about sqrt(n) segments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from sublinear.chain import Chain
from sublinear.plan import Checkpoint, Keep, Node, Plan


def keep_all(chain: Chain) -> Plan:
    """Plain training: every block saves everything."""
    return Plan(_kept(0, len(chain)), "none")


def every_block(chain: Chain) -> Plan:
    """Every block is a checkpoint of its own: what many training scripts do."""
    return Plan(tuple(Checkpoint((Keep(block),)) for block in range(len(chain))), "every")


def sqrt_segments(chain: Chain) -> Plan:
    """About sqrt(n) segments of equal length: O(sqrt(n)) memory on a chain of equal blocks for one forward more.

    Chen, Xu, Zhang, Guestrin 2016, "Training deep nets with sublinear memory cost".
    """
    count = len(chain)
    segments = math.isqrt(count - 1) + 1
    return from_splits(
        [round(count * part / segments) for part in range(1, segments)], count, "sqrt"
    )


def from_splits(splits: Sequence[int], count: int, method: str) -> Plan:
    """The plan of one level that cuts ``count`` blocks before each block in ``splits`` (ascending).

    Each segment but the last is a checkpoint. The last is kept: its backward comes next, so dropping it saves nothing.
    """
    bounds = [0, *splits, count]
    segments = [_kept(first, end) for first, end in pairwise(bounds)]
    return Plan((*map(Checkpoint, segments[:-1]), *segments[-1]), method)


def _kept(first: int, end: int) -> tuple[Node, ...]:
    return tuple(Keep(block) for block in range(first, end))
