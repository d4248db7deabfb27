"""Which operators a piece of code calls."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class Operators(TorchDispatchMode):
    """``with Operators() as operators``: ``operators.seen``, whatever their overload."""

    # As torch's selective checkpoints, which are to see the same.
    supports_higher_order_operators = True
    ignore_compile_internals = classmethod(lambda cls: True)

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[object] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            # A wrapper: it unpacks itself, then its plain tensors come by here.
            return NotImplemented
        self.seen.add(getattr(func, "_overloadpacket", func))
        return func(*args, **(kwargs or {}))
