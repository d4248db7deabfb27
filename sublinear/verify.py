"""Does a planned model train exactly as the plain one? Three steps of both, compared bit by bit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from labkit.preserve import preserve_flags, rng_state, set_rng_state
from sublinear.apply import MENU, PlannedModel, apply
from sublinear.blocks import Blocks
from sublinear.chain import Block, Chain, Option
from sublinear.cost import simulate
from sublinear.plan import Checkpoint, Node, Plan
from sublinear.profile import Loss, Training, restored, training

STEPS = 3
CLOSE = 2e-2  # of the largest value: three steps in bfloat16, whose own steps are 2**-8


@dataclass(frozen=True)
class Verification:
    """What `verify` found. ``differences``: in words, empty if there are none; ``close``: compared within a tolerance.

    ``counted`` and ``expected``: forwards of each block in one step.
    """

    differences: tuple[str, ...]
    close: bool
    counted: tuple[int, ...]
    expected: tuple[int, ...]

    @property
    def passed(self) -> bool:
        """Whether both models did the same, and blocks ran as often as predicted."""
        return not self.differences

    def __str__(self) -> str:
        how = "within rounding" if self.close else "bit by bit"
        if self.passed:
            return (
                f"the same {how} over {STEPS} steps: loss, gradients, parameters, buffers, random state; "
                f"{sum(self.counted)} block forwards a step, as predicted, of {len(self.counted)} blocks"
            )
        shown = [f"  {line}" for line in self.differences[:10]]
        more = len(self.differences) - len(shown)
        return "\n".join(
            [f"NOT the same ({how}):", *shown, *([f"  and {more} more"] if more else [])]
        )


def verify(
    model: nn.Module,
    plan: Plan,
    inputs: Any,
    kwargs: dict[str, Any] | None = None,
    *,
    loss: Loss | None = None,
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer] | None = None,
    blocks: Blocks | None = None,
    close: bool = False,
) -> Verification:
    """Train the plain and the planned model three steps each from the same state, and say what differs.

    ``optimizer`` makes one from parameters (SGD with momentum by default). Compared are loss, gradients, parameters,
    buffers and random generators, bitwise under deterministic algorithms in full fp32; with ``close=True``, for TF32
    and autocast, torch's switches stay as they are and differences of up to 2 % of the largest value pass. The model,
    its gradients, the generators and the switches are given back. A mismatch is reported, not raised.
    """
    task = training(inputs, kwargs, loss)
    make = optimizer or (lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9))
    planned = apply(model, plan, task.args, blocks=blocks)
    assert isinstance(planned, PlannedModel)
    runner = planned.runs_by
    differences: list[str] = []
    with preserve_flags(), restored(model, None):
        if not close:
            torch.use_deterministic_algorithms(True, warn_only=True)
            torch.backends.cudnn.benchmark = False
            torch.set_float32_matmul_precision("highest")
            torch.backends.cudnn.allow_tf32 = False
        model.train()
        begin = rng_state()
        values = [tensor.detach().clone() for tensor in _tensors(model)]
        wanted = _train(model, task, make)
        with torch.no_grad():
            for tensor, value in zip(_tensors(model), values, strict=True):
                tensor.copy_(value)
        set_rng_state(begin)
        before = list(runner.calls)
        try:
            found = _train(planned, task, make)
        except RuntimeError as error:  # torch's own check of what was computed again, say
            differences.append(
                f"the planned model raised {type(error).__name__}: {str(error).splitlines()[0]}"
            )
            found = {}
        runs = [after - first for first, after in zip(before, runner.calls, strict=True)]
    if found:
        differences += [
            line for key in wanted if (line := _difference(key, wanted[key], found[key], close))
        ]
    counted = tuple(number // STEPS for number in runs)
    expected = simulate(_blank(len(counted)), plan).block_forwards
    spared = _may_stop_early(plan.nodes, [0] * len(counted))
    for i, (have, want) in enumerate(zip(counted, expected, strict=True)):
        if found and not want - spared[i] <= have <= want:
            differences.append(
                f"block {i} ({runner.blocks.names[i]}) ran {have} times a step, predicted were {want}"
            )
    return Verification(tuple(differences), close, counted, expected)


def _tensors(model: nn.Module) -> list[torch.Tensor]:
    return [*model.parameters(), *model.buffers()]


def _train(
    model: Any, task: Training, make: Callable[..., torch.optim.Optimizer]
) -> dict[str, Any]:
    """Copies of all that three steps leave behind, by a name that says what it is."""
    trainer = make(parameter for parameter in model.parameters() if parameter.requires_grad)
    seen: dict[str, Any] = {}
    for step in range(1, STEPS + 1):
        output = model(*task.args, **task.kwargs)
        value = task.loss(output)
        value.backward()
        seen[f"loss of step {step}"] = value.detach().cpu()
        for name, parameter in model.named_parameters():
            grad = parameter.grad
            seen[f"gradient of {name} in step {step}"] = (
                None if grad is None else grad.detach().to("cpu", copy=True)
            )
        trainer.step()
        trainer.zero_grad(set_to_none=True)
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        seen[f"{name} after step {STEPS}"] = tensor.detach().to("cpu", copy=True)
    for kind, state in rng_state().items():
        seen[f"random state of {kind}"] = state
    return seen


def _difference(key: str, want: Any, have: Any, close: bool) -> str | None:
    wanted, found = tree_leaves(want), tree_leaves(have)
    if len(wanted) != len(found):
        return f"{key}: missing in one of the two"
    for one, two in zip(wanted, found, strict=True):
        if not torch.is_tensor(one):
            if not np.array_equal(one, two):
                return f"{key}: differs"
        elif one.shape != two.shape or one.dtype != two.dtype:
            return f"{key}: another shape or type"
        elif not torch.equal(one.nan_to_num(), two.nan_to_num()):
            if not one.is_floating_point():
                return f"{key}: differs"
            gap, size = (
                float((one.double() - two.double()).abs().max()),
                float(one.double().abs().max()),
            )
            if not (close and gap <= CLOSE * size):
                return f"{key}: differs by {gap:.3g}, of values up to {size:.3g}"
    return None


def _blank(count: int) -> Chain:
    options = tuple(Option(name, 0, 0.0, 0.0, 0, 0) for name, _ in MENU)
    return Chain(
        tuple(Block(str(i), 0, options, 0, 0, 0.0) for i in range(count)),
        0,
        0,
        1,
        "none",
        "estimated",
    )


def _may_stop_early(nodes: tuple[Node, ...], spared: list[int]) -> list[int]:
    """How often torch may end a recomputation before a block: where it is a segment's last and saves nothing."""
    for node in nodes:
        if isinstance(node, Checkpoint):
            last: Node = node
            while isinstance(last, Checkpoint):
                last = last.inside[-1]
            spared[last.block] += 1
            _may_stop_early(node.inside, spared)
    return spared
