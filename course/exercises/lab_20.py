"""The exercise of notebook 20."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from course.exercises.tell import NotYet, attempt, check
from labkit.restore import preserve_rng


class _Witness(nn.Module):
    """Passes its input on, and notes each time in which modes it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[bool, bool]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append((self.training, torch.is_grad_enabled()))
        return x


@check("the right mean, nothing recorded, and the network given back as it was", judged="both")
def check_20_validate(answer: Callable[..., Any]) -> None:
    """`answer(net, batches)` is the mean cross-entropy over all samples, measured as a
    validation should be.
    """
    for training in (True, False):
        with preserve_rng():
            torch.manual_seed(20)
            witness, frozen = _Witness(), nn.BatchNorm1d(3)
            net = nn.Sequential(witness, nn.Linear(4, 3), frozen, nn.Dropout(0.5))
            batches = [(torch.randn(rows, 4), torch.randint(3, (rows,))) for rows in (8, 8, 2)]
            with torch.no_grad():
                losses = [F.cross_entropy(net.eval()(x), y, reduction="none") for x, y in batches]
            right, mean_of_means = (
                torch.cat(losses).mean().item(),
                sum(each.mean().item() for each in losses) / 3,
            )
            witness.seen.clear()
            net.train(training)
            frozen.eval()
            found = attempt(answer, net, batches)
        if found is None:
            raise NotYet("return the mean loss over all samples")
        if not witness.seen:
            raise NotYet("net was never called")
        if any(was_training for was_training, _ in witness.seen):
            raise NotYet(
                "net was called in training mode: dropout drops, "
                "and batch norm learns from the data"
            )
        if any(recorded for _, recorded in witness.seen):
            raise NotYet("autograd was recording while net was called")
        if net.training is not training:
            raise NotYet(
                f"net.training was {training} before and is {net.training} afterwards: "
                "give it back as it was"
            )
        if not isinstance(found, float):
            raise NotYet(
                f"a {type(found).__name__} came back: return a plain number, as .item() gives it"
            )
        _compare(found, right, mean_of_means)
        if frozen.training:
            raise NotYet("a layer that was frozen by eval() before is in training mode afterwards")


def _compare(found: float, right: float, mean_of_means: float) -> None:
    """Raise NotYet unless the mean loss is right, and name the usual mistake."""
    if abs(found - right) <= 1e-5:
        return
    hint = f"the mean loss is {right:.5f}, not {found:.5f}"
    if abs(found - mean_of_means) < 1e-5:
        hint += ": a mean of the batches' means gives the two samples of the last batch "
        hint += "too much weight"
    raise NotYet(hint)
