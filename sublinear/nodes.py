"""What a plan is made of: blocks that are kept, and checkpoints, nested to any depth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Keep:
    """Run a block with one of its options, by number; 0 saves everything."""

    block: int
    option: int = 0


@dataclass(frozen=True)
class Checkpoint:
    """Keep only the input of a segment; on the way back run it again, by the plan inside.

    Inside, a kept block saves everything: torch makes nested checkpoints anew in each pass, and an
    option's cache would have to be handed from one to the next, for a hundredth or two of the time.
    """

    inside: tuple[Keep | Checkpoint, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "inside", checked(self.inside, "Checkpoint"))
        for node in self.inside:
            if isinstance(node, Keep) and node.option:
                raise ValueError(f"Checkpoint: {node} in it: there a block saves everything, 0")


Node = Keep | Checkpoint


def checked(nodes: Iterable[Node], owner: str) -> tuple[Node, ...]:
    """``nodes`` as a tuple. Raises ValueError if there are none."""
    found = tuple(nodes)
    if not found:
        raise ValueError(f"{owner}: no nodes; it holds at least one block")
    return found


def kept(first: int, end: int) -> tuple[Keep, ...]:
    """Blocks ``first`` to ``end`` - 1, each saving everything."""
    return tuple(map(Keep, range(first, end)))


def keeps(nodes: Iterable[Node]) -> Iterator[Keep]:
    """Every `Keep` under these nodes, in order."""
    for node in nodes:
        if isinstance(node, Keep):
            yield node
        else:
            yield from keeps(node.inside)


def span(node: Node) -> range:
    """The blocks under a node."""
    first = last = node
    while isinstance(first, Checkpoint):
        first = first.inside[0]
    while isinstance(last, Checkpoint):
        last = last.inside[-1]
    return range(first.block, last.block + 1)


def depth(node: Node) -> int:
    """How many checkpoints are nested at most; 0 for a kept block."""
    if isinstance(node, Keep):
        return 0
    return 1 + max(map(depth, node.inside))


def as_text(node: Node) -> str:
    """Parentheses for checkpoints, ``4`` for block 4, ``4/1`` for block 4 with its option 1."""
    if isinstance(node, Checkpoint):
        return f"({' '.join(map(as_text, node.inside))})"
    if node.option:
        return f"{node.block}/{node.option}"
    return str(node.block)
