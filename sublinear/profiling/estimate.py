"""Costs without the device: shapes from meta tensors, seconds from a stated roofline."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import flop_registry

from sublinear.probe import Clock
from sublinear.profiling.training import Training, mean_of_outputs


@dataclass(frozen=True)
class Roofline:
    """A device that is not at hand: an operator takes as long as its arithmetic or its traffic.

    The longer of the two, and its launch. ``flops`` and ``bandwidth`` per second, as reached in
    practice rather than as advertised; ``launch`` in seconds (Williams et al., Roofline, 2009).
    Attention counts as meta tensors compute it, with all its scores, not as a GPU's fused operator.
    """

    name: str
    flops: float
    bandwidth: float
    launch: float = 5e-6

    def __str__(self) -> str:
        flops, bandwidth = f"{self.flops / 1e12:.3g} TFLOP/s", f"{self.bandwidth / 1e9:.3g} GB/s"
        return f"{self.name} ({flops}, {bandwidth} assumed)"


class RooflineClock(Clock, TorchDispatchMode):
    """The seconds that a roofline gives to what has run in its ``with`` block."""

    supports_higher_order_operators = True
    # Else torch's compiler leaves a model as it is inside.
    ignore_compile_internals = classmethod(lambda cls: True)

    def __init__(self, roofline: Roofline) -> None:
        super().__init__()
        self.roofline, self.seconds = roofline, 0.0

    def now(self) -> float:
        return self.seconds

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        packet = getattr(func, "_overloadpacket", func)
        view = getattr(func, "is_view", False)
        if view or "empty" in getattr(packet, "__name__", ""):
            return result
        flops = 0
        if packet in flop_registry:
            flops = flop_registry[packet](*args, **kwargs, out_val=result)
        sizes: dict[int, int] = {}
        for leaf in tree_leaves((args, kwargs, result)):
            if torch.is_tensor(leaf):
                sizes[id(leaf)] = leaf.numel() * leaf.element_size()
        traffic = sum(sizes.values())
        busy = max(flops / self.roofline.flops, traffic / self.roofline.bandwidth)
        self.seconds += busy + self.roofline.launch
        return result


def on_meta(model: nn.Module, task: Training) -> tuple[nn.Module, Training]:
    """The model without values: its copy shares nothing and takes no memory."""
    memo: dict[int, Any] = {}
    for parameter in model.parameters():
        empty = torch.empty_like(parameter, device="meta")
        memo[id(parameter)] = nn.Parameter(empty, requires_grad=parameter.requires_grad)
    for buffer in model.buffers():
        memo[id(buffer)] = torch.empty_like(buffer, device="meta")
    given = task.args, task.kwargs
    args, kwargs = tree_map_only(torch.Tensor, lambda tensor: tensor.to("meta"), given)
    return copy.deepcopy(model, memo), Training(args, kwargs, mean_of_outputs)
