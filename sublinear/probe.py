"""Bytes and seconds of a stretch of code: measured on its device, or calculated from a roofline without it."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from labkit.device import synchronize
from labkit.memory import StorageTracker


@dataclass(frozen=True)
class Roofline:
    """A device that is not at hand: an operator takes as long as its arithmetic or its memory traffic, plus its launch.

    ``flops`` and ``bandwidth`` per second, as reached in practice rather than as advertised; ``launch`` in seconds
    (Williams et al., Roofline, 2009). ``scaled_dot_product_attention`` is taken to be one fused operator, as on a GPU.
    """

    name: str
    flops: float
    bandwidth: float
    launch: float = 5e-6

    def __post_init__(self) -> None:
        for field in ("flops", "bandwidth"):
            if not getattr(self, field) > 0:
                raise ValueError(
                    f"Roofline({field}={getattr(self, field)!r}): a positive number per second is accepted"
                )
        if not self.launch >= 0:
            raise ValueError(f"Roofline(launch={self.launch!r}): seconds, 0 or more, are accepted")

    def __str__(self) -> str:
        return f"{self.name} ({self.flops / 1e12:.3g} TFLOP/s, {self.bandwidth / 1e9:.3g} GB/s assumed)"


class MemoryProbe:
    """``with MemoryProbe(device) as probe``: bytes added since, and the most since `restart`.

    On CUDA from the allocator, elsewhere exactly, by a `StorageTracker`.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._tracker = None if device.type == "cuda" else StorageTracker(device)

    def __enter__(self) -> MemoryProbe:
        if self._tracker:
            self._tracker.__enter__()
        else:
            torch.cuda.reset_peak_memory_stats(self.device)
            self._begin = torch.cuda.memory_allocated(self.device)
        return self

    def __exit__(self, *exc_info: Any) -> None:
        if self._tracker:
            self._tracker.__exit__(*exc_info)

    def restart(self) -> None:
        """Let ``peak`` begin anew."""
        if self._tracker:
            self._tracker.restart()
        else:
            torch.cuda.reset_peak_memory_stats(self.device)

    @property
    def added(self) -> int:
        """Bytes alive now beyond those alive on entry; negative where some of those were freed."""
        if self._tracker:
            self._tracker.record()
            return self._tracker.current - self._tracker.existing
        return torch.cuda.memory_allocated(self.device) - self._begin

    @property
    def peak(self) -> int:
        """The most bytes beyond those alive on entry since the last `restart`."""
        if self._tracker:
            self._tracker.record()
            return self._tracker.peak - self._tracker.existing
        return torch.cuda.max_memory_allocated(self.device) - self._begin


class Clock:
    """``with Clock(roofline)``: call `now` for seconds, real ones or those that a roofline gives to what has run."""

    def __init__(self, roofline: Roofline | None = None) -> None:
        self._stack, self._mode = ExitStack(), _RooflineMode(roofline) if roofline else None

    def __enter__(self) -> Clock:
        if self._mode:
            self._stack.enter_context(self._mode)
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self._stack.close()

    def now(self) -> float:
        """Seconds since some moment, all work that was queued included."""
        if self._mode:
            return self._mode.seconds
        synchronize()
        return time.perf_counter()


class _RooflineMode(TorchDispatchMode):
    supports_higher_order_operators = True

    def __init__(self, roofline: Roofline) -> None:
        super().__init__()
        self.roofline, self.seconds = roofline, 0.0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        packet = getattr(func, "_overloadpacket", func)
        if not getattr(func, "is_view", False) and "empty" not in getattr(packet, "__name__", ""):
            flops = (
                flop_registry[packet](*args, **kwargs, out_val=result)
                if packet in flop_registry
                else 0
            )
            tensors = [
                leaf for leaf in tree_leaves((args, kwargs, result)) if torch.is_tensor(leaf)
            ]
            traffic = sum({id(t): t.numel() * t.element_size() for t in tensors}.values())
            busy = max(flops / self.roofline.flops, traffic / self.roofline.bandwidth)
            self.seconds += busy + self.roofline.launch
        return result


class FusedAttention(TorchFunctionMode):
    """Attention as a GPU's memory-efficient kernel: on meta tensors torch would write out all scores.

    To be entered inside what a checkpoint computes again: a mode around ``backward()`` is off while that runs.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return (_fused if func is scaled_dot_product_attention else func)(*args, **(kwargs or {}))


def _fused(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    if enable_gqa or query.dim() != 4:  # which that kernel does not take: as torch does it
        return scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    if attn_mask is not None:
        attn_mask = attn_mask.to(query.dtype).expand(*query.shape[:-1], key.shape[-2])
    kernel = torch.ops.aten._scaled_dot_product_efficient_attention
    return kernel(query, key, value, attn_mask, True, dropout_p, is_causal, scale=scale)[0]
