"""Plans that need no search: keep everything, checkpoint every block, or cut at given places."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from sublinear.chain import Chain
from sublinear.nodes import Checkpoint, Node, kept
from sublinear.plan import Plan


def keep_all(chain: Chain) -> Plan:
    """Plain training: every block saves everything."""
    return Plan(kept(0, len(chain)), "none", chain)


def every_block(chain: Chain) -> Plan:
    """Every block is a checkpoint of its own: what many training scripts do."""
    nodes = []
    for keep in kept(0, len(chain)):
        nodes.append(Checkpoint((keep,)))
    return Plan(tuple(nodes), "every", chain)


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
