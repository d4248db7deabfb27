"""Run a model by a plan: nested ``torch.utils.checkpoint``, the same parameters, the same training."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from sublinear.blocks import Blocks, State, split
from sublinear.plan import Checkpoint, Keep, Node, Plan, keeps
from sublinear.repeatable import SpareStatistics, norms

_aten = torch.ops.aten
_LAYERS = {_aten.convolution, _aten.mm, _aten.addmm, _aten._trilinear, _aten.linear}
_PRODUCTS = {_aten.bmm, _aten.baddbmm}
_ATTENTION = {
    *(_aten._scaled_dot_product_flash_attention, _aten._scaled_dot_product_efficient_attention),
    *(_aten._scaled_dot_product_flash_attention_for_cpu, _aten._scaled_dot_product_cudnn_attention),
}

# The ways to keep a block, by number: option k of a plan is entry k. Operators named are kept, others computed again.
MENU: tuple[tuple[str, frozenset[Any]], ...] = (
    ("save all", frozenset()),
    ("save layers", frozenset(_LAYERS | _ATTENTION)),
    ("save layers and products", frozenset(_LAYERS | _ATTENTION | _PRODUCTS)),
)


_OVERWRITING = (
    nn.RNNBase,
    nn.RNNCellBase,
)  # their gates are activated in place, unseen by torch's own check


def keep_only(option: int) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """torch's contexts for a forward that keeps what option ``option`` of the menu names, and for its recomputation."""
    kept = MENU[option][1]

    def policy(context: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        wanted = getattr(operator, "_overloadpacket", operator) in kept
        return CheckpointPolicy.MUST_SAVE if wanted else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def apply(
    model: nn.Module, plan: Plan, inputs: Any = None, *, blocks: Blocks | None = None
) -> nn.Module:
    """``model`` as it trains under ``plan``: another view of the same object, with all its attributes and parameters.

    In evaluation mode or without gradients it runs plain. ``inputs`` (an example, a tensor or tuple) are needed only
    where the model has to be wrapped module by module; ``blocks``: as `split` gave them, if they were not its defaults.
    Raises ValueError if the plan is for another number of blocks, or if `split` refuses the model.
    """
    if not isinstance(plan, Plan):
        raise TypeError(
            f"plan={plan!r} is not a Plan: make one with plan(chain, budget=...) or Plan.from_json(file)"
        )
    blocks = split(model, inputs) if blocks is None else blocks
    if blocks.model is not model:
        raise ValueError("blocks= were read from another model: call split() on this one")
    chosen = list(keeps(plan.nodes))
    if len(chosen) != len(blocks):
        raise ValueError(
            f"the plan is for {len(chosen)} blocks, the model has {len(blocks)}: profile and plan this model"
        )
    if unknown := [keep for keep in chosen if keep.option >= len(MENU)]:
        raise ValueError(
            f"{unknown[0]}: options go from 0 to {len(MENU) - 1}: {', '.join(name for name, _ in MENU)}"
        )
    for keep in chosen:
        recurrent = [
            module for module in blocks.modules(keep.block) if isinstance(module, _OVERWRITING)
        ]
        if keep.option and recurrent:
            raise ValueError(
                f"{keep}: {blocks.names[keep.block]} holds a {type(recurrent[0]).__name__}, which overwrites what the "
                "option would keep: use option 0 or a checkpoint"
            )
    kind = type(model)
    body = {"runs_by": _Runner(plan, blocks), "__module__": kind.__module__}
    planned: Any = object.__new__(type(f"Planned{kind.__name__}", (PlannedModel, kind), body))
    object.__setattr__(planned, "__dict__", model.__dict__)
    return planned


class PlannedModel:
    """What `apply` puts before a model's own class: the same object, but its forward follows a plan.

    All that it adds is ``runs_by``, with the ``plan``, the ``blocks``, and the ``calls`` of each block so far.
    """

    runs_by: _Runner

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """As the model's own forward."""
        original: Callable[..., Any] = super().forward  # type: ignore[misc]
        if not (self.training and torch.is_grad_enabled()):  # type: ignore[attr-defined]
            return original(*args, **kwargs)
        runner = self.runs_by
        runner.prepare()
        if runner.blocks.kind == "wrapped":
            with runner.blocks.standing_in(runner.stand_in):
                return original(*args, **kwargs)
        return runner.run(runner.plan.nodes, runner.blocks.enter(args, kwargs))[0]

    def __deepcopy__(self, memo: dict[int, Any]) -> nn.Module:
        runner = self.runs_by
        if runner.blocks.kind == "wrapped":
            raise TypeError(
                "a planned model that was wrapped cannot be copied: copy the model, and apply() the plan to it"
            )
        return apply(copy.deepcopy(runner.blocks.model, memo), runner.plan)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            "a planned model cannot be pickled: save its state_dict() and plan.to_json(), and apply() again"
        )


class _Runner:
    """Runs nodes of a plan, and knows in which pass over a block it is.

    The first forward of all is the one that counts for running statistics. Selective options cache only in the pass
    that their block's backward follows: torch creates nested checkpoints anew in each pass, and a cache filled in the
    first one would be held through the whole step.
    """

    def __init__(self, plan: Plan, blocks: Blocks) -> None:
        self.plan, self.blocks = plan, blocks
        self.calls = [0] * len(blocks)
        self.statistics = [SpareStatistics(norms(blocks.modules(i))) for i in range(len(blocks))]
        self.caches: dict[
            int, AbstractContextManager[Any]
        ] = {}  # of a selective block, between its last two passes
        self.local = _Pass()

    def prepare(self) -> None:
        """Before a forward: raises RuntimeError if the model is not in the mode in which it was planned."""
        self.blocks.check_mode()
        self.caches.clear()  # of a backward pass that was interrupted
        for statistics in self.statistics:
            statistics.prepare()

    def run(self, nodes: tuple[Node, ...], state: State) -> State:
        for node in nodes:
            if isinstance(node, Checkpoint):
                state = self._segment(node, state)
            elif node.option:
                state = self._selective(node, state)
            else:
                state = self._block(node.block, state)
        return state

    def _block(self, i: int, state: State) -> State:
        self.calls[i] += 1
        with self.statistics[i].swapped_in() if self.local.again else nullcontext():
            return self.blocks.run(i, *state)

    def _segment(self, node: Checkpoint, state: State) -> State:
        passes = 0

        def segment(*inner: Any) -> State:
            nonlocal passes
            passes += 1
            with self.local.set(again=self.local.again or passes > 1, saving=passes > 1):
                return self.run(node.inside, inner)

        return checkpoint(segment, *state, use_reentrant=False)

    def _selective(self, node: Keep, state: State) -> State:
        i, passes = node.block, 0
        handed_on: AbstractContextManager[Any] | None = None

        def block(*inner: Any) -> State:
            nonlocal passes
            passes += 1
            if passes == 1:
                result = self._block(i, inner)
                if handed_on is not None:
                    self.caches[i] = handed_on
                return result
            with self.local.set(again=True, saving=True):
                self.calls[i] -= 1  # counts as part of the backward
                return self._block(i, inner)

        def cache() -> AbstractContextManager[Any]:
            if i in self.caches:
                return self.caches.pop(i)
            self.calls[i] += (
                1  # the last block of a segment, before which torch stops early: nothing was kept
            )
            return nullcontext()

        def contexts() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
            nonlocal handed_on
            if not self.local.saving:
                return nullcontext(), _Later(cache)
            caching, cached = keep_only(node.option)
            if not self.local.again:
                return caching, cached
            handed_on = cached  # the pass before has built the graph whose backward asks for it
            return caching, nullcontext()

        return checkpoint(block, *state, use_reentrant=False, context_fn=contexts)

    def stand_in(self, x: torch.Tensor, **extras: Any) -> torch.Tensor:
        """What all wrapped modules do, called as the first of them is."""
        state = self.run(self.plan.nodes, (x, *(extras[key] for key in self.blocks.extras)))
        return state[0]  # type: ignore[no-any-return]


class _Pass(threading.local):
    """Whether blocks run again, and whether their backward follows this pass."""

    again = False
    saving = True

    @contextmanager
    def set(self, *, again: bool, saving: bool) -> Iterator[None]:
        before = self.again, self.saving
        self.again, self.saving = again, saving
        try:
            yield
        finally:
            self.again, self.saving = before


class _Later:
    """A context that is made when it is entered."""

    def __init__(self, make: Callable[[], AbstractContextManager[Any]]) -> None:
        self.make = make

    def __enter__(self) -> Any:
        self.context = self.make()
        return self.context.__enter__()

    def __exit__(self, *exc_info: Any) -> bool | None:
        return self.context.__exit__(*exc_info)
