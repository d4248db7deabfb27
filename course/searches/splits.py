"""Plans of one level, from the places where a chain is cut."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from sublinear.chain import Chain
from sublinear.nodes import Checkpoint, Node, kept
from sublinear.plan import Plan


def from_splits(chain: Chain, splits: Sequence[int], method: str) -> Plan:
    """The plan of one level that cuts ``chain`` before each block in ``splits`` (ascending).

    Each segment but the last is a checkpoint. The last is kept: its backward comes next, so
    dropping it saves nothing.
    """
    bounds = [0, *splits]
    nodes: list[Node] = []
    for first, end in pairwise(bounds):
        nodes.append(Checkpoint(kept(first, end)))
    nodes += kept(bounds[-1], len(chain))
    return Plan(tuple(nodes), method, chain)
