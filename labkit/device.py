"""The machine under the reader's hands: its device, fitting sizes, and when its memory ends.

CUDA is what the course is about. Another accelerator, such as Apple's mps or Intel's xpu, is found
by `torch.accelerator` and waited for, so that its times are true; nothing of the course was ever
measured on one, and `device_in_words` says so. Where a notebook fails on it, ``LABKIT_DEVICE=cpu``
helps.
"""

from __future__ import annotations

import errno
import gc
import operator
import os
import random
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import numpy as np
import torch

T = TypeVar("T")

OUT_OF_MEMORY = "out of memory"

# Bytes from which on a GPU takes the sizes of a large one: 24 GB and more, not 20 and less.
LARGE_GPU = 22_500_000_000

# What is said, other than by torch.OutOfMemoryError, when memory has run out: by drivers, NCCL and
# Triton; by the CPU's allocator and C++; by cuBLAS, cuDNN and the like for their own work space; by
# Metal.
_SAYS_IT = re.compile(
    r"out[ _]?of[ _]?(\w+[ _])?memory"
    r"|can('t|not) allocate memory|not enough memory|bad_alloc"
    r"|alloc(ation)?_?failed|failed to cuda \w*alloc"
    r"|insufficient memory|invalid buffer size",
    re.IGNORECASE,
)
# Said by cuDNN where torch's allocator refused every work space, and of a type that a card lacks.
_MAY_SAY_IT = re.compile(r"unable to find (an engine|a valid cudnn algorithm)", re.IGNORECASE)


def pick_device() -> torch.device:
    """The device that the labs train on: CUDA, else another accelerator of torch's, else the CPU.

    Of several cards the current one. ``LABKIT_DEVICE=cpu`` keeps to the CPU; ValueError for any
    other value of it.

    >>> inputs = torch.ones(4, 2, device=pick_device())
    >>> inputs.device.type == pick_device().type
    True
    """
    wanted = os.environ.get("LABKIT_DEVICE", "")
    if wanted not in ("", "cpu"):
        raise ValueError(
            f"LABKIT_DEVICE={wanted!r}: use 'cpu' to leave an accelerator alone, or nothing"
        )
    if wanted:
        return torch.device("cpu")
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device(_other_accelerator() or "cpu")


@cache
def _other_accelerator() -> str | None:
    """The type of this machine's accelerator, where it is not CUDA: it stays what it is."""
    found = torch.accelerator.current_accelerator()
    if found is None or found.type == "cuda" or not torch.accelerator.is_available():
        return None
    return found.type


def accelerator_in_use() -> str | None:
    """The type of the accelerator that this process works on, or None while it has not begun to.

    An accelerator that cannot tell (mps) counts as in use.
    """
    if torch.cuda.is_initialized():
        return "cuda"
    other = _other_accelerator()
    if other is None:
        return None
    tells = getattr(torch.get_device_module(other), "is_initialized", None)
    if tells is not None and not tells():
        return None
    return other


def current_index() -> int:
    """The number of the current device of the accelerator in use, which each thread has for itself.

    0, where threads begin, while none is in use.
    """
    if accelerator_in_use() is None:
        return 0
    return torch.accelerator.current_device_index()


def check_current(device: torch.device) -> None:
    """ValueError for an accelerator that is not torch's current device.

    Only the current one is waited for, and only its memory is counted.
    """
    if device.type != accelerator_in_use() or device.index in (None, current_index()):
        return
    raise ValueError(
        f"the step works on {device}, which is not torch's current device, so that it would be "
        f"neither waited for nor counted: call torch.accelerator.set_device_index({device.index}) "
        "first, in make_workload where there is one"
    )


def device_in_words(kind: str) -> str:
    """``cuda``, ``cpu``, or ``mps (not measured by us)``."""
    if kind in ("cpu", "cuda"):
        return kind
    return f"{kind} (not measured by us)"


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

    ``test`` under ``LABKIT_SIZE=test``, else ``cuda``, or ``small``, where it is given, for GPUs
    with less than `LARGE_GPU`; ``cpu`` without CUDA. TypeError for ``small`` without ``cuda``,
    ValueError for a ``LABKIT_SIZE`` that is unknown.

    >>> batch_size = pick(cpu=64, cuda=512)
    >>> batch_size in (64, 512)
    True
    """
    if small is not None and cuda is None:
        raise TypeError(
            f"pick(small={small!r}): small is for GPUs with little memory; "
            "give the value of the others as cuda, too"
        )
    if test is not None and test_size():
        return test
    device = pick_device()
    if cuda is None or device.type != "cuda":
        return cpu
    if small is None:
        return cuda
    large = torch.cuda.get_device_properties(device).total_memory >= LARGE_GPU
    return cuda if large else small


def synchronize() -> None:
    """Wait for all work queued on the accelerator; nothing to do while it is unused."""
    kind = accelerator_in_use()
    if kind == "cuda":
        torch.cuda.synchronize()
    elif kind is not None:
        torch.accelerator.synchronize()


def release_memory() -> None:
    """Collect garbage, and give memory that torch holds in reserve back to the accelerator."""
    gc.collect()
    kind = accelerator_in_use()
    if kind is not None:
        torch.get_device_module(kind).empty_cache()


def seed_all(seed: int) -> None:
    """Seed Python's, NumPy's and torch's generators (all devices).

    TypeError for what is no whole number, ValueError for one that torch does not take: below
    ``-2**63``, or ``2**64`` and more. Then no generator is seeded.

    >>> seed_all(0)
    >>> first = torch.rand(2)
    >>> seed_all(0)
    >>> torch.equal(torch.rand(2), first)
    True
    """
    try:
        seed = operator.index(seed)
    except TypeError:
        raise TypeError(f"seed={seed!r}: use a whole number") from None
    if not -(2**63) <= seed < 2**64:
        raise ValueError(f"seed={seed!r}: use a whole number from -2**63 to 2**64 - 1")
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` says that memory ran out: a device's, or this machine's.

    To be asked in the process where it was raised: an ambiguous text is judged by the state of its
    CUDA.
    """
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if not isinstance(error, RuntimeError):
        return False
    if _SAYS_IT.search(str(error)):
        return True
    refused = torch.cuda.memory_stats().get("num_ooms", 0)
    return refused > 0 and _MAY_SAY_IT.search(str(error)) is not None


@dataclass
class Outcome:
    """How a block under `survive` ended: ``error`` says by what, or is None when it was done."""

    error: str | None = None


@contextmanager
def survive(*others: type[Exception]) -> Iterator[Outcome]:
    """End the block, and no more, when memory runs out or one of ``others`` is raised.

    What it yields tells afterwards: ``error`` is "out of memory", or the other error's own text.
    Release what the block held after it: no traceback keeps its tensors alive any more. From Python
    3.12 on the frames of an error that was dealt with form a cycle, so they are emptied here.
    """
    outcome = Outcome()
    try:
        yield outcome
    except others as error:
        outcome.error = str(error)
        traceback.clear_frames(error.__traceback__)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        outcome.error = OUT_OF_MEMORY
        traceback.clear_frames(error.__traceback__)
