"""A plan: which blocks keep their activations, and which segments are checkpointed, nested to any depth."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Keep:
    """Run a block with one of its options, by number; 0 saves everything."""

    block: int
    option: int = 0


@dataclass(frozen=True)
class Checkpoint:
    """Keep only the input of a segment; on the way back run it again, by the plan inside."""

    inside: tuple[Keep | Checkpoint, ...]


@dataclass(frozen=True)
class Plan:
    """A sequence of nodes that covers every block once, in order, and the method that found it."""

    nodes: tuple[Keep | Checkpoint, ...]
    method: str
