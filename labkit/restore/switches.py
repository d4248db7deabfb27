"""torch's process-wide switches: threads, device, precision, cuDNN, determinism, anomaly mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from typing import Any

import torch
from torch.overrides import _pop_mode as leave_function_mode
from torch.utils._python_dispatch import _pop_mode as leave_dispatch_mode

from labkit.device import current_index
from labkit.restore.undo import giving_back

# The value of a switch: what its getter returns and its setter takes.
Flags = dict[str, Any]
Switch = tuple[Callable[[], Any], Callable[[Any], object]]

# Switches that are attributes in torch.backends.
_ATTRIBUTES = (
    "cuda.matmul.allow_fp16_reduced_precision_reduction",
    "cuda.matmul.allow_bf16_reduced_precision_reduction",
    "cudnn.enabled",
    "cudnn.benchmark",
    "cudnn.deterministic",
    "cudnn.allow_tf32",
    "cudnn.fp32_precision",
    "mkldnn.enabled",
    "mkldnn.fp32_precision",
    "cuda.matmul.fp32_precision",
    "cudnn.conv.fp32_precision",
    "cudnn.rnn.fp32_precision",
    "mkldnn.matmul.fp32_precision",
    "mkldnn.conv.fp32_precision",
    "mkldnn.rnn.fp32_precision",
)


def torch_flags() -> Flags:
    """Every process-wide switch of torch that a lab may flip, for `set_torch_flags`.

    Some are thread-local in truth (``num_threads``, ``grad_enabled``, both devices): read and set
    them in the thread that measures. A switch that this build of torch cannot read is left out.
    """
    flags = {}
    for name, (get, _) in _SWITCHES.items():
        try:
            flags[name] = get()
        except (RuntimeError, AttributeError):
            # The old and the new TF32 switches contradict each other: torch refuses to say.
            continue
    return flags


def set_torch_flags(flags: Flags) -> None:
    """Put back what `torch_flags` returned.

    Only what differs is written, so that inherited settings stay inherited.
    """
    for name, value in flags.items():
        get, put = _SWITCHES[name]
        try:
            if get() == value:
                continue
        except RuntimeError:
            # Unreadable now, readable then: write it.
            pass
        put(value)


@contextmanager
def preserve_flags() -> Iterator[None]:
    """Give back torch's process-wide switches as they were, and leave modes that are still open.

    An interrupt may strike when a mode is about to be left: torch would then go on to count, or to
    keep, all that the program computes.
    """
    with giving_back(partial(_put_back, torch_flags(), *_open_modes())):
        yield


def _open_modes() -> tuple[int, int]:
    return torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()


def _put_back(flags: Flags, dispatch_modes: int, function_modes: int) -> None:
    # First: a default device is a mode, too.
    set_torch_flags(flags)
    while torch._C._len_torch_dispatch_stack() > dispatch_modes:
        leave_dispatch_mode()
    while torch._C._len_torch_function_stack() > function_modes:
        leave_function_mode()


def _attribute(owner: Any, name: str) -> Switch:
    return lambda: getattr(owner, name), lambda value: setattr(owner, name, value)


def _anomaly() -> tuple[bool, bool]:
    return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()


def _deterministic() -> tuple[bool, bool]:
    on = torch.are_deterministic_algorithms_enabled()
    return on, torch.is_deterministic_algorithms_warn_only_enabled()


def _default_device() -> torch.device | None:
    """What `torch.set_default_device` has set; None without, and in a ``with torch.device`` alone.

    `torch.get_default_device` does not tell "cpu" from none, which slows nothing down.
    """
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return None if context is None else context.device


def _saved_tensors_hooks() -> Any:
    """The pair of hooks that autograd would use now; None without."""
    return torch._C._autograd._top_saved_tensors_default_hooks(False)


def _leave_hooks(value: Any) -> None:
    """Leave those on top of ``value``: torch's checkpoint does not when it is interrupted."""
    while _saved_tensors_hooks() not in (value, None):
        torch._C._autograd._pop_saved_tensors_default_hooks()


def _switches() -> dict[str, Switch]:
    """Getter and setter of each switch.

    The general ones come first, since setting them overwrites the special ones.
    """
    backends: Any = torch.backends
    cuda = backends.cuda
    switches: dict[str, Switch] = {
        "num_threads": (torch.get_num_threads, torch.set_num_threads),
        "current_device": (current_index, torch.accelerator.set_device_index),
        "default_device": (_default_device, torch.set_default_device),
        "default_dtype": (torch.get_default_dtype, torch.set_default_dtype),
        "grad_enabled": (torch.is_grad_enabled, torch._C._set_grad_enabled),
        "anomaly": (_anomaly, lambda value: torch.autograd.set_detect_anomaly(*value)),
        "saved_tensors_hooks": (_saved_tensors_hooks, _leave_hooks),
        "deterministic": (
            _deterministic,
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
    for path in _ATTRIBUTES:
        owner, _, name = path.rpartition(".")
        switches[path] = _attribute(attrgetter(owner)(backends), name)
    return switches


_SWITCHES = _switches()
