"""The exercise of notebook 01."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from course.exercises.tell import NotYet, attempt, check


@check("the blocks fit together, also where they do not divide the shape", judged="both")
def check_01_blocked_product(answer: Callable[..., Any]) -> None:
    """``answer(B, C, rows, columns)`` is B @ C, computed in blocks of at most ``rows`` x
    ``columns`` elements.
    """
    generator = torch.Generator().manual_seed(1)
    for n, inner, m, rows, columns in (
        (8, 4, 6, 4, 3),
        (7, 5, 9, 3, 4),
        (5, 2, 5, 9, 9),
        (3, 3, 3, 1, 1),
    ):
        B, C = (
            torch.randn(n, inner, generator=generator),
            torch.randn(inner, m, generator=generator),
        )
        right = B @ C
        with _Products() as products:
            got = attempt(answer, B, C, rows, columns)
        where = f"({n}, {inner}) by ({inner}, {m}) in blocks of ({rows}, {columns})"
        if got is None:
            raise NotYet("write it, then run this cell again")
        if not isinstance(got, torch.Tensor) or got.shape != (n, m):
            shape = tuple(got.shape) if isinstance(got, torch.Tensor) else got
            raise NotYet(f"{where} has the shape {(n, m)}, yours {shape}")
        if not torch.allclose(got, right, atol=1e-5):
            raise NotYet(f"{where}: some elements are not those of B @ C")
        if products.largest > rows * columns:
            raise NotYet(f"{where}: one of your products had {products.largest} elements")


class _Products(TorchDispatchMode):
    """Sees the largest result of any product of matrices."""

    largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket in (
            torch.ops.aten.mm,
            torch.ops.aten.mv,
            torch.ops.aten.dot,
            torch.ops.aten.bmm,
        ):
            self.largest = max(self.largest, result.numel())
        return result
