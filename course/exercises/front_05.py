"""The exercise of the front notebook 05: the noise scale from gradients of two batch sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course.exercises.tell import NotYet, attempt, check

Gradient = Callable[[int], Tensor]
SMALL, BIG, DRAWS = 4, 64, 1000
# Of the planted gradients: numbers in each, squared length, and the noise scale.
SIZE, SIGNAL, PLANTED = 200, 2.0, 400.0
NEAR = 0.15


@check("it finds the noise scale that was planted", judged="inside")
def check_05_noise_scale(answer: Callable[..., Any]) -> None:
    """`answer(gradient, small, big, draws)` returns the noise scale.

    `gradient(size)` is the gradient of a fresh batch of so many samples, as one vector. Of each
    size as many are drawn; ValueError where the estimate of the squared gradient is not positive.
    """
    sizes: Counter[int] = Counter()
    found = attempt(answer, planted(sizes), SMALL, BIG, DRAWS)
    if found is None:
        raise NotYet("return the noise scale, a number")
    _number(found)
    _fresh_draws(sizes)
    _near(float(found))
    _no_signal(answer)


def planted(sizes: Counter[int]) -> Gradient:
    """Gradients with a known noise scale: a constant vector and Gaussian noise around it."""
    source = torch.Generator().manual_seed(5)
    true = torch.full((SIZE,), (SIGNAL / SIZE) ** 0.5)

    def gradient(size: int) -> Tensor:
        sizes[size] += 1
        scatter = (PLANTED * SIGNAL / SIZE / size) ** 0.5
        return true + scatter * torch.randn(SIZE, generator=source)

    return gradient


def _number(found: Any) -> None:
    one = isinstance(found, Tensor) and found.numel() == 1
    if isinstance(found, bool) or not (one or isinstance(found, (int, float))):
        raise NotYet(f"return the noise scale, a number, not {found!r}")


def _fresh_draws(sizes: Counter[int]) -> None:
    if sizes == {SMALL: DRAWS, BIG: DRAWS}:
        return
    told = ", ".join(f"{count} of {size}" for size, count in sorted(sizes.items())) or "none"
    raise NotYet(
        f"with small={SMALL}, big={BIG} and draws={DRAWS}, draw {DRAWS} gradients of each of the "
        f"two sizes; yours: {told}. A small batch that is part of a big one is not fresh"
    )


def _near(found: float) -> None:
    if abs(found / PLANTED - 1) <= NEAR:
        return
    hint = (
        "average the squared lengths of each size over all draws, put both averages into the two "
        "formulas, and only then divide noise by signal"
    )
    if abs(found / (PLANTED * SIGNAL) - 1) <= NEAR:
        hint = f"that is the noise alone: divide by the signal, here {SIGNAL:g}"
    raise NotYet(f"a noise scale of {PLANTED:g} was planted, you find {found:.4g}: {hint}")


def _no_signal(answer: Callable[..., Any]) -> None:
    """Squared lengths whose estimate of the signal is negative, in every draw."""
    lengths = {SMALL: 10.0, BIG: 0.1}
    try:
        found = attempt(answer, lambda size: torch.tensor([lengths[size] ** 0.5]), SMALL, BIG, 3)
    except ValueError:
        return
    signal = (BIG * lengths[BIG] - SMALL * lengths[SMALL]) / (BIG - SMALL)
    told = f"{float(found):.4g}" if isinstance(found, (int, float, Tensor)) else repr(found)
    raise NotYet(
        f"where the signal is estimated as {signal:.2g}, less than nothing, you return {told}: "
        "raise a ValueError, more draws are needed"
    )
