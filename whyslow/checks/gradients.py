"""Gradients that nobody uses: of a validation, and of weights that no optimizer trains."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn

from whyslow.changes import forwards
from whyslow.experiment import Experiment
from whyslow.phases import ALL
from whyslow.remedies import FROZEN, VALIDATION
from whyslow.subject import Subject


def experiments(subject: Subject) -> Iterator[Experiment]:
    """No graph in evaluation mode; no gradients of what is not trained."""
    seen = subject.seen
    if seen.unused:
        roots = list({id(root): root for root in seen.unused}.values())
        how = "forward passes in evaluation mode under no_grad"
        yield Experiment(VALIDATION, how, partial(forwards, roots, _without_graph), part=ALL)
    frozen = _not_trained(subject)
    if frozen:
        how = f"requires_grad_(False) on {len(frozen)} tensors in no optimizer"
        yield Experiment(FROZEN, how, partial(_frozen, frozen))


def _without_graph(root: nn.Module, forward: Any) -> Any:
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


@contextmanager
def _frozen(parameters: list[nn.Parameter]) -> Iterator[None]:
    for each in parameters:
        each.grad = None
        each.requires_grad_(False)
    try:
        yield
    finally:
        for each in parameters:
            each.requires_grad_(True)
