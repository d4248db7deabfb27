"""Values that the host reads from an accelerator in every step, and waits for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from labkit.diagnose.experiment import Experiment
from labkit.diagnose.patches import patched
from labkit.diagnose.subject import Subject

_READS = ("item", "tolist", "__float__", "__int__", "__bool__")


def experiments(subject: Subject) -> Iterator[Experiment]:
    """Each read gives the value that it gave first, without waiting for a new one."""
    seen = subject.seen
    if seen.device == "cpu" or not seen.host_reads:
        return
    known: dict[Any, Any] = {}

    @contextmanager
    def not_read() -> Iterator[None]:
        with ExitStack() as stack:
            for name in _READS:
                original = getattr(torch.Tensor, name)
                stack.enter_context(patched(torch.Tensor, name, _stale(original, known)))
            yield

    yield Experiment(
        "the host waits for the device",
        f"by experiment: {seen.host_reads} reads a step that give an old value at once",
        "total += loss.detach() on the device, and .item() once every 100 steps;\n"
        "no print(loss), no `if loss > ...` and no boolean mask in the step.",
        "10_host_device_transfers",
        not_read,
    )


def _stale(original: Callable[..., Any], known: dict[Any, Any]) -> Callable[..., Any]:
    def read(tensor: torch.Tensor) -> Any:
        if tensor.device.type == "cpu":
            return original(tensor)
        frame = sys._getframe(1)
        place = frame.f_code, frame.f_lineno, original
        if place not in known:
            known[place] = original(tensor)
        return known[place]

    return read
