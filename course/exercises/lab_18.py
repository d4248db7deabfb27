"""The exercise of notebook 18."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from course.exercises.tell import NotYet, attempt, check


@check("clipped to the usual norm, and no infinity in the history")
def check_18_clip_to_usual(answer: Callable[..., Any]) -> None:
    """`answer(parameters, history, quantile)` clips the total norm to a quantile of the norms so
    far; returns it.

    A norm that is not finite stays out of the history, and its gradients are taken away.
    """
    history: list[float] = []
    direction = torch.tensor([0.6, -0.8])
    kept: list[float] = []
    for norm, wanted in (
        (2.0, 2.0),
        (1.0, 1.5),
        (3.0, 2.0),
        (100.0, 2.5),
        (math.inf, None),
        (math.nan, None),
        (2.0, 2.0),
    ):
        parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in range(3)]
        # the third one has no gradient
        for parameter, part in zip(parameters, direction * norm, strict=False):
            parameter.grad = part.reshape(1).clone()
        case = f"after norms {kept}, a gradient of norm {norm:g}"
        found = attempt(answer, parameters, history, 0.5)
        gradients = [parameter.grad for parameter in parameters[:2]]
        if wanted is None:
            if any(
                gradient is not None and gradient.abs().max().item() != 0 for gradient in gradients
            ):
                raise NotYet(
                    f"{case}: take all gradients away (None or zeros), "
                    "so that the step does nothing"
                )
        else:
            kept.append(norm)
        if len(history) != len(kept) or not all(
            abs(a - b) <= 1e-3 for a, b in zip(map(float, history), kept, strict=True)
        ):
            raise NotYet(f"{case}: the history should be {kept}, and is {history}")
        if wanted is None:
            continue
        if not isinstance(found, float | int | torch.Tensor) or not math.isclose(
            float(found), wanted, rel_tol=1e-4
        ):
            raise NotYet(
                f"{case}: the threshold is the median of {kept}, {wanted:g}; returned was {found!r}"
            )
        right = direction * min(norm, wanted)
        there = [gradient for gradient in gradients if gradient is not None]
        if len(there) < 2 or not torch.allclose(torch.cat(there), right, rtol=1e-4):
            shown = [
                None if gradient is None else round(gradient.item(), 4) for gradient in gradients
            ]
            expected = [round(number, 4) for number in right.tolist()]
            raise NotYet(
                f"{case}: it became {shown}, not {expected}, of norm {min(norm, wanted):g}"
            )
        if parameters[2].grad is not None:
            raise NotYet(f"{case}: a parameter without a gradient has got one")
