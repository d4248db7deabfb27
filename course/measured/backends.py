"""Which of torch's kernels computes `F.scaled_dot_product_attention`, by the operators it calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

TABLE, NOTHING = "the table", "no attention"
# Operators by their names, and what the kernels are called.
KERNELS = {
    "_scaled_dot_product_flash_attention_for_cpu": "flash, for a CPU",
    "_scaled_dot_product_flash_attention": "flash",
    "_scaled_dot_product_cudnn_attention": "cuDNN",
    "_scaled_dot_product_efficient_attention": "memory-efficient",
    "_scaled_dot_product_fused_attention_overrideable": "this device's own",
}


class _Names(TorchDispatchMode):
    """Notes the names of all operators."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.seen.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def kernel_of(call: Callable[[], Any]) -> str:
    """Run ``call()`` once: the kernel of its attention, `TABLE` where a softmax runs by itself.

    `NOTHING` where neither is called.

    >>> import torch
    >>> kernel_of(lambda: torch.ones(2, 2).softmax(-1))
    'the table'
    """
    with _Names() as names:
        call()
    for operator, kernel in KERNELS.items():
        if operator in names.seen:
            return kernel
    if names.seen & {"_softmax", "_safe_softmax"}:
        return TABLE
    return NOTHING
