"""Batches that an accelerator gets from pageable memory, while it waits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_map

from labkit.diagnose.experiment import Experiment
from labkit.diagnose.patches import patched
from labkit.diagnose.subject import Subject


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
        _not_waiting,
        subject.serve(pinned),
    )


def _pinned(item: Any) -> Any:
    if isinstance(item, torch.Tensor) and item.device.type == "cpu":
        return item.pin_memory()
    return item


@contextmanager
def _not_waiting() -> Iterator[None]:
    with ExitStack() as stack:
        for name in ("to", "cuda"):
            stack.enter_context(patched(torch.Tensor, name, _asked(name)))
        yield


def _asked(name: str) -> Any:
    original = getattr(torch.Tensor, name)

    def asked(tensor: torch.Tensor, *args: Any, **keywords: Any) -> Any:
        if tensor.device.type == "cpu" and len(args) < 2 and tensor.is_pinned():
            keywords["non_blocking"] = True
        return original(tensor, *args, **keywords)

    return asked
