"""What a step has to do, counted: its operations, and the bytes that its products move."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor
from torch.utils._pytree import tree_leaves

from labkit.counters import CountingMode


class Work(NamedTuple):
    """``flops``: operations of products and convolutions. ``bytes``: each of them reads its
    factors from memory and writes its result there; where a cache helps, fewer go to memory.
    What else a step computes, such as a conversion between formats, counts in neither.
    """

    flops: int
    bytes: int

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.flops / max(1, self.bytes)


def work_of(step: Callable[[], Any]) -> Work:
    """Run ``step()`` once and count. It is a real step: it trains, and draws random numbers."""
    with _Moving() as counted:
        step()
    return Work(counted.flops, counted.bytes)


class _Moving(CountingMode):
    """Counts bytes as well, of the operators that have FLOPs."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        before = self.flops
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if self.flops > before:
            for leaf in tree_leaves((args, kwargs or {}, result)):
                self.bytes += leaf.nbytes if isinstance(leaf, Tensor) else 0
        return result
