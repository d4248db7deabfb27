"""An optimizer that goes through its parameters one by one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from whyslow.experiment import Change, Experiment
from whyslow.subject import Subject

_FORMS = ("fused", "foreach")


def experiments(subject: Subject) -> Iterator[Experiment]:
    """The fused form of torch's own optimizers; where there is none, the one over lists."""
    slow = {}
    for optimizer in subject.seen.optimizers:
        form = _better(optimizer)
        if form is not None:
            slow[optimizer] = form
    if not slow:
        return

    form = next(iter(slow.values()))
    names = ", ".join(sorted({type(each).__name__ for each in slow}))
    yield Experiment(
        "optimizer loops over parameters",
        f"by experiment: {names} with {form}=True",
        f"torch.optim.{names.split(', ')[0]}(..., {form}=True):\n"
        "one pass over all parameters instead of several operators for each.",
        "08_optimizers",
        _quick(slow),
    )


def _quick(slow: dict[torch.optim.Optimizer, str]) -> Change:
    """The optimizers in the forms that they lack."""

    @contextmanager
    def quick() -> Iterator[None]:
        before = [(group, dict(group)) for each in slow for group in each.param_groups]
        moved = []
        for each, form in slow.items():
            for group in each.param_groups:
                group.update({name: name == form for name in _FORMS if name in group})
            if form == "fused":
                moved += _counts_to_device(each)
        try:
            yield
        finally:
            for group, values in before:
                group.update({name: values[name] for name in _FORMS if name in values})
            for state, count in moved:
                state["step"] = state["step"].to(count.device)

    return quick


def _better(optimizer: torch.optim.Optimizer) -> str | None:
    """The quicker form that this optimizer has and does not use."""
    if not type(optimizer).__module__.startswith("torch.optim"):
        return None
    groups = optimizer.param_groups
    if any(group.get("differentiable") for group in groups):
        return None
    for form in _FORMS:
        if all(form in group for group in groups):
            return None if all(group[form] for group in groups) else form
    return None


def _counts_to_device(optimizer: torch.optim.Optimizer) -> list[tuple[dict[str, Any], Any]]:
    """The fused form wants the number of steps where the parameters are."""
    moved = []
    for parameter, state in optimizer.state.items():
        count = state.get("step")
        if isinstance(count, torch.Tensor) and count.device != parameter.device:
            moved.append((state, count))
            state["step"] = count.to(parameter.device)
    return moved
