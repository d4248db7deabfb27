"""Values that the host reads from an accelerator in every step, and waits for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from whyslow.experiment import Experiment, Idle
from whyslow.subject import Subject

_READS = ("item", "tolist", "__float__", "__int__", "__bool__")


def experiments(subject: Subject) -> Iterator[Experiment]:
    """Each read gives the value that it gave first, without waiting for a new one."""
    seen = subject.seen
    if seen.device == "cpu" or not seen.host_reads:
        return
    known: dict[Any, Any] = {}
    yield Experiment(
        "the host waits for the device",
        f"by experiment: {seen.host_reads} reads a step that give an old value at once",
        "total += loss.detach() on the device, and .item() once every 100 steps;\n"
        "no print(loss), no `if loss > ...` and no boolean mask in the step.",
        "10_host_device_transfers",
        lambda: _NotRead(known),
        control=Idle,
    )


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
