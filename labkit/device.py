"""The machine under the reader's hands: its device, fitting sizes, and when its memory ends."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch

T = TypeVar("T")

OUT_OF_MEMORY = "out of memory"

# Bytes of the least memory for which sizes are chosen: a card that is sold as one of 8 GB.
LEAST_GPU = 7_500_000_000
# Bytes from which on a GPU takes the sizes of a large one: 40 GB and more, not 32 and less.
LARGE_GPU = 36_000_000_000

# What torch and its libraries say, other than by torch.OutOfMemoryError, when memory has run out.
_OUT_OF_MEMORY_TEXTS = (
    # CUDA's driver, and torch's allocators
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    # cuBLAS and cuDNN, for their own handles and work space
    "STATUS_ALLOC_FAILED",
    # cuDNN, when no algorithm's work space fits
    "unable to find an engine",
    "Unable to find a valid cuDNN algorithm",
)


def pick_device() -> torch.device:
    """The device that the labs train on: the current CUDA device, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def test_size() -> bool:
    """Whether ``LABKIT_SIZE=test`` asks for the small sizes that CI runs.

    ValueError for any other value than "test", "full" and nothing.
    """
    value = os.environ.get("LABKIT_SIZE", "")
    if value not in ("", "full", "test"):
        raise ValueError(
            f"LABKIT_SIZE={value!r}: use 'test' for CI's small sizes, "
            "'full' or nothing for the machine's own"
        )
    return value == "test"


# Its name would make pytest collect it.
test_size.__test__ = False  # type: ignore[attr-defined]


def pick(*, cpu: T, cuda: T | None = None, small: T | None = None, test: T | None = None) -> T:
    """The value that suits this machine.

    ``test`` under ``LABKIT_SIZE=test``, else ``cpu``, ``cuda`` or ``small`` by device: ``small``,
    where it is given, for GPUs with less than `LARGE_GPU`. Other accelerators than CUDA's take the
    value of a GPU where they tell that they have `LEAST_GPU` or more. TypeError for ``small``
    without ``cuda``.
    """
    if small is not None and cuda is None:
        raise TypeError(
            f"pick(small={small!r}): small is for GPUs with little memory; "
            "give the value of the others as cuda, too"
        )
    if test is not None and test_size():
        return test
    device = pick_device()
    if cuda is None or device.type == "cpu":
        return cpu
    if device.type != "cuda" and device_memory(device) < LEAST_GPU:
        return cpu
    if small is not None and device_memory(device) < LARGE_GPU:
        return small
    return cuda


def device_memory(device: torch.device) -> int:
    """Bytes of an accelerator's memory; 0 for the CPU, and where it does not tell.

    To ask initializes it.
    """
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    if device.type == "xpu":
        return torch.xpu.get_device_properties(device).total_memory
    if device.type == "mps":
        # Of the memory that it shares with the CPU, what Metal advises a process to take.
        return torch.mps.recommended_max_memory()
    return 0


def synchronize() -> None:
    """Wait for all work queued on the current CUDA device; nothing to do while CUDA is unused."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def seed_all(seed: int) -> None:
    """Seed Python's, NumPy's and torch's generators (all devices)."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` says that memory ran out, on the GPU or in torch's CPU allocator."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    if not isinstance(error, RuntimeError):
        return False
    return any(text in str(error) for text in _OUT_OF_MEMORY_TEXTS)


@dataclass
class Outcome:
    """How a block under `survive` ended: ``error`` says by what, or is None when it was done."""

    error: str | None = None


@contextmanager
def survive(*others: type[Exception]) -> Iterator[Outcome]:
    """End the block, and no more, when memory runs out or one of ``others`` is raised.

    What it yields tells afterwards: ``error`` is "out of memory", or the other error's own text.
    Release what the block held after it: no traceback keeps its tensors alive any more.
    """
    outcome = Outcome()
    try:
        yield outcome
    except others as error:
        outcome.error = str(error)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        outcome.error = OUT_OF_MEMORY
