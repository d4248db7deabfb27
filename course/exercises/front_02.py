"""The exercise of the front notebook 02: an epoch of minibatch SGD by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course.exercises.tell import NotYet, attempt, check
from labkit.restore import preserve_rng

Epoch = Callable[[Tensor, Tensor, Tensor, int, float], Any]
# Of one row, of the rows of a whole batch of three, and of one that was left alone.
ALONE, OF_THREE = 1.0, 1 / 3
EPOCHS = 12


@check("every row once an epoch, in a new order: your epochs are in the panel below")
def check_02_sgd_epoch(answer: Epoch) -> None:
    """`answer(X, y, w, batch_size, rate)` returns the weights after one epoch of minibatch SGD.

    The model is `X @ w`, its loss half the mean squared error. Each row is used once, in an order
    that is new in each call, the last and smaller batch too; `w` stays as it is.
    """
    _one_batch(answer)
    _weights_of_before(answer)
    _each_row_once(answer)
    _new_orders(answer)


def _epoch(answer: Epoch, X: Tensor, y: Tensor, w: Tensor, batch_size: int, rate: float) -> Tensor:
    before = w.clone()
    found = attempt(answer, X.clone(), y.clone(), w, batch_size, rate)
    if found is None:
        raise NotYet("return the new weights")
    if not isinstance(found, Tensor) or found.shape != before.shape:
        raise NotYet(f"return a tensor of the shape {tuple(before.shape)}, not {_shape(found)}")
    if not w.equal(before):
        raise NotYet(
            "w was changed in place: whoever called you may need it; w = w - ... makes a new one"
        )
    return found.detach()


def _shape(found: object) -> str:
    return f"{tuple(found.shape)}" if isinstance(found, Tensor) else f"{found!r}"


def _one_batch(answer: Epoch) -> None:
    """With all rows in one batch an epoch is a step of gradient descent."""
    with preserve_rng():
        torch.manual_seed(2)
        X, y, w = torch.randn(12, 3), torch.randn(12), torch.randn(3)
    wanted = w - 0.1 * X.T @ (X @ w - y) / len(X)
    found = _epoch(answer, X, y, w, len(X), 0.1)
    if not torch.allclose(found, wanted, rtol=1e-4, atol=1e-5):
        part = (found - w).norm() / (wanted - w).norm()
        raise NotYet(
            f"12 rows in one batch: your step is {part:.3g} times as long as that of the mean "
            "gradient, x.T @ (x @ w - y) / m with the m rows of the batch, or points elsewhere"
        )


def _weights_of_before(answer: Epoch) -> None:
    """A batch begins where the one before it ended."""
    ones = torch.ones(4, 1)
    found = _epoch(answer, ones, ones[:, 0], torch.zeros(1), 2, 0.5).item()
    if abs(found - 0.75) > 1e-4:
        raise NotYet(
            "four rows of 1, to be predicted as 1, two a batch, rate 0.5: the weight goes from 0 "
            f"to 0.5 and then to 0.75, not to {found:.4g}"
        )


def _shares(answer: Epoch) -> Tensor:
    """With the identity for X, each weight tells how often its row came, and in which company."""
    return _epoch(answer, torch.eye(7), torch.ones(7), torch.zeros(7), 3, 1.0)


def _each_row_once(answer: Epoch) -> None:
    shares = _shares(answer)
    found = sorted(shares.tolist())
    wanted = [OF_THREE] * 6 + [ALONE]
    if all(abs(a - b) < 1e-4 for a, b in zip(found, wanted, strict=True)):
        return
    told = ", ".join(f"{share:.2g}" for share in shares.tolist())
    hint = "each row once, six of them in threes and one alone"
    if min(found) == 0 and max(found) > ALONE / 2:
        hint = "a row of share 0 never came: are rows drawn twice, or is the last batch dropped?"
    elif min(found) == 0:
        hint = "the row that does not fill a batch was left out"
    elif max(found) < ALONE / 2:
        hint = "the last batch has one row: divide by the rows that it has"
    raise NotYet(f"7 rows, 3 a batch: their shares are {told}; {hint}")


def _new_orders(answer: Epoch) -> None:
    alone = {int(_shares(answer).argmax()) for _ in range(EPOCHS)}
    if len(alone) == 1:
        raise NotYet(
            f"in {EPOCHS} epochs row {alone.pop()} was always the last: shuffle anew in each call, "
            "without a seed of your own"
        )
