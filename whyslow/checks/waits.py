"""Where the host waits for an accelerator: values that are read, copies that are not pinned."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from whyslow.experiment import Experiment, Idle
from whyslow.observe import from_host
from whyslow.phases import HOST as HOST_PART
from whyslow.remedies import HOST, PAGEABLE
from whyslow.subject import Subject

_READS = ("item", "tolist", "__float__", "__int__", "__bool__")


def experiments(subject: Subject) -> Iterator[Experiment]:
    """Reads that give the value that they gave first, and page-locked batches."""
    seen = subject.seen
    if seen.device == "cpu":
        return
    if seen.host_reads:
        known: dict[Any, Any] = {}
        how = f"{seen.host_reads} reads a step that give an old value at once"
        yield Experiment(HOST, how, lambda: _NotRead(known), part=HOST_PART, control=Idle)
    if seen.pageable and subject.takes_batches:
        pinned = subject.serve([tree_map(_pinned, batch) for batch in subject.batches])
        how = f"{seen.pageable} bytes a step from page-locked memory, without waiting"
        yield Experiment(PAGEABLE, how, _NotWaiting, pinned, part=HOST_PART, control=Idle)


class _NotRead(TorchFunctionMode):
    """A read returns what it returned first at the same line of the program."""

    def __init__(self, known: dict[Any, Any]) -> None:
        super().__init__()
        self._known = known
        self._reads = {getattr(torch.Tensor, name) for name in _READS}

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func not in self._reads or args[0].device.type == "cpu":
            return func(*args, **kwargs)
        frame = sys._getframe(1)
        place = frame.f_code, frame.f_lineno, func
        if place not in self._known:
            self._known[place] = func(*args, **kwargs)
        return self._known[place]


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
