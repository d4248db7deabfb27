"""The exercise of the front notebook 18: gradients clipped by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from course.exercises.tell import NotYet, attempt, check

Clip = Callable[[list[nn.Parameter], float], Any]
# Gradients of weights; a weight may have none.
Gradients = Sequence[Sequence[float] | None]


@check("one length for all gradients: it races in the panel below")
def check_18_clip(answer: Clip) -> None:
    """`answer(parameters, max_norm)` shortens the gradients in place so that their norm, as one
    vector, is at most `max_norm`, and returns the norm from before.

    Where that is not finite it sets the gradients to zero.
    """
    cases: tuple[tuple[Gradients, float, str], ...] = (
        (([3.0], [4.0]), 1.0, "the gradients 3 and 4"),
        (([0.3], [0.4]), 1.0, "the gradients 0.3 and 0.4, which are short"),
        (([0.0], [0.0]), 1.0, "two gradients of zero"),
        (([2.0, 3.0], [6.0]), 3.5, "the gradients (2, 3) and 6"),
        (([3.0], None, [4.0]), 1.0, "the gradients 3 and 4, and a weight whose grad is None"),
    )
    for gradients, max_norm, why in cases:
        _clipped(answer, gradients, max_norm, f"{why}, with max_norm={max_norm:g}")
    for bad in (math.inf, math.nan):
        _not_finite(answer, ([bad], [1.0]), f"the gradients {bad} and 1, with max_norm=1")


def _clipped(answer: Clip, gradients: Gradients, max_norm: float, why: str) -> None:
    before = torch.cat([torch.tensor(values) for values in gradients if values is not None])
    norm = before.norm().item()
    wanted = before * min(1.0, max_norm / norm) if norm else before
    found, now = _called(answer, gradients, max_norm, why)
    if not torch.allclose(now, wanted, rtol=1e-4, atol=1e-7):
        raise NotYet(f"{why}: they became {_told(now)}, not {_told(wanted)}")
    _returned(found, norm, why)


def _not_finite(answer: Clip, gradients: tuple[list[float], ...], why: str) -> None:
    found, now = _called(answer, gradients, 1.0, why)
    if now.ne(0).any():
        raise NotYet(f"{why}: they became {_told(now)}; set them to zero, or the weights are lost")
    _returned(found, gradients[0][0], why)


def _called(answer: Clip, gradients: Gradients, max_norm: float, why: str) -> tuple[Any, Tensor]:
    """What the function returns, and its gradients after the call, as one vector."""
    parameters = [nn.Parameter(torch.zeros(len(values or [0.0]))) for values in gradients]
    for parameter, values in zip(parameters, gradients, strict=True):
        parameter.grad = None if values is None else torch.tensor(values)
    before = [parameter.grad for parameter in parameters]
    try:
        found = attempt(answer, parameters, max_norm)
    except (AttributeError, TypeError) as error:
        # Without such a weight it is an error of another kind, and the reader's to see.
        if None not in before:
            raise
        raise NotYet(f"{why}: leave that weight out; yours ended in {error}") from error
    now = [parameter.grad for parameter in parameters]
    _in_place(before, now, why)
    return found, torch.cat([gradient for gradient in now if gradient is not None])


def _in_place(before: Sequence[Tensor | None], now: Sequence[Tensor | None], why: str) -> None:
    """NotYet where a gradient is another tensor than it was."""
    for old, new in zip(before, now, strict=True):
        if old is None and new is not None:
            raise NotYet(f"{why}: a weight without a gradient has got one")
        if old is not None and new is None:
            raise NotYet(f"{why}: a gradient is gone; change its numbers, and keep it")
        if old is not new:
            raise NotYet(f"{why}: a gradient is a new tensor; change the numbers of the old one")


def _returned(found: Any, norm: float, why: str) -> None:
    if not isinstance(found, float | int | Tensor):
        raise NotYet(f"{why}: return the norm; returned was {found!r}")
    value = float(found)
    alike = math.isnan(value) if math.isnan(norm) else math.isclose(value, norm, rel_tol=1e-4)
    if not alike:
        raise NotYet(f"{why}: the norm before clipping is {norm:.4g}; returned was {value:.4g}")


def _told(numbers: Tensor) -> str:
    return "(" + ", ".join(f"{number + 0.0:.4g}" for number in numbers.tolist()) + ")"
