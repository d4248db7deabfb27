"""Does a planned model train exactly as the plain one? Steps of both, compared bit by bit."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map_only

from labkit.comparing import measuring
from labkit.restore.generators import rng_state
from sublinear.apply import PlannedModel, apply
from sublinear.blocks import Blocks
from sublinear.equal import Seen, copied, differences
from sublinear.events import events
from sublinear.plan import Plan
from sublinear.profiling import Inputs, Loss, Training, restored, training
from sublinear.split import split

STEPS = 3


@dataclass(frozen=True)
class Verification:
    """What `verify` found.

    ``differences``: in words, empty if there are none. ``counted`` and ``expected``: forwards of
    each block in one step.
    """

    differences: tuple[str, ...]
    counted: tuple[int, ...]
    expected: tuple[int, ...]

    @property
    def passed(self) -> bool:
        """Whether both models did the same, and blocks ran as often as predicted."""
        return not self.differences

    def __str__(self) -> str:
        if self.passed:
            return (
                f"the same bit by bit over {STEPS} steps: loss, gradients, parameters, "
                f"buffers, random state; {sum(self.counted)} block forwards a step, as predicted, "
                f"of {len(self.counted)} blocks"
            )
        lines = ["NOT the same (bit by bit):"]
        for difference in self.differences[:10]:
            lines.append(f"  {difference}")
        more = len(self.differences) - 10
        if more > 0:
            lines.append(f"  and {more} more")
        return "\n".join(lines)


def verify(
    model: nn.Module,
    plan: Plan,
    inputs: Inputs,
    *,
    loss: Loss | None = None,
    blocks: Blocks | None = None,
) -> Verification:
    """Train the plain and the planned model three steps each from the same state: what differs?

    By SGD with momentum. Compared are loss, gradients, parameters, buffers and random generators,
    bitwise under deterministic algorithms in full fp32. The model, its gradients, the generators
    and the switches are given back. A mismatch is reported, not raised. Raises Busy while something
    else is measured.
    """
    task = training(inputs, loss)
    blocks = blocks or split(model, task.args, task.kwargs)
    planned = apply(model, plan, blocks=blocks)
    assert isinstance(planned, PlannedModel)
    runner = planned.runs_by
    lines: list[str] = []
    found: Seen | None = None
    with measuring(None), restored(model, task):
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.benchmark = False
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
        # So that the other begins as this one.
        with restored(model, task):
            model.train()
            wanted = left_behind(model, model, task, STEPS)
        with restored(model, task):
            model.train()
            try:
                found = left_behind(planned, model, task, STEPS)
            except RuntimeError as error:
                lines.append(raised(error))
    counted = [calls // STEPS for calls in runner.calls]
    expected, spared = _forwards(plan)
    if found is not None:
        lines += differences(wanted, found)
        for i, (have, want) in enumerate(zip(counted, expected, strict=True)):
            if not want - spared[i] <= have <= want:
                name = runner.blocks.names[i]
                lines.append(f"block {i} ({name}) ran {have} times a step, predicted were {want}")
    return Verification(tuple(lines), tuple(counted), expected)


def left_behind(model: nn.Module, original: nn.Module, task: Training, steps: int = 1) -> Seen:
    """Copies of all that some steps leave behind in ``original``, whose parameters ``model`` has.

    Of parameters those that have changed; with a single step no optimizer steps.
    """
    wanting = [parameter for parameter in original.parameters() if parameter.requires_grad]
    trainer = torch.optim.SGD(wanting, lr=0.01, momentum=0.9) if steps > 1 else None
    versions = [parameter._version for parameter in original.parameters()]
    seen: Seen = {}
    for step in range(1, steps + 1):
        now = f" in step {step}" if steps > 1 else ""
        # A tensor that is given twice is one: the compiler's guards look at that, too.
        args, kwargs = tree_map_only(torch.Tensor, cache(_fresh), (task.args, task.kwargs))
        value = task.loss(model(*args, **kwargs))
        value.backward()
        seen[f"loss{now}"] = copied(value)
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if torch.is_tensor(leaf)]
        for i, tensor in enumerate(filter(lambda tensor: tensor.requires_grad, inputs)):
            seen[f"gradient of input {i}{now}"] = _on_cpu(tensor.grad)
        for name, parameter in original.named_parameters():
            seen[f"gradient of {name}{now}"] = _on_cpu(parameter.grad)
        if trainer is not None:
            trainer.step()
            trainer.zero_grad(set_to_none=True)
    for (name, parameter), before in zip(original.named_parameters(), versions, strict=True):
        changed = parameter._version != before
        seen[f"{name} after the step"] = copied(parameter) if changed else None
    for name, buffer in original.named_buffers():
        seen[f"{name} after the step"] = copied(buffer)
    for kind, state in rng_state().items():
        seen[f"random state of {kind}"] = state
    return seen


def _on_cpu(gradient: torch.Tensor | None) -> torch.Tensor | None:
    """A gradient, which nobody else holds any more after the step."""
    return None if gradient is None else gradient.detach().cpu()


def _fresh(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def raised(error: RuntimeError) -> str:
    """What a planned model raised, as torch's own check of what was computed again."""
    return f"the planned model raised {type(error).__name__}: {str(error).splitlines()[0]}"


def _forwards(plan: Plan) -> tuple[tuple[int, ...], Counter[int]]:
    """Forwards of each block in a step, and how many of those torch may leave out.

    It may where a block is the last one that a checkpoint runs again and saves nothing.
    """
    runs = [0] * len(plan)
    spared: Counter[int] = Counter()
    for event in events(plan.nodes):
        if event.kind in ("forward", "bare"):
            runs[event.block] += 1
        elif event.kind == "rerun":
            spared[event.block] += 1
    return tuple(runs), spared
