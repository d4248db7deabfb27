"""Run a model by a plan: nested ``torch.utils.checkpoint``, the same parameters, the same training.

Nested non-reentrant checkpoints need no scheduler: each runs again when its backward arrives, and
stops as soon as the last saved tensor is there.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial, wraps
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.utils.checkpoint import (
    checkpoint,
    create_selective_checkpoint_contexts,
    noop_context_fn,
)

from sublinear.blocks import Blocks, Keywords, State, is_plain_sequential
from sublinear.nodes import Checkpoint, Node, keeps, span
from sublinear.plan import Plan
from sublinear.repeatable import SpareStatistics, drawing_alike, norms, refuse
from sublinear.split import split

_aten = torch.ops.aten
# What takes long to compute again.
_LAYERS = [
    _aten.convolution.default,
    _aten.mm.default,
    _aten.addmm.default,
    _aten._trilinear.default,
    _aten.linear.default,
    _aten._scaled_dot_product_flash_attention.default,
    _aten._scaled_dot_product_efficient_attention.default,
    _aten._scaled_dot_product_flash_attention_for_cpu.default,
    _aten._scaled_dot_product_cudnn_attention.default,
]

# The ways to keep a block: option k of a plan is entry k.
MENU = ("save all", "save layers")

# What torch.compile(..., fullgraph=True) says of a planned model.
_NOT_COMPILED = (
    "torch.compile runs a planned model as it is: it would flatten nested checkpoints. Leave out "
    "fullgraph=True, or let fit(..., compile=True) compile the pieces"
)

Context = AbstractContextManager[object]


def keeping_layers() -> tuple[Context, Context]:
    """torch's contexts for a forward that keeps only what layers return, and for its rerun."""
    contexts: tuple[Context, Context] = create_selective_checkpoint_contexts(_LAYERS)
    return contexts


def checkpointed(
    run: Callable[..., State],
    state: State,
    contexts: Callable[[], tuple[Context, Context]] = noop_context_fn,
) -> State:
    """``run(*state)`` as a checkpoint.

    Tensors go in one by one: those in a tuple torch would hold itself, beside the checkpoint around
    it that holds them already.
    """
    leaves, spec = tree_flatten(state)

    def flat(*inner: Any) -> State:
        return run(*tree_unflatten(list(inner), spec))

    result: State = checkpoint(flat, *leaves, use_reentrant=False, context_fn=contexts)
    return result


def apply(
    model: nn.Module, plan: Plan, inputs: object = None, *, blocks: Blocks | None = None
) -> nn.Module:
    """``model`` as it trains under ``plan``: another view of the same object.

    It has all the model's attributes and parameters. In evaluation mode or without gradients it
    runs plain. ``inputs``: an example, a tensor or tuple; without them a model that is no
    Sequential is read at its first forward. ``blocks``: as `split` gave them, if they were not its
    defaults. Raises ValueError if the plan is for another number of blocks, or if `split` refuses
    the model.
    """
    if not isinstance(plan, Plan):
        raise TypeError(f"plan={plan!r} is not a Plan: make one with plan(chain, budget=...)")
    if blocks is None and (inputs is not None or is_plain_sequential(model)):
        blocks = split(model, inputs)
    if blocks is None:
        refuse(model)
    elif blocks.model is not model:
        raise ValueError("blocks= were read from another model: call split() on this one")
    runner = Runner(plan, model, blocks)
    return view_of(model, PlannedModel.forward, PlannedModel, runs_by=runner)


def view_of(
    model: nn.Module, forward: Callable[..., Any], *before: type, **attributes: object
) -> nn.Module:
    """Another view of a model, whose class has ``before`` in front and this ``forward``.

    The class has the name of the model's own, and forward its signature: libraries write the one
    into files, and choose by the other what they give.
    """
    kind = type(model)

    @wraps(kind.forward)
    def as_signed(self: Any, *args: Any, **kwargs: Any) -> Any:
        return forward(self, *args, **kwargs)

    body = {
        "forward": as_signed,
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        **attributes,
    }
    view: nn.Module = object.__new__(type(kind.__name__, (*before, kind), body))
    object.__setattr__(view, "__dict__", model.__dict__)
    return view


def _check(plan: Plan, blocks: Blocks) -> None:
    """Raise ValueError unless the plan fits the blocks, and its options do."""
    if len(plan) != len(blocks):
        raise ValueError(
            f"the plan is for {len(plan)} blocks, the model has {len(blocks)}: profile and plan "
            "this model"
        )
    for keep in keeps(plan.nodes):
        if not 0 <= keep.option < len(MENU):
            raise ValueError(f"{keep}: options go from 0 to {len(MENU) - 1}: {', '.join(MENU)}")
        if keep.option and blocks.overwrites(keep.block):
            raise ValueError(
                f"{keep}: {blocks.names[keep.block]} holds a recurrent layer, which overwrites "
                "what the option would keep: use option 0 or a checkpoint"
            )


class View:
    """What stands before a model's own class: a copy would go on to train the model itself."""

    def __reduce_ex__(self, protocol: object) -> str:
        raise TypeError(
            "a planned model cannot be pickled, nor copied where it was captured: copy the model, "
            "or save its state_dict(), and fit, or pickle its plan, and apply() again"
        )


class PlannedModel(View):
    """What `apply` puts before a model's own class: its forward follows a plan.

    It is the same object. All that is added is ``runs_by``, with the ``plan``, the ``blocks``, and
    the ``calls`` of each block so far.
    """

    runs_by: Runner

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """As the model's own forward."""
        original: Callable[..., Any] = super().forward  # type: ignore[misc]
        if not (self.training and torch.is_grad_enabled()):  # type: ignore[attr-defined]
            return original(*args, **kwargs)
        return self.runs_by.forward(original, args, kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> nn.Module:
        runner = self.runs_by
        return apply(copy.deepcopy(runner.model, memo), runner.plan)


class Runner:
    """Runs nodes of a plan, and knows in which pass over a block it is.

    The first forward of all is the one that counts for running statistics.
    """

    def __init__(self, plan: Plan, model: nn.Module, blocks: Blocks | None = None) -> None:
        self.local = _Pass()
        self.plan, self.model = plan, model
        self.unread, self.calls = True, list[int]()
        if blocks is not None:
            self._follow(blocks)

    def _follow(self, blocks: Blocks) -> None:
        """Raises ValueError where the plan is for others."""
        _check(self.plan, blocks)
        self.blocks, self.unread = blocks, False
        self.calls = [0] * len(blocks)
        self.modules = [tuple(blocks.modules(i)) for i in range(len(blocks))]
        self.statistics = [SpareStatistics(norms(modules)) for modules in self.modules]

    @torch.compiler.disable(reason=_NOT_COMPILED)
    def forward(self, original: Callable[..., Any], args: State, kwargs: Keywords) -> Any:
        """A forward by the plan. torch.compile leaves it as it is."""
        if self.unread:
            # Its blocks show in a run.
            self._follow(split(self.model, args, kwargs))
        if self.blocks.swapped():
            # They are put back before the backward pass, which would compute with the others.
            return original(*args, **kwargs)
        self.prepare()
        return self.blocks.around(self.outermost, original, args, kwargs)

    def prepare(self) -> None:
        """Before a forward. Raises RuntimeError if the model is not what the plan was made for."""
        self.blocks.check_unchanged()
        for statistics in self.statistics:
            statistics.prepare()

    def run(self, nodes: tuple[Node, ...], state: State) -> State:
        for node in nodes:
            if isinstance(node, Checkpoint):
                state = self._again(node, partial(self.run, node.inside), state)
                continue
            self.calls[node.block] += 1
            block = partial(self.block, node.block)
            if node.option and node.block + 1 < len(self.blocks):
                # What runs again then counts as a part of the backward.
                state = self._again(node, block, state, keeping_layers)
            else:
                state = block(state)
        return state

    def outermost(self, *state: Any) -> State:
        """All nodes of the plan."""
        return self.run(self.plan.nodes, state)

    def block(self, i: int, state: State) -> State:
        """One block, which leaves its running statistics alone if it runs again."""
        if not self.local.again:
            return self.blocks.run(i, *state)
        with self.statistics[i].swapped_in():
            return self.blocks.run(i, *state)

    def _again(
        self,
        node: Node,
        run: Callable[[State], State],
        state: State,
        contexts: Callable[[], tuple[Context, Context]] = noop_context_fn,
    ) -> State:
        """``run``, which runs once more when the backward arrives."""
        passes = 0
        check = self.same_parameters(node)

        def segment(*inner: Any) -> State:
            nonlocal passes
            passes += 1
            check()
            before = self.local.again
            self.local.again = before or passes > 1
            try:
                return run(inner)
            finally:
                self.local.again = before

        return checkpointed(drawing_alike(segment), state, contexts)

    def same_parameters(self, node: Node) -> Callable[[], None]:
        """A check that the blocks of a node find the parameters that they find now."""
        modules = [module for i in span(node) for module in self.modules[i]]
        before = [(module, *entry) for module in modules for entry in module._parameters.items()]

        def check() -> None:
            for module, name, was in before:
                if module._parameters.get(name) is not was:
                    raise RuntimeError(
                        f"the {name} of a {type(module).__name__} was another one in the forward "
                        "pass: leave parameters in place until the backward pass is done"
                    )

        return check


class _Pass(threading.local):
    """Whether blocks run again."""

    again = False
