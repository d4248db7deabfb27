"""The exercise of the front notebook 18: one update, clipped by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from course.exercises.tell import NotYet, attempt, check

Update = Callable[[list[Tensor], torch.amp.GradScaler, torch.optim.Optimizer, float], Any]
SCALE = 2.0**16


@check("one norm of all gradients, measured in true units, once for each update")
def check_18_clipped_update(answer: Update) -> None:
    """`answer(losses, scaler, optimizer, max_norm)` does one update with the mean of the losses,
    its gradient clipped to `max_norm`, and returns the norm from before.

    It is tried on the CPU with two weights and one that no loss needs.
    """
    for losses, why in (
        ([(3.0, 4.0)], "one loss with the gradient (3, 4)"),
        ([(0.3, 0.4)], "one loss with the gradient (0.3, 0.4), which is short"),
        ([(0.0, 0.0)], "one loss with the gradient (0, 0)"),
        ([(5.0, 1.0), (-1.0, 2.0)], "two losses with the gradients (5, 1) and (-1, 2)"),
        ([(5.0, 0.0), (-5.0, 0.6)], "two losses with the gradients (5, 0) and (-5, 0.6)"),
    ):
        _one_update(answer, losses, why)
    _two_updates(answer)
    _overflow(answer)


class _Trial:
    """Two weights in a model of their own; the third is for losses that are not there."""

    def __init__(self) -> None:
        self.weights = [nn.Parameter(torch.zeros(1)) for _ in range(3)]
        # Moves each weight by exactly its gradient.
        self.optimizer = torch.optim.SGD(self.weights, lr=1.0)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=SCALE)

    def update(self, answer: Update, gradients: Iterable[tuple[float, float]], why: str) -> Any:
        first, second, _ = self.weights
        losses = [(first * a + second * b).sum() for a, b in gradients]
        try:
            return attempt(answer, losses, self.scaler, self.optimizer, 1.0)
        except (RuntimeError, AssertionError) as error:
            # GradScaler's own words for calls that are missing or twice there
            raise NotYet(f"{why}: torch said: {error}") from error

    def moved(self) -> tuple[float, float]:
        first, second, _ = (weight.item() for weight in self.weights)
        return -first, -second


def _one_update(answer: Update, gradients: list[tuple[float, float]], why: str) -> None:
    trial = _Trial()
    mean = [sum(part) / len(gradients) for part in zip(*gradients, strict=True)]
    norm = math.hypot(*mean)
    wanted = [part * min(1.0, 1.0 / norm) if norm else 0.0 for part in mean]
    found = trial.update(answer, gradients, why)
    _check_move(trial, wanted, why)
    if not isinstance(found, float | int | Tensor):
        raise NotYet(f"{why}: return the norm; returned was {found!r}")
    if not math.isclose(float(found), norm, rel_tol=1e-4, abs_tol=1e-7):
        raise NotYet(
            f"{why}: the norm before clipping is {norm:.4g}; returned was {float(found):.4g}"
        )


def _check_move(trial: _Trial, wanted: Iterable[float], why: str) -> None:
    moved, right = torch.tensor(trial.moved()), torch.tensor(list(wanted))
    if not torch.allclose(moved, right, rtol=1e-4, atol=1e-7):
        raise NotYet(
            f"{why}: with max_norm=1 the weights moved by {_told(moved)}, not by {_told(right)}"
        )


def _told(numbers: Tensor) -> str:
    return "(" + ", ".join(f"{number + 0.0:.4g}" for number in numbers.tolist()) + ")"


def _two_updates(answer: Update) -> None:
    """The second begins without the gradients of the first."""
    trial = _Trial()
    why = "two updates, with the gradients (3, 4) and then (0.3, 0)"
    trial.update(answer, [(3.0, 4.0)], why)
    if any(weight.grad is not None and weight.grad.count_nonzero() for weight in trial.weights):
        raise NotYet(
            "after an update its gradients are still there: the next one would add to them"
        )
    trial.update(answer, [(0.3, 0.0)], why)
    _check_move(trial, (0.9, 0.8), why)


def _overflow(answer: Update) -> None:
    """A gradient that is not finite is the scaler's to handle."""
    trial = _Trial()
    why = "a gradient of (inf, 0), whose step the scaler skips"
    trial.update(answer, [(math.inf, 0.0)], why)
    _check_move(trial, (0.0, 0.0), why)
    if trial.scaler.get_scale() != SCALE / 2:
        raise NotYet(f"{why}: the scale is {trial.scaler.get_scale():g}: it has to be halved")
