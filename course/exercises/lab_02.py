"""The exercise of notebook 02."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from course.exercises.tell import NotYet, attempt, check
from labkit.restore import preserve_rng


@check("just below your rate gradient descent arrives, just above it diverges")
def check_02_largest_rate(answer: Callable[..., Any]) -> None:
    """`answer(inputs)` is the limit of gradient descent's rate: a linear model with a bias, half
    the mean square.
    """
    with preserve_rng():
        torch.manual_seed(2)
        rows = torch.randn(400, 5)
    cases = {
        "400 rows, two of the five features alike": torch.cat(
            [rows[:, :4], rows[:, :1] + 0.3 * rows[:, 4:]], dim=1
        ),
        "400 rows with a mean of 2": rows + 2,
        "10 rows of zeros, where only the bias is left": torch.zeros(10, 3),
    }
    for case, inputs in cases.items():
        got = attempt(answer, inputs.clone())
        if got is None:
            raise NotYet("return the largest rate")
        rate = got.item() if isinstance(got, torch.Tensor) and got.numel() == 1 else got
        if not isinstance(rate, (int, float)) or isinstance(rate, bool) or not 0 < rate < math.inf:
            raise NotYet(f"{case}: a positive number is wanted, not {got!r}")
        for share, diverges in ((0.99, False), (1.01, True)):
            swing = _swing(inputs, share * rate)
            if (swing < -1) is not diverges:
                what = "does not diverge yet" if diverges else "diverges already"
                factor = f"the steepest direction is multiplied by {swing:.3f} a step"
                raise NotYet(f"{case}: at {share} of your {rate:.4g} it {what}; {factor}")


def _swing(inputs: torch.Tensor, rate: float) -> float:
    """What a step multiplies the distance to the minimum by, in the direction of the largest
    curvature.
    """
    columns = torch.cat([inputs, torch.ones_like(inputs[:, :1])], dim=1).double()
    curvatures = torch.linalg.eigvalsh(columns.T @ columns / len(columns))
    return 1 - rate * float(curvatures[-1])
