"""What checkpoints send to the CPU's memory, and what of it that frees on the device.

A checkpoint holds what crosses its beginning. What the model was given, what crosses its end as
well, and what an earlier checkpoint holds stays on the device anyway, and is not sent. What a kept
block has saved is sent all the same, since only a profile knows of it: that frees nothing, and what
comes back is a second copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sublinear.chain import Block, Chain
from sublinear.nodes import Keep, Node, offloaded, span


@dataclass(frozen=True)
class Sent:
    """What one checkpoint sends: ``size`` bytes.

    ``holders``: those that this frees, by the first and the last block of the node that has made
    them and accounts for them; ``waiting``: those that only this checkpoint accounts for, see
    `Chain.waiting`; ``copies``: the others, which are on the device twice when they have come back.
    """

    size: int
    holders: Mapping[tuple[int, int], int]
    waiting: int
    copies: int

    @property
    def freed(self) -> int:
        """Bytes of all holders."""
        return sum(self.holders.values())


def sent_by(chain: Chain, nodes: Sequence[Node]) -> dict[int, Sent]:
    """What each checkpoint that sends anything sends, by its first block."""
    found: dict[int, Sent] = {}
    if not any(offloaded(nodes)):
        return found
    # Storages that are there throughout, and those that kept blocks save.
    stays, saved = set(chain.cuts[0]), set[object]()
    makers: dict[object, tuple[int, int]] = {}
    for node in nodes:
        first, last = span(node)[0], span(node)[-1]
        before, behind = chain.cuts[first], chain.cuts[last + 1]
        if isinstance(node, Keep):
            saved |= _saved(chain, chain.blocks[node.block], node)
            if node.option:
                # It runs again, and so holds what it reads.
                stays |= before.keys()
        elif node.offload:
            goes = {number: before[number] for number in before.keys() - behind.keys() - stays}
            found[first] = _sent(chain, first, goes, saved, makers)
            stays |= before.keys() - goes.keys()
        else:
            stays |= before.keys()
        for number in behind:
            makers.setdefault(number, (first, last))
    return found


def _saved(chain: Chain, block: Block, keep: Keep) -> set[object]:
    """What a kept block may save of what crosses before and behind it."""
    if keep.option or block.saves is None:
        return {*chain.cuts[keep.block], *chain.cuts[keep.block + 1]}
    return set(block.saves)


def _sent(
    chain: Chain,
    first: int,
    goes: Mapping[object, int],
    saved: set[object],
    makers: Mapping[object, tuple[int, int]],
) -> Sent:
    waits: tuple[object, ...] = chain.blocks[first - 1].waits if first else ()
    holders: dict[tuple[int, int], int] = {}
    copies = 0
    for number, size in goes.items():
        if number in waits:
            continue
        if number in saved:
            copies += size
        else:
            holder = makers[number]
            holders[holder] = holders.get(holder, 0) + size
    return Sent(sum(goes.values()), holders, chain.waiting(first), copies)
