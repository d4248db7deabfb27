"""What one training step does, in exact counts: the same on every run,
so that tests can hold them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from labkit import show
from labkit.graphs import watched_replays
from labkit.memory import saved_bytes
from labkit.text import format_bytes

# Operators that allocate, rename or read a tensor without starting a computation; views are known
# by their schema.
_NO_LAUNCH = {
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "_unsafe_view",
    "resize_",
    "resize_as_",
    "set_",
    "_local_scalar_dense",
    "is_pinned",
    "is_same_size",
    "record_stream",
}
_COPIES = {"_to_copy", "copy", "copy_"}
_INDEXING = {"index", "index_put", "index_put_"}


@dataclass(frozen=True)
class Counters:
    """Counts of one step, equal on every machine with the same device type and torch version.

    flops: floating-point operations of matrix products, convolutions and attention (a multiply-add
    is 2), by the formulas of ``torch.utils.flop_counter``. launches: operators that compute,
    without views and allocations; one may start several kernels, or a few for many tensors.
    saved_bytes: the most that autograd held for backward at one time. host_reads: operators whose
    result the CPU must wait for (``.item()``, ``nonzero``, masks, ``equal``, copies from a device
    to the CPU), which drain a GPU's queue. parameter_bytes: of the model, if one was given.
    """

    flops: int
    launches: int
    saved_bytes: int
    host_reads: int
    parameter_bytes: int | None = None

    def rows(self) -> list[tuple[str, str]]:
        """The name of each count, and the count as text."""
        rows = [
            ("FLOPs", f"{self.flops:,}"),
            ("launches", f"{self.launches:,}"),
            ("saved for backward", format_bytes(self.saved_bytes)),
            ("host reads", f"{self.host_reads:,}"),
        ]
        if self.parameter_bytes is not None:
            rows.append(("parameters", format_bytes(self.parameter_bytes)))
        return rows

    def __str__(self) -> str:
        rows = self.rows()
        width = max(len(value) for _, value in rows)
        return "\n".join(f"{name:<18}  {value:>{width}}" for name, value in rows)

    def _repr_html_(self) -> str:
        return show.result(show.table([["one step", ""], *self.rows()]))


def count(step: Callable[[], Any], model: nn.Module | None = None) -> Counters:
    """Run ``step()`` once and count. It is a real step: it trains the model and draws random
    numbers.

    Compiled code counts as the operators that it calls. What the step raises comes through and
    nothing of the counting stays behind; RuntimeError for a step that replays a CUDA graph, whose
    operators nobody sees; TypeError for a step that cannot be called, or a model that is none.
    Counting saved bytes has the limits named in `labkit.memory.MemoryMeter`.

    >>> inputs, weight = torch.ones(4, 6), torch.ones(6, 2)
    >>> counted = count(lambda: torch.relu(inputs @ weight))
    >>> counted.flops, counted.launches
    (96, 2)
    """
    if not callable(step):
        raise TypeError(
            f"step={step!r} cannot be called: pass a function of no arguments that does one "
            "training step"
        )
    if model is not None and not isinstance(model, nn.Module):
        raise TypeError(f"model={model!r} is not an nn.Module")
    with CountingMode() as mode, watched_replays() as replays:
        saved = saved_bytes(step)
    if replays.count:
        raise RuntimeError("the step replays a CUDA graph")
    size = None if model is None else sum(parameter.nbytes for parameter in model.parameters())
    return Counters(mode.flops, mode.launches, saved, mode.host_reads, size)


class CountingMode(TorchDispatchMode):
    """Counts FLOPs, launches and host reads of what runs inside; the fields of `Counters`."""

    # A fused operator counts as one launch.
    supports_higher_order_operators = True
    # Else compiled code would step aside for the eager one.
    ignore_compile_internals = classmethod(lambda cls: True)

    def __init__(self) -> None:
        # imported late: it brings Triton's compiler
        from torch.utils.flop_counter import flop_registry

        super().__init__()
        self.formulas = flop_registry
        self.flops = self.launches = self.host_reads = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            # A wrapper: it unpacks itself, then its plain tensors come by here.
            return NotImplemented
        kwargs = kwargs or {}
        # higher-order operators have no overloads.
        operator = getattr(func, "_overloadpacket", func)
        namespace = getattr(func, "namespace", "")
        if operator not in self.formulas and operator is not func and namespace != "prim":
            # In inference mode, composite operators arrive here before they were taken apart.
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        result = func(*args, **kwargs)
        if operator in self.formulas:
            self.flops += self.formulas[operator](*args, **kwargs, out_val=result)
        is_view = getattr(func, "is_view", False) or namespace in ("prim", "profiler")
        if not is_view and operator.__name__ not in _NO_LAUNCH:
            self.launches += 1
        self.host_reads += _waits_for_device(func, args, kwargs, result)
        return result


def _waits_for_device(func: Any, args: Any, kwargs: dict[str, Any], result: Any) -> bool:
    """Whether the CPU needs this operator's values before it can go on, on a GPU; a CPU's own
    tensors count alike.
    """
    tags, name = getattr(func, "tags", ()), getattr(func, "_overloadpacket", func).__name__
    # By a mask: the number of hits is a size; by whole numbers: no need to know.
    if name in _INDEXING:
        return any(
            isinstance(i, torch.Tensor) and i.dtype in (torch.bool, torch.uint8)
            for i in tree_leaves(args[1])
        )
    if name in _COPIES:
        source = args[0] if name == "_to_copy" else args[1]
        blocking = not kwargs.get("non_blocking", args[2] if len(args) > 2 else False)
        return bool(
            blocking and source.device.type not in ("cpu", "meta") and result.device.type == "cpu"
        )
    if name == "repeat_interleave" and kwargs.get("output_size") is not None:
        return False
    return torch.Tag.data_dependent_output in tags or torch.Tag.dynamic_output_shape in tags
