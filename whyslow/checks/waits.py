"""Where the host waits for an accelerator: values that are read, copies that are not pinned."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from whyslow import remedies
from whyslow.experiment import HOST, Calls, Experiment
from whyslow.observe import from_host, mapped
from whyslow.subject import Subject

_READS = {
    getattr(torch.Tensor, name) for name in ("item", "tolist", "__float__", "__int__", "__bool__")
}


def waits(subject: Subject) -> Iterator[Experiment]:
    """Reads that give the value that they gave first, and page-locked batches."""
    seen = subject.seen
    if seen.device == "cpu":
        return
    if seen.host_reads:
        change = partial(Calls, partial(_known, {}))
        how = f"{seen.host_reads} reads a step that give an old value at once"
        yield Experiment(remedies.HOST, how, change, part=HOST, control=Calls)
    if seen.pageable and subject.takes_batches:
        pinned = subject.serve([mapped(batch, _pinned) for batch in subject.batches])
        how = f"{seen.pageable} bytes a step from page-locked memory, without waiting"
        change = partial(Calls, _without_waiting)
        yield Experiment(remedies.PAGEABLE, how, change, pinned, part=HOST, control=Calls)


def _known(known: dict[Any, Any], func: Any, args: Any, kwargs: Any) -> Any:
    """A read returns what it returned first at the same line of the program."""
    if func not in _READS or args[0].device.type == "cpu":
        return func(*args, **kwargs)
    frame = sys._getframe(2)
    place = frame.f_code, frame.f_lineno, func
    if place not in known:
        known[place] = func(*args, **kwargs)
    return known[place]


def _pinned(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.pin_memory() if tensor.device.type == "cpu" else tensor


def _without_waiting(func: Any, args: Any, kwargs: Any) -> Any:
    """Copies from page-locked memory do not wait."""
    source = from_host(func, args)
    if source is not None and len(args) < 3 and source.is_pinned():
        kwargs = {**kwargs, "non_blocking": True}
    return func(*args, **kwargs)
