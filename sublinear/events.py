"""What happens in one step of a plan, event by event: the one order that all accounts follow.

`sublinear.cost` adds up bytes and seconds along it, the figures draw what is held from which event
to which, and `sublinear.verify` counts forwards. Nested checkpoints need no scheduler: torch runs
a checkpoint's blocks again when its backward arrives, by the plan inside, and so on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sublinear.nodes import Checkpoint, Keep, Node, span

# The kinds of events that run a block.
RUNS = ("forward", "bare", "backward")


class Event(NamedTuple):
    """One event, by ``kind``. The first three run a block; the others only change what is held.

    ``forward``: the block runs and saves what ``option`` names, until its backward.
    ``bare``: it runs without saving, in a checkpoint that begins with block ``first``. Its output
    takes the place of the output of the block before, if that is in the checkpoint.
    ``backward``: its backward runs; what its forward saved with ``option`` is let go.
    ``drop``: the output of the checkpoint of ``first`` to ``block`` is let go, for its backward.
    ``rerun``: the checkpoint of ``first`` to ``block`` begins to run again, beside the gradient of
    the block's output, until ``rerun over``. ``over``: its backward is done.
    ``opens``, ``last``: the first and the last block of a checkpoint that runs again; the backward
    of the last one follows at once.
    ``loss``, ``end``: the forward or the backward has reached the end of the chain.
    """

    kind: str
    block: int
    option: int = 0
    first: int = 0
    opens: bool = False
    last: bool = False


def events(nodes: Sequence[Node]) -> Iterator[Event]:
    """The events of a step of a plan with these nodes, in order."""
    yield from _forward(nodes)
    yield Event("loss", span(nodes[-1])[-1])
    yield from _backward(nodes)
    yield Event("end", 0)


def as_rerun(inside: Sequence[Node]) -> tuple[Node, ...]:
    """The nodes that torch really runs of a checkpoint, which ends as soon as it has all it saves.

    Its last node is followed by its own backward at once. A checkpoint there only needs its input,
    so it is the same as its nodes in its place. That torch may leave out less than a block is
    ignored.
    """
    *before, last = inside
    if isinstance(last, Checkpoint):
        return (*before, *as_rerun(last.inside))
    return tuple(inside)


def _forward(nodes: Sequence[Node], again: bool = False) -> Iterator[Event]:
    for node in nodes:
        if isinstance(node, Keep):
            opens, last = again and node is nodes[0], again and node is nodes[-1]
            yield Event("forward", node.block, node.option, opens=opens, last=last)
        else:
            blocks = span(node)
            for block in blocks:
                yield Event("bare", block, first=blocks[0])


def _backward(nodes: Sequence[Node], again: bool = False) -> Iterator[Event]:
    for node in reversed(nodes):
        if isinstance(node, Keep):
            opens, last = again and node is nodes[0], again and node is nodes[-1]
            yield Event("backward", node.block, node.option, opens=opens, last=last)
        else:
            blocks = span(node)
            inside = as_rerun(node.inside)
            yield Event("drop", blocks[-1], first=blocks[0])
            yield Event("rerun", blocks[-1], first=blocks[0])
            yield from _forward(inside, again=True)
            yield Event("rerun over", blocks[-1])
            yield from _backward(inside, again=True)
            yield Event("over", blocks[0])
