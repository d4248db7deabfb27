"""The exercise of notebook 03."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from course.exercises.tell import NotYet, attempt, check


@check("every step of two different cycles agrees with OneCycleLR")
def check_03_one_cycle_lr(answer: Callable[..., Any]) -> None:
    """`answer(step, max_lr, total_steps, pct_start, div_factor, final_div_factor)` is the rate
    of OneCycleLR.
    """
    from labkit.schedule import schedule_curve

    for max_lr, steps, *shape in ((0.1, 100, 0.3, 25.0, 1e4), (2.0, 37, 0.25, 10.0, 100.0)):
        optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(
            optimizer,
            max_lr,
            steps,
            pct_start=shape[0],
            div_factor=shape[1],
            final_div_factor=shape[2],
        )
        for step, expected in enumerate(schedule_curve(scheduler, steps).lrs[:, 0].tolist()):
            got = attempt(answer, step, max_lr, steps, *shape)
            if got is None:
                raise NotYet("the function returns nothing yet")
            if not math.isclose(got, expected, rel_tol=1e-6):
                cycle = f"max_lr={max_lr}, pct_start={shape[0]}, div_factor={shape[1]:g}"
                where = f"step {step} of {steps} ({cycle})"
                raise NotYet(f"at {where} you give {got:.6g}, and torch {expected:.6g}")
