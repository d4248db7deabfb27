"""The exercise of the front notebook 03: the 1cycle schedule, with its momentum and its tail."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.lr_scheduler import OneCycleLR

from course.exercises.tell import NotYet, attempt, check

Cycle = Callable[[torch.optim.Optimizer, float, int], Any]
MOMENTA = (0.85, 0.95)
# Of the second group, as a part of the first one's.
RATIO = 0.5
# Steps behind the end of a cycle.
MORE = 3


@check("every step of two cycles agrees with OneCycleLR", judged="inside")
def check_03_one_cycle(answer: Cycle) -> None:
    """`answer(optimizer, peak, steps)` sets the rate and the momentum of step 0 in each group, and
    its `step()` those of the next one.

    It is held against OneCycleLR with three straight phases, on optimizers with one group and with
    two, and behind the end of the cycle.
    """
    for peak, steps, groups in ((0.1, 100, 1), (2.0, 40, 2)):
        optimizer = _optimizer(groups)
        cycle = attempt(answer, optimizer, peak, steps)
        if not callable(getattr(cycle, "step", None)):
            raise NotYet("the class has no method step() yet")
        wanted = _wanted(peak, steps, groups)
        for step in range(steps + MORE):
            now = wanted[min(step, steps - 1)]
            _compare(optimizer, now, f"step {step} of {steps}, peak {peak:g}")
            if step + 1 < steps + MORE:
                optimizer.step()
                attempt(cycle.step)


def _optimizer(groups: int) -> torch.optim.SGD:
    # Not a rate of any cycle here: whoever takes it for one is found.
    rates = (0.03, 0.03 * RATIO)[:groups]
    given = [{"params": [torch.zeros(1)], "lr": rate} for rate in rates]
    return torch.optim.SGD(given, lr=1.0, momentum=0.9)


def _wanted(peak: float, steps: int, groups: int) -> list[list[tuple[float, float]]]:
    """Rate and momentum of each group at each step, by torch."""
    optimizer = _optimizer(groups)
    schedule = OneCycleLR(
        optimizer,
        [peak, peak * RATIO][:groups],
        total_steps=steps,
        three_phase=True,
        anneal_strategy="linear",
        pct_start=0.45,
        div_factor=10,
        final_div_factor=100,
        base_momentum=MOMENTA[0],
        max_momentum=MOMENTA[1],
    )
    found = []
    for step in range(steps):
        found.append([(group["lr"], group["momentum"]) for group in optimizer.param_groups])
        if step + 1 < steps:
            optimizer.step()
            schedule.step()
    return found


def _compare(optimizer: torch.optim.Optimizer, wanted: list[tuple[float, float]], at: str) -> None:
    for number, (group, (rate, momentum)) in enumerate(
        zip(optimizer.param_groups, wanted, strict=True)
    ):
        where = f"{at}: group {number}" if len(wanted) > 1 else at
        _same(group["lr"], rate, f"{where} has the rate")
        _same(group["momentum"], momentum, f"{where} has the momentum")


def _same(found: Any, wanted: float, what: str) -> None:
    if not math.isclose(float(found), wanted, rel_tol=1e-5):
        raise NotYet(f"{what} {float(found):.4g}, and with torch {wanted:.4g}")
