"""The exercise of notebook 06."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from course.exercises.tell import NotYet, attempt, check


@check("clipped in true units, skipped on overflow, and the scale follows")
def check_06_clip_order(answer: Callable[..., Any]) -> None:
    """`answer(scaler, optimizer, parameters, loss, max_norm)` does one step of fp16 training
    with clipped gradients.

    It is tried on the CPU on a large gradient, one that overflows, and a small one.
    """
    weight = torch.nn.Parameter(torch.zeros(2))
    # moves the weight by exactly the gradient that it is given
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    for gradient, wanted, why in (
        ([3.0, 4.0], 1.0, "a gradient of norm 5, to be clipped to norm 1,"),
        ([math.inf, 0.0], 0.0, "an infinite gradient, whose step has to be skipped,"),
        ([0.3, 0.4], 0.5, "the gradient after that one, of norm 0.5 and not to be clipped,"),
    ):
        before, scale = weight.detach().clone(), scaler.get_scale()
        try:
            attempt(answer, scaler, optimizer, [weight], weight @ torch.tensor(gradient), 1.0)
        except RuntimeError as error:
            # GradScaler's own words for calls that are missing or twice there
            raise NotYet(f"at {why} torch said: {error}") from error
        moved = (weight.detach() - before).norm().item()
        if not math.isclose(moved, wanted, rel_tol=1e-4, abs_tol=1e-7):
            raise NotYet(f"{why} moved the weight by {moved:.3g}, not by {wanted:g}")
        if wanted == 0 and scaler.get_scale() != scale / 2:
            raise NotYet(f"{why} left the scale at {scaler.get_scale():g}: it has to be halved")
