"""A plan: which blocks keep their activations, and which segments are checkpointed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

from sublinear.chain import Chain
from sublinear.cost import Costs, account
from sublinear.nodes import Checkpoint, Keep, as_text, checked, depth, keeps, kept

__all__ = ["Checkpoint", "Keep", "Plan", "simulate"]


@dataclass(frozen=True)
class Plan:
    """A sequence of nodes that covers every block once, in order, and the method that found it.

    ``chain``: what the plan was made for, if that is known: then `costs` says what it costs. Two
    plans are equal whatever their chains.
    Printed, parentheses are checkpoints and ``4/1`` is block 4 with its option 1:
    ``[0 1 (2 3) 4/1 (5 (6 7)) 8]``.
    """

    nodes: tuple[Keep | Checkpoint, ...]
    method: str
    chain: Chain | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", checked(self.nodes, "Plan"))
        for place, keep in enumerate(keeps(self.nodes)):
            if keep.block != place:
                raise ValueError(
                    f"Plan: block {keep.block} stands where block {place} should: "
                    "each runs once, in order"
                )
        if self.chain is not None:
            self.check(self.chain)

    def __len__(self) -> int:
        return sum(1 for _ in keeps(self.nodes))

    def __str__(self) -> str:
        return f"[{' '.join(map(as_text, self.nodes))}]"

    @property
    def depth(self) -> int:
        """How many checkpoints are nested at most; 0 where nothing is checkpointed."""
        return max(map(depth, self.nodes))

    @property
    def known_chain(self) -> Chain:
        """`chain`. Raises ValueError for a plan that was made without one."""
        if self.chain is None:
            raise ValueError(
                f"the plan {self} knows no chain, and so not what it costs: "
                "make it with Plan(nodes, method, chain), or use simulate(chain, plan)"
            )
        return self.chain

    @cached_property
    def costs(self) -> Costs:
        """Peak and time of a step, and its events. Raises ValueError for a plan without a chain."""
        return simulate(self.known_chain, self)

    def named(self, method: str) -> Plan:
        """The same plan as another method's."""
        return replace(self, method=method)

    def check(self, chain: Chain) -> None:
        """Raise ValueError unless this is a plan for ``chain``.

        It is for as many blocks as the chain has, and uses only options that they have.
        """
        if len(self) != len(chain.blocks):
            raise ValueError(
                f"the plan is for {len(self)} blocks, the chain has {len(chain.blocks)}"
            )
        for keep in keeps(self.nodes):
            block = chain.blocks[keep.block]
            if not 0 <= keep.option < len(block.options):
                has = [f"{number} {option.name!r}" for number, option in enumerate(block.options)]
                raise ValueError(
                    f"the plan uses option {keep.option} of block {keep.block} "
                    f"({block.name!r}), which has {', '.join(has)}"
                )


def simulate(chain: Chain, plan: Plan) -> Costs:
    """Peak and time of one step of ``plan``. ValueError where it does not fit the chain."""
    if plan.chain is not chain:
        plan.check(chain)
    return account(chain, plan.nodes, nested=plan.depth > 0)


def keep_all(chain: Chain) -> Plan:
    """Plain training: every block saves everything."""
    return Plan(kept(0, len(chain)), "none", chain)


def every_block(chain: Chain) -> Plan:
    """Every block is a checkpoint of its own: what many training scripts do."""
    nodes = []
    for keep in kept(0, len(chain)):
        nodes.append(Checkpoint((keep,)))
    return Plan(tuple(nodes), "every", chain)
