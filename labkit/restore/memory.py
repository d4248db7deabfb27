"""Room for copies: how much memory is free, and where copies of tensors go."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import psutil
import torch

from labkit.text import format_bytes

# Of what is free on an accelerator, copies may take this part: the steps need the rest.
PART = 0.1


def bytes_of(item: torch.Tensor) -> int:
    """Bytes of a tensor; of a sparse one those of its entries, without their places."""
    if item.layout is torch.sparse_coo:
        return item.detach()._values().nbytes
    return item.nbytes


def place_of_copies(items: Iterable[Any]) -> str | None:
    """Where copies of the tensors and arrays among ``items`` go: None, each on its own device.

    "cpu" where they would take more than `PART` of the memory that a card has free. MemoryError
    where they do not fit there.
    """
    sizes = {"cuda": 0, "cpu": 0}
    for item in items:
        if isinstance(item, np.ndarray):
            sizes["cpu"] += item.nbytes
        elif isinstance(item, torch.Tensor) and item.device.type in sizes:
            sizes[item.device.type] += bytes_of(item)
    place, size = None, sizes["cpu"]
    if sizes["cuda"] and sizes["cuda"] > PART * _free_on_cuda():
        place, size = "cpu", size + sizes["cuda"]
    free = free_bytes("cpu")
    if free is not None and size > free:
        raise MemoryError(
            f"to put everything back takes copies of {format_bytes(size)}, and "
            f"{format_bytes(free)} are free"
        )
    return place


def _free_on_cuda() -> int:
    """Bytes, with those that torch holds in reserve."""
    reserve = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    return int(torch.cuda.mem_get_info()[0]) + reserve


def free_bytes(device: str) -> int | None:
    """Bytes that are free on a device; None where that is unknown."""
    if device == "cuda":
        return int(torch.cuda.mem_get_info()[0])
    if device == "cpu":
        return int(psutil.virtual_memory().available)
    return None
