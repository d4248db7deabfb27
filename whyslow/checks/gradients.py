"""Gradients that nobody uses: of a validation, and of weights that no optimizer trains."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from labkit.restore.attributes import exchanged
from whyslow.experiment import Experiment
from whyslow.subject import Subject


def experiments(subject: Subject) -> Iterator[Experiment]:
    """No graph in evaluation mode; no gradients of what is not trained."""
    seen = subject.seen
    if seen.unused:
        roots = list({id(root): root for root in seen.unused}.values())
        yield Experiment(
            "validation with gradients",
            "by experiment: forward passes in evaluation mode under no_grad",
            "with torch.no_grad(): around the validation, or @torch.no_grad() above it;\n"
            "model.eval() alone still records every operator for backward.",
            "20_validation_without_grad",
            _without_graph(roots),
        )
    frozen = _not_trained(subject)
    if frozen:
        yield Experiment(
            "gradients of weights that are not trained",
            f"by experiment: requires_grad_(False) on {len(frozen)} tensors in no optimizer",
            "part.requires_grad_(False) for what stays as it is,\n"
            "and model.train() and eval() as before: the forward pass is the same.",
            "20_validation_without_grad",
            _frozen(frozen),
        )


def _without_graph(roots: list[nn.Module]) -> Any:
    @contextmanager
    def changed() -> Iterator[None]:
        with exchanged((root, "forward", _checked(root, root.forward)) for root in roots):
            yield

    return changed


def _checked(root: nn.Module, forward: Any) -> Any:
    def without(*args: Any, **keywords: Any) -> Any:
        with torch.set_grad_enabled(root.training and torch.is_grad_enabled()):
            return forward(*args, **keywords)

    return without


def _not_trained(subject: Subject) -> list[nn.Parameter]:
    """Parameters with gradients that no optimizer has."""
    seen = subject.seen
    if not seen.optimizers or not seen.backwards:
        return []
    trained = set()
    for optimizer in seen.optimizers:
        for group in optimizer.param_groups:
            trained |= {id(each) for each in group["params"]}
    return [each for each in seen.parameters if each.requires_grad and id(each) not in trained]


def _frozen(parameters: list[nn.Parameter]) -> Any:
    @contextmanager
    def changed() -> Iterator[None]:
        for each in parameters:
            each.grad = None
            each.requires_grad_(False)
        try:
            yield
        finally:
            for each in parameters:
                each.requires_grad_(True)

    return changed
