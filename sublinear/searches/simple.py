"""Plans that need no search: keep everything, or checkpoint every block."""

from __future__ import annotations

from sublinear.chain import Chain
from sublinear.nodes import Checkpoint, kept
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
