"""Batches that an accelerator gets from pageable memory, while it waits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from whyslow.experiment import Experiment, Idle
from whyslow.observe import from_host
from whyslow.subject import Subject


def experiments(subject: Subject) -> Iterator[Experiment]:
    """Page-locked batches, and copies that do not wait."""
    seen = subject.seen
    if seen.device == "cpu" or not seen.pageable or not subject.takes_batches:
        return
    pinned = [tree_map(_pinned, batch) for batch in subject.batches]
    yield Experiment(
        "copies from pageable memory",
        f"by experiment: {seen.pageable} bytes a step from page-locked memory, without waiting",
        "DataLoader(..., pin_memory=True), and in the step\nbatch.to(device, non_blocking=True).",
        "10_host_device_transfers",
        _NotWaiting,
        subject.serve(pinned),
        control=Idle,
    )


def _pinned(item: Any) -> Any:
    if isinstance(item, torch.Tensor) and item.device.type == "cpu":
        return item.pin_memory()
    return item


class _NotWaiting(TorchFunctionMode):
    """Copies from page-locked memory do not wait."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        source = from_host(func, args)
        if source is not None and len(args) < 3 and source.is_pinned():
            kwargs["non_blocking"] = True
        return func(*args, **kwargs)
