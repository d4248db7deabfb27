"""The exercise of notebook 15."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from course.exercises.tell import NotYet, attempt, check


@check("clipped, and nothing broke where a gradient was missing")
def check_15_clip(answer: Callable[..., Any]) -> None:
    """`answer(parameters, max_norm)` clips the total norm in place, passes over missing
    gradients, returns the norm.
    """
    for case, given, total in (
        ("gradients of norm 5", ([3.0], [4.0]), 5.0),
        ("gradients of norm 5 and one that is None", ([3.0], None, [4.0]), 5.0),
        ("gradients of norm 0.5, smaller than allowed", ([0.3, 0.4],), 0.5),
        ("gradients of zeros", ([0.0], [0.0]), 0.0),
        ("no gradient at all", (None, None), 0.0),
    ):
        parameters = [torch.nn.Parameter(torch.zeros(len(gradient or [0]))) for gradient in given]
        for parameter, gradient in zip(parameters, given, strict=True):
            parameter.grad = None if gradient is None else torch.tensor(gradient)
        kept = [parameter.grad for parameter in parameters]
        try:
            found = attempt(answer, iter(parameters), 1.0)
        except (AttributeError, TypeError, RuntimeError) as error:
            # Python's and torch's own words at a None.
            raise NotYet(f"at {case} Python said: {error}") from error
        if not isinstance(found, float | int | torch.Tensor) or not math.isclose(
            float(found), total, rel_tol=1e-5
        ):
            raise NotYet(f"{case}: return the total norm they had, {total:g}, not {found!r}")
        for parameter, before, gradient in zip(parameters, kept, given, strict=True):
            if parameter.grad is not before:
                raise NotYet(
                    f"{case}: a gradient was replaced; scale in place, and leave None alone"
                )
            if before is None or gradient is None:
                continue
            wanted = torch.tensor(gradient) / max(total, 1.0)
            if not torch.allclose(before, wanted):
                raise NotYet(f"{case}: one became {before.tolist()}, not {wanted.tolist()}")
