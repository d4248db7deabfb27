"""The exercise of notebook 15."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from course.exercises.tell import attempt, verdict


def check_15_clip(answer: Callable[..., Any]) -> bool:
    """`answer(parameters, max_norm)` clips the total norm in place, passes over missing gradients, returns the norm."""
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
        except (
            AttributeError,
            TypeError,
            RuntimeError,
        ) as error:  # Python's and torch's own words at a None
            return verdict(False, "", f"at {case} Python said: {error}")
        if not isinstance(found, float | int | torch.Tensor) or not math.isclose(
            float(found), total, rel_tol=1e-5
        ):
            return verdict(
                False, "", f"{case}: return the total norm they had, {total:g}, not {found!r}"
            )
        for parameter, before, gradient in zip(parameters, kept, given, strict=True):
            if parameter.grad is not before:
                return verdict(
                    False,
                    "",
                    f"{case}: a gradient was replaced; scale in place, and leave None alone",
                )
            if before is None or gradient is None:
                continue
            wanted = torch.tensor(gradient) / max(total, 1.0)
            if not torch.allclose(before, wanted):
                return verdict(
                    False, "", f"{case}: one became {before.tolist()}, not {wanted.tolist()}"
                )
    return verdict(True, "clipped, and nothing broke where a gradient was missing", "")
