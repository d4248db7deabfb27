"""Plans that need no search: keep everything, checkpoint every block, or cut at given places."""

from __future__ import annotations

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


def from_splits(splits: Sequence[int], count: int, method: str) -> Plan:
    """The plan of one level that cuts ``count`` blocks before each block in ``splits`` (ascending).

    Each segment but the last is a checkpoint. The last is kept: its backward comes next, so dropping it saves nothing.
    """
    bounds = [0, *splits, count]
    segments = [_kept(first, end) for first, end in pairwise(bounds)]
    return Plan((*map(Checkpoint, segments[:-1]), *segments[-1]), method)


def _kept(first: int, end: int) -> tuple[Node, ...]:
    return tuple(Keep(block) for block in range(first, end))
