"""The exercise of notebook 07."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from course.exercises.tell import NotYet, attempt, check


@check("no update is lost, and everything stayed in 16 bits", judged="both")
def check_07_kahan_add(answer: Callable[..., Any]) -> None:
    """`answer(weight, carry, update)` adds an update to 16-bit weights, in place, with Kahan's
    carry.

    It is tried on updates that are lost without a carry, in bf16 and fp16, up, down, and of very
    different sizes.
    """
    for dtype in (torch.bfloat16, torch.float16):
        eps = torch.finfo(dtype).eps
        update = (eps * torch.tensor([1 / 8, -1 / 32, 1 / 64, 3.0])).to(dtype)
        weight, carry = torch.ones(4, dtype=dtype), torch.zeros(4, dtype=dtype)
        start, steps = weight.double(), 256
        seen = _Types()
        for step in range(1, steps + 1):
            with seen:
                attempt(answer, weight, carry, update.clone())
            if step == 1 and not torch.equal(carry[:1], update[:1]):
                raise NotYet(
                    f"after one update of eps / 8 in {dtype} the weight is {weight[0]:g} "
                    f"and the carry {carry[0]:g}: nothing arrived, so the carry has to hold "
                    f"all of {update[0]:g}"
                )
        if wider := sorted(map(str, seen.types - {dtype})):
            raise NotYet(f"something was computed in {', '.join(wider)}; {dtype} alone is allowed")
        wanted = start + steps * update.double()
        missing = (weight.double() - wanted).abs() / (eps * wanted.abs())
        worst = int(missing.argmax())
        # in places: rounding takes half of one, and what the carry holds another half;
        # not `>`, which nan would pass
        if not missing[worst] <= 1.5:
            text = f"{steps} updates of {update[worst]:g} in {dtype} took 1 to {weight[worst]:g},"
            raise NotYet(f"{text} not to {wanted[worst]:g}")


class _Types(TorchDispatchMode):
    """The floating-point types of all results."""

    def __init__(self) -> None:
        super().__init__()
        self.types: set[torch.dtype] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = [each for each in tree_leaves(result) if isinstance(each, torch.Tensor)]
        self.types |= {each.dtype for each in tensors if each.is_floating_point()}
        return result
