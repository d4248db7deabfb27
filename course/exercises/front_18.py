"""The exercise of the front notebook 18: gradients clipped by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from course.exercises.tell import NotYet, attempt, check

Clip = Callable[[list[nn.Parameter], float], Any]
# Gradients of two weights; the third weight has none.
Gradients = tuple[Sequence[float], Sequence[float]]


@check("one length for all gradients: yours is in the panel below")
def check_18_clip(answer: Clip) -> None:
    """`answer(parameters, max_norm)` shortens the gradients in place so that their norm, as one
    vector, is at most `max_norm`, and returns the norm from before.

    Where that is not finite it sets the gradients to zero.
    """
    for gradients, max_norm, why in (
        (([3.0], [4.0]), 1.0, "the gradients 3 and 4"),
        (([0.3], [0.4]), 1.0, "the gradients 0.3 and 0.4, which are short"),
        (([0.0], [0.0]), 1.0, "two gradients of zero"),
        (([2.0, 3.0], [6.0]), 3.5, "the gradients (2, 3) and 6"),
    ):
        _clipped(answer, gradients, max_norm, f"{why}, with max_norm={max_norm:g}")
    for bad in (math.inf, math.nan):
        _not_finite(answer, ([bad], [1.0]), f"the gradients {bad} and 1, with max_norm=1")


def _parameters(gradients: Gradients) -> list[nn.Parameter]:
    made = [nn.Parameter(torch.zeros(len(values))) for values in (*gradients, [0.0])]
    for parameter, values in zip(made, gradients, strict=False):
        parameter.grad = torch.tensor(values)
    return made


def _clipped(answer: Clip, gradients: Gradients, max_norm: float, why: str) -> None:
    before = torch.cat([torch.tensor(values) for values in gradients])
    norm = before.norm().item()
    wanted = before * min(1.0, max_norm / norm) if norm else before
    parameters = _parameters(gradients)
    found = attempt(answer, parameters, max_norm)
    now = _left(parameters, why)
    if not torch.allclose(now, wanted, rtol=1e-4, atol=1e-7):
        raise NotYet(f"{why}: they became {_told(now)}, not {_told(wanted)}")
    _returned(found, norm, why)


def _not_finite(answer: Clip, gradients: Gradients, why: str) -> None:
    parameters = _parameters(gradients)
    found = attempt(answer, parameters, 1.0)
    now = _left(parameters, why)
    if now.ne(0).any():
        raise NotYet(f"{why}: they became {_told(now)}; set them to zero, or the weights are lost")
    _returned(found, gradients[0][0], why)


def _left(parameters: list[nn.Parameter], why: str) -> Tensor:
    """The gradients after the call, as one vector."""
    *clipped, without = parameters
    if without.grad is not None:
        raise NotYet(f"{why}: a weight without a gradient has got one")
    left = [parameter.grad for parameter in clipped if parameter.grad is not None]
    if len(left) < len(clipped):
        raise NotYet(f"{why}: a gradient is gone; change its numbers, and keep it")
    return torch.cat(left)


def _returned(found: Any, norm: float, why: str) -> None:
    if not isinstance(found, float | int | Tensor):
        raise NotYet(f"{why}: return the norm; returned was {found!r}")
    value = float(found)
    alike = math.isnan(value) if math.isnan(norm) else math.isclose(value, norm, rel_tol=1e-4)
    if not alike:
        raise NotYet(f"{why}: the norm before clipping is {norm:.4g}; returned was {value:.4g}")


def _told(numbers: Tensor) -> str:
    return "(" + ", ".join(f"{number + 0.0:.4g}" for number in numbers.tolist()) + ")"
