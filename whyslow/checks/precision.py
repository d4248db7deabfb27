"""fp32 where the device multiplies 16-bit numbers faster, and images in a slow order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from whyslow.changes import forwards
from whyslow.experiment import Experiment
from whyslow.remedies import LAYOUT, PRECISION
from whyslow.subject import Subject

_LAST = torch.channels_last
_HALVES = (torch.bfloat16, torch.float16)
_OUTSIDE = "backward() and the update stay outside of it."
_SCALER = "scale the loss by torch.amp.GradScaler."


def experiments(subject: Subject) -> Iterator[Experiment]:
    """The forward pass under autocast; weights, their state and batches in channels-last order."""
    seen = subject.seen
    if seen.compiled:
        return
    kinds = {each.dtype for each in seen.parameters if each.is_floating_point()}
    if kinds == {torch.float32} and not seen.lower_precision:
        yield _lower(subject)
    layers = _convolutions(subject)
    if not seen.images or not layers:
        return
    if all(layer.weight.is_contiguous(memory_format=_LAST) for layer in layers):
        return
    step = None
    if subject.takes_batches:
        step = subject.serve([tree_map(_images_last, batch) for batch in subject.batches])
    how = "model, optimizer state and batches in channels-last order"
    yield Experiment(LAYOUT, how, partial(_channels_last, subject), step)


def _lower(subject: Subject) -> Experiment:
    seen = subject.seen
    dtype = torch.bfloat16
    if seen.device == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        dtype = torch.float16

    def under(root: nn.Module, forward: Any) -> Any:
        def lowered(*args: Any, **keywords: Any) -> Any:
            with torch.autocast(seen.device, dtype):
                output = forward(*args, **keywords)
            return tree_map(_as_float, output)

        return lowered

    name = str(dtype).removeprefix("torch.")
    rest = _OUTSIDE if dtype is torch.bfloat16 else _SCALER
    return Experiment(
        PRECISION,
        f"the forward pass under autocast to {name}",
        partial(forwards, seen.roots, under),
        words={"device": seen.device, "dtype": name, "rest": rest},
    )


def _as_float(item: Any) -> Any:
    if isinstance(item, torch.Tensor) and item.dtype in _HALVES:
        return item.float()
    return item


@contextmanager
def _channels_last(subject: Subject) -> Iterator[None]:
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
        for parameter in subject.seen.parameters:
            parameter.grad = None


def _convolutions(subject: Subject) -> list[nn.Conv2d]:
    found = []
    for root in subject.seen.roots:
        layers = [each for each in root.modules() if isinstance(each, nn.Conv2d)]
        found += [each for each in layers if each.in_channels > each.groups]
    return found


def _four_dimensional(subject: Subject) -> list[torch.Tensor]:
    """Weights, and what the optimizers keep of them."""
    found: list[Any] = list(subject.seen.parameters)
    for optimizer in subject.seen.optimizers:
        found += tree_leaves([dict(each) for each in optimizer.state.values()])
    return [each for each in found if isinstance(each, torch.Tensor) and each.dim() == 4]


def _images_last(item: Any) -> Any:
    if isinstance(item, torch.Tensor) and item.dim() == 4:
        return item.to(memory_format=_LAST)
    return item
