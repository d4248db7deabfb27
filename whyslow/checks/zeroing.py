"""Gradients that are filled with zeros, and then added to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from labkit.restore.attributes import exchanged
from whyslow.experiment import Experiment
from whyslow.subject import Subject


def experiments(subject: Subject) -> Iterator[Experiment]:
    """Gradients that are None at the beginning of each backward pass, where all were zeros."""
    seen = subject.seen
    if not seen.zeroed or seen.accumulated or seen.compiled:
        return
    parameters = [each for each in seen.parameters if each.requires_grad]
    known = {id(each) for each in parameters}

    @contextmanager
    def dropped() -> Iterator[None]:
        memory: set[int] = set()
        zero, zeros_like, backward = torch.Tensor.zero_, torch.zeros_like, torch.autograd.backward

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            return tensor if tensor.data_ptr() in memory else zero(tensor)

        # Named as by torch.
        def none_for_parameters(input: torch.Tensor, *args: Any, **keywords: Any) -> Any:
            return None if id(input) in known else zeros_like(input, *args, **keywords)

        def afresh(*args: Any, **keywords: Any) -> None:
            for parameter in parameters:
                parameter.grad = None
            backward(*args, **keywords)
            memory.clear()
            memory.update(each.grad.data_ptr() for each in parameters if each.grad is not None)

        with exchanged(
            [
                (torch.Tensor, "zero_", keep),
                (torch, "zeros_like", none_for_parameters),
                (torch.autograd, "backward", afresh),
                *((each, "zero_grad", _to_none(each)) for each in seen.optimizers),
            ]
        ):
            yield

    yield Experiment(
        "gradients filled with zeros",
        "by experiment: gradients are None before each backward pass",
        "optimizer.zero_grad(), whose default sets gradients to None:\n"
        "no pass that writes zeros, and none that adds to them.",
        "15_zeroing_gradients",
        dropped,
    )


def _to_none(optimizer: torch.optim.Optimizer) -> Any:
    original = optimizer.zero_grad

    def to_none(*args: Any, **keywords: Any) -> None:
        original(set_to_none=True)

    return to_none
