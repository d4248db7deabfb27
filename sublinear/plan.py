"""A plan: which blocks keep their activations, and which segments are checkpointed, nested to any depth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sublinear.chain import Chain, load, store


@dataclass(frozen=True)
class Keep:
    """Run a block with one of its options, by number; 0 saves everything."""

    block: int
    option: int = 0

    def __post_init__(self) -> None:
        for field, value in (("block", self.block), ("option", self.option)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ValueError(f"Keep({field}={value!r}): it is a whole number, 0 or more")


@dataclass(frozen=True)
class Checkpoint:
    """Keep only the input of a segment; on the way back run it again, by the plan inside."""

    inside: tuple[Keep | Checkpoint, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "inside", _nodes(self.inside, "Checkpoint"))


Node = Keep | Checkpoint


@dataclass(frozen=True)
class Plan:
    """A sequence of nodes that covers every block once, in order, and the method that found it.

    Printed, parentheses are checkpoints and ``4/1`` is block 4 with its option 1: ``[0 1 (2 3) (4/1 (5 6)) 7]``.
    """

    nodes: tuple[Keep | Checkpoint, ...]
    method: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", _nodes(self.nodes, "Plan"))
        blocks = [keep.block for keep in keeps(self.nodes)]
        for place, block in enumerate(blocks):
            if block != place:
                raise ValueError(
                    f"Plan: block {block} stands where block {place} should: each runs once, in order"
                )

    def __len__(self) -> int:
        return sum(1 for _ in keeps(self.nodes))

    def __str__(self) -> str:
        return f"[{' '.join(map(_draw, self.nodes))}]"

    @property
    def depth(self) -> int:
        """How many checkpoints are nested at most; 0 where nothing is checkpointed."""
        return max(map(_depth, self.nodes))

    def check(self, chain: Chain) -> None:
        """Raise ValueError unless this is a plan for ``chain``: as many blocks, and only options that they have."""
        if len(self) != len(chain.blocks):
            raise ValueError(
                f"the plan is for {len(self)} blocks, the chain has {len(chain.blocks)}"
            )
        for keep in keeps(self.nodes):
            if keep.option >= len(options := chain.blocks[keep.block].options):
                names = ", ".join(
                    f"{number} {option.name!r}" for number, option in enumerate(options)
                )
                raise ValueError(
                    f"the plan uses option {keep.option} of block {keep.block} "
                    f"({chain.blocks[keep.block].name!r}), which has {names}"
                )

    def to_json(self, path: str | Path | None = None) -> dict[str, Any]:
        """A plain dictionary, also written to ``path`` if there is one: a checkpoint is a list, a
        block its number, or an object of "block" and "option" where the option is not 0."""
        return store({"method": self.method, "nodes": [_pack(node) for node in self.nodes]}, path)

    @classmethod
    def from_json(cls, source: dict[str, Any] | str | Path) -> Plan:
        """The plan in a dictionary or file that `to_json` made. Raises ValueError for anything else."""
        data = load(source)
        if not isinstance(data.get("nodes"), list) or not isinstance(data.get("method"), str):
            raise ValueError(
                "not a plan as to_json writes it: it has the keys 'method' (text) and 'nodes' (a list)"
            )
        return cls(tuple(map(_unpack, data["nodes"])), data["method"])


def keeps(nodes: tuple[Node, ...]) -> Iterator[Keep]:
    """Every `Keep` under these nodes, in order."""
    for node in nodes:
        if isinstance(node, Keep):
            yield node
        else:
            yield from keeps(node.inside)


def span(node: Node) -> range:
    """The blocks under a node of a plan."""
    first = last = node
    while isinstance(first, Checkpoint):
        first = first.inside[0]
    while isinstance(last, Checkpoint):
        last = last.inside[-1]
    return range(first.block, last.block + 1)


def _nodes(nodes: Any, owner: str) -> tuple[Node, ...]:
    nodes = tuple(nodes)
    if not nodes:
        raise ValueError(f"{owner}: no nodes; it holds at least one block")
    for node in nodes:
        if not isinstance(node, (Keep, Checkpoint)):
            raise TypeError(
                f"{owner}: {node!r} is a {type(node).__name__}; nodes are Keep or Checkpoint"
            )
    return nodes


def _draw(node: Node) -> str:
    if isinstance(node, Checkpoint):
        return f"({' '.join(map(_draw, node.inside))})"
    return f"{node.block}/{node.option}" if node.option else str(node.block)


def _depth(node: Node) -> int:
    return 1 + max(map(_depth, node.inside)) if isinstance(node, Checkpoint) else 0


def _pack(node: Node) -> Any:
    if isinstance(node, Checkpoint):
        return [_pack(inner) for inner in node.inside]
    return {"block": node.block, "option": node.option} if node.option else node.block


def _unpack(node: Any) -> Node:
    if isinstance(node, list):
        return Checkpoint(tuple(map(_unpack, node)))
    if isinstance(node, dict) and set(node) == {"block", "option"}:
        return Keep(node["block"], node["option"])
    if isinstance(node, int):
        return Keep(node)
    raise ValueError(
        f"{node!r} in a plan: use a block's number, an object of 'block' and 'option', or a list"
    )
