"""The machine under the reader's hands: device, sizes, random numbers and torch's process-wide switches."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch

T = TypeVar("T")


def pick_device() -> torch.device:
    """The device that the labs train on: the current CUDA device, or the CPU where there is none."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def test_size() -> bool:
    """Whether ``LABKIT_SIZE=test`` asks for the small sizes that CI runs. Raises ValueError for any other value."""
    value = os.environ.get("LABKIT_SIZE", "")
    if value not in ("", "full", "test"):
        raise ValueError(
            f"LABKIT_SIZE={value!r}: use 'test' for CI's small sizes, 'full' or nothing for the machine's own"
        )
    return value == "test"


test_size.__test__ = False  # type: ignore[attr-defined]  # its name would make pytest collect it


def pick(*, cpu: T, cuda: T | None = None, test: T | None = None) -> T:
    """The value that suits this machine: ``test`` under ``LABKIT_SIZE=test``, else ``cuda`` or ``cpu`` by device."""
    if test is not None and test_size():
        return test
    return cuda if cuda is not None and pick_device().type == "cuda" else cpu


def synchronize() -> None:
    """Wait for all work queued on the current CUDA device; nothing to do while CUDA is unused."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` says that memory ran out, on the GPU or in torch's CPU allocator."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    texts = ("can't allocate memory", "not enough memory", "out of memory", "STATUS_ALLOC_FAILED")
    return isinstance(error, RuntimeError) and any(text in str(error) for text in texts)


# ---------------------------------------------------------------------------------------------------------- randomness


def seed_all(seed: int) -> None:
    """Seed Python's, NumPy's and torch's generators (all devices)."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def rng_state() -> dict[str, Any]:
    """The state of every generator that `seed_all` seeds, for `set_rng_state`."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state(),
        "cuda": cuda,
    }


def set_rng_state(state: dict[str, Any]) -> None:
    """Put back what `rng_state` returned."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None:
        torch.cuda.set_rng_state_all(state["cuda"])
    elif torch.cuda.is_initialized():  # it woke up since: as it would have without us
        torch.cuda.manual_seed_all(torch.initial_seed())


@contextmanager
def preserve_rng() -> Iterator[None]:
    """Give back every generator as it was, whatever the block draws, seeds or raises."""
    state = rng_state()
    try:
        yield
    finally:
        set_rng_state(state)


# ------------------------------------------------------------------------------------------------- process-wide
# switches


def _attribute(owner: Any, name: str) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    return lambda: getattr(owner, name), lambda value: setattr(owner, name, value)


def _set_anomaly(value: tuple[bool, bool]) -> None:
    torch.autograd.set_detect_anomaly(*value)


def _switches() -> dict[str, tuple[Callable[[], Any], Callable[[Any], None]]]:
    """Getter and setter of each switch; the general ones first, since setting them overwrites the special ones."""
    backends = torch.backends
    cuda, matmul, mkldnn = backends.cuda, backends.cuda.matmul, backends.mkldnn
    cudnn: Any = backends.cudnn
    switches: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {
        "num_threads": (torch.get_num_threads, torch.set_num_threads),
        "default_dtype": (torch.get_default_dtype, torch.set_default_dtype),
        "grad_enabled": (torch.is_grad_enabled, lambda on: torch._C._set_grad_enabled(on)),
        "anomaly": (
            lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
            _set_anomaly,
        ),
        "deterministic": (
            lambda: (
                torch.are_deterministic_algorithms_enabled(),
                torch.is_deterministic_algorithms_warn_only_enabled(),
            ),
            lambda value: torch.use_deterministic_algorithms(value[0], warn_only=value[1]),
        ),
        "float32_matmul_precision": (
            torch.get_float32_matmul_precision,
            torch.set_float32_matmul_precision,
        ),
        "fp32_precision": _attribute(backends, "fp32_precision"),
        "sdp.flash": (cuda.flash_sdp_enabled, cuda.enable_flash_sdp),
        "sdp.mem_efficient": (cuda.mem_efficient_sdp_enabled, cuda.enable_mem_efficient_sdp),
        "sdp.math": (cuda.math_sdp_enabled, cuda.enable_math_sdp),
        "sdp.cudnn": (cuda.cudnn_sdp_enabled, cuda.enable_cudnn_sdp),
    }
    for name in (
        "allow_fp16_reduced_precision_reduction",
        "allow_bf16_reduced_precision_reduction",
    ):
        switches[f"cuda.matmul.{name}"] = _attribute(matmul, name)
    for name in ("enabled", "benchmark", "deterministic", "allow_tf32", "fp32_precision"):
        switches[f"cudnn.{name}"] = _attribute(cudnn, name)
    switches["mkldnn.enabled"] = _attribute(mkldnn, "enabled")
    switches["mkldnn.fp32_precision"] = _attribute(mkldnn, "fp32_precision")
    special = {"cuda.matmul": matmul, "cudnn.conv": cudnn.conv, "cudnn.rnn": cudnn.rnn}
    special |= {f"mkldnn.{name}": getattr(mkldnn, name) for name in ("matmul", "conv", "rnn")}
    for name, owner in special.items():
        switches[f"{name}.fp32_precision"] = _attribute(owner, "fp32_precision")
    return switches


_SWITCHES = _switches()


def torch_flags() -> dict[str, Any]:
    """Every process-wide switch of torch that a lab may flip (threads, precision, cuDNN, determinism, anomaly mode).

    Two of them are thread-local in truth (``num_threads``, ``grad_enabled``): read and set them in the thread that
    measures. A switch that this build of torch cannot read is left out.
    """
    flags = {}
    for name, (get, _) in _SWITCHES.items():
        try:
            flags[name] = get()
        except (
            RuntimeError,
            AttributeError,
        ):  # the old and the new TF32 switches contradict each other: torch refuses to say
            continue
    return flags


def set_torch_flags(flags: dict[str, Any]) -> None:
    """Put back what `torch_flags` returned; only what differs is written, so that inherited settings stay inherited."""
    for name, value in flags.items():
        get, put = _SWITCHES[name]
        try:
            if get() == value:
                continue
        except RuntimeError:
            pass  # unreadable now, readable then: write it
        put(value)


@contextmanager
def preserve_flags() -> Iterator[None]:
    """Give back torch's process-wide switches as they were, whatever the block sets or raises."""
    flags = torch_flags()
    try:
        yield
    finally:
        set_torch_flags(flags)
