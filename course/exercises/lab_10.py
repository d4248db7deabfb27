"""The exercise of notebook 10."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from course.exercises.tell import NotYet, attempt, check, far
from labkit.counters import Counters, count


@check("the right mean, one read an epoch, and no graph outlives its step", judged="both")
def check_10_one_read(answer: Callable[..., Any]) -> None:
    """`answer(step, batches)` calls `step(batch)` for each batch and returns the mean loss, a
    float, with one read.

    The losses come with their graphs, as from a real forward pass; these have to be let go.
    """
    for batches in ([3.0, 1.0, 2.0, 8.0], [5.0]):
        steps = _Steps()
        given: list[Any] = []

        def epoch(
            batches: list[float] = batches, steps: _Steps = steps, given: list[Any] = given
        ) -> None:
            given.append(attempt(answer, steps, batches))

        counted = count(epoch)
        [got], wanted, case = given, sum(batches) / len(batches), f"losses {batches}"
        if got is None:
            raise NotYet("write it, then run this cell again")
        # steps of another process count nothing here
        if not far(answer):
            _check_steps(case, steps, len(batches))
        if not isinstance(got, float):
            raise NotYet(f"{case}: return a float, yours is a {type(got).__name__}")
        if not math.isclose(got, wanted, rel_tol=1e-5):
            raise NotYet(f"{case} have the mean {wanted:g}, yours says {got:g}")
        if not far(answer):
            _check_counters(case, counted)


class _Steps:
    """A training step whose loss is the number that it is given."""

    # steps, and those among them that had no gradients
    done = idle = 0

    def __init__(self) -> None:
        self.weight = torch.ones(8, requires_grad=True)

    def __call__(self, batch: float) -> torch.Tensor:
        self.done += 1
        self.idle += not torch.is_grad_enabled()
        # `square` keeps its input for backward
        return (self.weight * batch).square().mean() / batch


def _check_steps(case: str, steps: _Steps, wanted: int) -> None:
    if steps.done != wanted:
        raise NotYet(f"{case}: {steps.done} steps were done, not {wanted}")
    if steps.idle:
        raise NotYet(f"{case}: leave gradients on around the step, it could not train without them")


def _check_counters(case: str, counted: Counters) -> None:
    if counted.host_reads != 1:
        hint = f"{counted.host_reads} reads were counted, 1 is wanted: one .item(), after the loop"
        raise NotYet(f"{case}: {hint}")
    graphs = counted.saved_bytes / count(partial(_Steps(), 1.0)).saved_bytes
    if graphs > 1.5:
        raise NotYet(f"{case}: you held the graphs of {graphs:.0f} steps, with all that they keep")
