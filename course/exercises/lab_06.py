"""The exercise of notebook 06: what autocast does to a linear layer, by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course.exercises.tell import NotYet, attempt, check, far

Layer = Callable[[Tensor, Tensor, Tensor], Any]
# The nearest number of bf16 is 1; fp16 has the first one and not the second.
FINE, FINER = 1 + 2.0**-10, 1 + 2.0**-12


@check("bf16 in the product, 32 bits in all that stays", judged="both")
def check_06_mixed_linear(answer: Layer) -> None:
    """`answer(x, weight, bias)` is `x @ weight.T + bias` in fp32; only the product's two factors
    are rounded to bf16. The weight stays as it was, and gradients arrive in fp32.

    It is tried on the CPU, on numbers that bf16 has and on some that it rounds.
    """
    _is_a_linear_layer(answer)
    _rounds_the_factors(answer)
    _multiplies_in_bf16(answer)
    _keeps_the_bias(answer)
    if not far(answer):
        _learns(answer)


def _call(answer: Layer, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The result, of a weight that has stayed as it was."""
    before = weight.detach().clone()
    found = attempt(answer, x, weight, bias)
    if not isinstance(found, Tensor):
        raise NotYet(f"return a tensor; returned was {found!r}")
    if weight.dtype != before.dtype or not torch.equal(weight.detach(), before):
        raise NotYet(
            "the weight was changed for good: round a copy of it, as weight.bfloat16() makes one"
        )
    return found


def _is_a_linear_layer(answer: Layer) -> None:
    """On small whole numbers, which bf16 has exactly; of two and of three dimensions."""
    weight = torch.arange(12.0).reshape(4, 3)
    bias = torch.tensor([1.0, 2.0, 3.0, 4.0])
    for shape in ((2, 3), (5, 2, 3)):
        x = (torch.arange(float(torch.Size(shape).numel())) % 4).reshape(shape)
        found = _call(answer, x, weight, bias)
        if found.dtype != torch.float32:
            raise NotYet(f"the result is {found.dtype}: what follows the product needs fp32")
        if found.shape != (*shape[:-1], 4):
            raise NotYet(
                f"x of {shape} and a weight of (4, 3) give {(*shape[:-1], 4)}, "
                f"yours gives {tuple(found.shape)}"
            )
        if not torch.equal(found, x @ weight.T + bias):
            raise NotYet("on small whole numbers it has to be x @ weight.T + bias, exactly")


def _rounds_the_factors(answer: Layer) -> None:
    for name, place in (("x", 0), ("the weight", 1)):
        found = _times_one(answer, FINE, place)
        if found != 1:
            to_fp16 = _times_one(answer, FINER, place) == 1
            how = "rounded to fp16, as .half() does" if to_fp16 else "multiplied in 32 bits"
            raise NotYet(
                f"{name} of {FINE:.6f} is 1 in bf16, so that 1 times it is 1; yours is "
                f"{found:.6f}: {name} was {how}; .bfloat16() rounds to bf16"
            )


def _times_one(answer: Layer, number: float, place: int) -> float:
    """The product of this number, as x (place 0) or as the weight, and 1."""
    factors = [torch.ones(1, 1), torch.ones(1, 1)]
    factors[place] *= number
    x, weight = factors
    return _call(answer, x, weight, torch.zeros(1)).item()


def _multiplies_in_bf16(answer: Layer) -> None:
    """On factors that bf16 has, and a sum that it has not: a product in bf16 rounds it."""
    x, weight = torch.tensor([[1.0, FINE - 1]]), torch.ones(1, 2)
    found = _call(answer, x, weight, torch.zeros(1)).item()
    if found != 1:
        raise NotYet(
            f"the rounded factors were multiplied in 32 bits, which is no faster: the product "
            f"itself is bf16, so that 1 + {FINE - 1:.6f} is 1; make it fp32 afterwards"
        )


def _keeps_the_bias(answer: Layer) -> None:
    found = _call(answer, torch.zeros(1, 1), torch.ones(1, 1), torch.tensor([FINE])).item()
    if found != torch.tensor(FINE).item():
        raise NotYet(
            f"0 plus a bias of {FINE:.6f} gives {found:.6f}: the bias was rounded; make the "
            "product fp32 again, then add"
        )


def _learns(answer: Layer) -> None:
    """Gradients pass the roundings as if they were not there."""
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    weight = torch.tensor([[2.0, -1.0]], requires_grad=True)
    bias = torch.zeros(1, requires_grad=True)
    found = _call(answer, x, weight, bias)
    if not found.requires_grad:
        raise NotYet("the result knows no gradient: round with .bfloat16(), which passes it on")
    found.sum().backward()
    for name, each, wanted in (
        ("the weight", weight, torch.tensor([[4.0, 6.0]])),
        ("x", x, torch.tensor([[2.0, -1.0], [2.0, -1.0]])),
        ("the bias", bias, torch.tensor([2.0])),
    ):
        if each.grad is None:
            raise NotYet(f"no gradient arrives at {name}: .detach() and .data cut it off")
        if not torch.equal(each.grad, wanted):
            raise NotYet(
                f"the gradient of {name} is {each.grad.tolist()}, and should be {wanted.tolist()}"
            )
