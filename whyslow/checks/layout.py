"""Images as NCHW where the device convolves NHWC faster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from whyslow.experiment import Experiment
from whyslow.subject import Subject

_LAST = torch.channels_last


def experiments(subject: Subject) -> Iterator[Experiment]:
    """Weights, state of the optimizer and batches in channels-last order."""
    seen = subject.seen
    if seen.compiled or not seen.images or not _convolutions(subject):
        return
    if all(layer.weight.is_contiguous(memory_format=_LAST) for layer in _convolutions(subject)):
        return
    step = None
    if subject.takes_batches:
        step = subject.serve([tree_map(_images_last, batch) for batch in subject.batches])

    @contextmanager
    def last() -> Iterator[None]:
        tensors = _four_dimensional(subject)
        before = [each.data for each in tensors]
        for each in tensors:
            each.data = each.data.to(memory_format=_LAST)
        try:
            yield
        finally:
            for each, data in zip(tensors, before, strict=True):
                # What was trained meanwhile is kept: only the order goes back.
                data.copy_(each.data)
                each.data = data
            for parameter in seen.parameters:
                parameter.grad = None

    yield Experiment(
        "images not in channels-last order",
        "by experiment: model, optimizer state and batches in channels-last order",
        "model.to(memory_format=torch.channels_last), once;\n"
        "images.to(device, memory_format=torch.channels_last) for each batch.",
        "09_cudnn_benchmark",
        last,
        step,
    )


def _convolutions(subject: Subject) -> list[nn.Conv2d]:
    found = []
    for root in subject.seen.roots:
        found += [
            module
            for module in root.modules()
            if isinstance(module, nn.Conv2d) and (module.in_channels // module.groups) > 1
        ]
    return found


def _four_dimensional(subject: Subject) -> list[torch.Tensor]:
    """Weights, and what the optimizers keep of them."""
    found: list[torch.Tensor] = [each for each in subject.seen.parameters if each.dim() == 4]
    for optimizer in subject.seen.optimizers:
        leaves: list[Any] = tree_leaves([dict(each) for each in optimizer.state.values()])
        found += [each for each in leaves if isinstance(each, torch.Tensor) and each.dim() == 4]
    return found


def _images_last(item: Any) -> Any:
    if isinstance(item, torch.Tensor) and item.dim() == 4:
        return item.to(memory_format=_LAST)
    return item
