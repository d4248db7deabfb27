"""Room for copies: how much memory is free, and whether copies fit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import psutil
import torch

from labkit.text import format_bytes

_COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


def bytes_of(item: torch.Tensor) -> int:
    """Bytes of a tensor; of a sparse one those of its entries, without their places."""
    if item.layout is torch.sparse_coo:
        return item.detach()._values().nbytes
    if item.layout in _COMPRESSED:
        return item.detach().values().nbytes
    return item.nbytes


def check_room(items: Iterable[Any]) -> None:
    """MemoryError where copies of the tensors and arrays among ``items`` do not fit."""
    size, free = 0, free_bytes("cpu")
    for item in items:
        if isinstance(item, np.ndarray):
            size += item.nbytes
        elif isinstance(item, torch.Tensor) and not item.is_meta:
            size += bytes_of(item)
    if free is not None and size > free:
        raise MemoryError(
            f"to put everything back takes copies of {format_bytes(size)}, and "
            f"{format_bytes(free)} are free"
        )


def free_bytes(device: str) -> int | None:
    """Bytes that are free on a device; None where that is unknown."""
    if device == "cuda":
        return int(torch.cuda.mem_get_info()[0])
    if device == "cpu":
        return int(psutil.virtual_memory().available)
    return None
