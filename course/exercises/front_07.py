"""The exercise of the front notebook 07: a scaler of the loss that finds its own scale."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from course.exercises.tell import NotYet, attempt, check

INF, NAN = float("inf"), float("nan")
SCALE = 2.0**10


@check("its scale and its weights are those of torch's GradScaler", judged="inside")
def check_07_scaler(answer: Callable[[float, int], Any]) -> None:
    """`answer(scale, interval)` has `scale(loss)`, `step(optimizer)` and `update()`.

    Weights and scale are held against `torch.amp.GradScaler`: over plain steps, without a gradient
    in one parameter, over inf and nan in one of three, and over 80 steps with overflows.
    """
    _scaled(answer)
    _divided(answer)
    _without_gradient(answer)
    for bad in (INF, -INF, NAN):
        for place in range(2):
            _skipped(answer, bad, place)
    _halved(answer)
    _doubled(answer)
    overflows = {7, 8, 30, 34, 55}
    plan = [(INF if step % 2 else NAN) if step in overflows else 1.0 for step in range(80)]
    _Both(answer, interval=10).follow(plan, "of 80 steps with inf at some")


class _Both:
    """A training with the answer's scaler, and the same one with torch's.

    Of three parameters the last has no part in the loss, so no gradient; it may be left out.
    """

    def __init__(
        self, answer: Callable[[float, int], Any], interval: int, parameters: int = 3
    ) -> None:
        self.mine = attempt(answer, SCALE, interval)
        self.theirs = torch.amp.GradScaler("cpu", init_scale=SCALE, growth_interval=interval)
        for name in ("scale", "step", "update"):
            if not callable(getattr(self.mine, name, None)):
                raise NotYet(f"a scaler has the method {name}(); yours has none")
        self.weights = [_weights()[:parameters] for _ in range(2)]
        self.optimizers = [torch.optim.SGD(each, lr=0.1, momentum=0.9) for each in self.weights]

    def step(self, factors: tuple[float, float]) -> None:
        """A step on each side; a parameter's gradient is its factor."""
        scalers = (self.mine, self.theirs)
        for scaler, weights, optimizer in zip(scalers, self.weights, self.optimizers, strict=True):
            loss = sum(((w * f).sum() for w, f in zip(weights, factors, strict=False)), _zero())
            scaled = attempt(scaler.scale, loss)
            if not isinstance(scaled, Tensor) or scaled.grad_fn is None:
                raise NotYet(f"scale(loss) returns a loss to call backward() on, not {scaled!r}")
            scaled.backward()
            attempt(scaler.step, optimizer)
            attempt(scaler.update)
            optimizer.zero_grad()

    def follow(self, plan: list[float], case: str) -> None:
        """All steps; NotYet at the first after which scale or weights differ."""
        for number, factor in enumerate(plan, 1):
            self.step((1.0, factor))
            self.same_scale(f"{case}, after step {number}")
            if not self.same_weights():
                raise NotYet(f"{case}, the weights differ from torch's after step {number}")

    def same_weights(self) -> bool:
        return all(map(torch.equal, *self.weights))

    def same_scale(self, case: str) -> None:
        mine, theirs = scale_of(self.mine), scale_of(self.theirs)
        if mine != theirs:
            raise NotYet(f"{case}, the scale is {theirs:g}, yours {mine:g}")


def scale_of(scaler: Any) -> float:
    """What a scaler multiplies a loss of 1 by."""
    return float(attempt(scaler.scale, torch.ones(())))


def _weights() -> list[nn.Parameter]:
    return [nn.Parameter(torch.ones(shape)) for shape in ((3,), (2, 2), (4,))]


def _zero() -> Tensor:
    return torch.zeros(())


def _scaled(answer: Callable[[float, int], Any]) -> None:
    both = _Both(answer, interval=10)
    both.same_scale(f"at the beginning of Scaler({SCALE:g}, 10)")


def _divided(answer: Callable[[float, int], Any]) -> None:
    both = _Both(answer, interval=10, parameters=2)
    both.step((1.0, 0.5))
    if both.same_weights():
        return
    moved = float(1 - both.weights[0][0][0].detach())
    if moved > 1:
        raise NotYet(f"the update is {moved / 0.1:g} times too large: divide the gradients")
    raise NotYet(f"with a gradient of 1 and a rate of 0.1 the weight moves by 0.1, not {moved:g}")


def _without_gradient(answer: Callable[[float, int], Any]) -> None:
    """The third parameter has none. What raises here has not raised with two parameters."""
    both = _Both(answer, interval=10)
    try:
        both.step((1.0, 0.5))
    except (AttributeError, TypeError) as error:
        raise NotYet(
            "the third parameter has no gradient, its p.grad is None: pass over it. "
            f"Yours raises {type(error).__name__}: {error}"
        ) from error
    if not both.same_weights():
        raise NotYet("where the third parameter has no gradient, the other two still move")


def _skipped(answer: Callable[[float, int], Any], bad: float, place: int) -> None:
    both = _Both(answer, interval=10)
    both.step((1.0, 1.0))
    both.step((bad, 1.0) if place == 0 else (1.0, bad))
    if not both.same_weights():
        which = ("first", "second")[place]
        raise NotYet(f"the {which} parameter's gradient has {bad}: no weight may move, yours did")


def _halved(answer: Callable[[float, int], Any]) -> None:
    both = _Both(answer, interval=10)
    for _ in range(2):
        both.step((INF, 1.0))
        both.same_scale("after a skipped step")


def _doubled(answer: Callable[[float, int], Any]) -> None:
    both = _Both(answer, interval=3)
    both.follow([1.0] * 7, "with interval 3 and no overflow")
    both = _Both(answer, interval=3)
    # Two clean steps, a skip, two clean steps: not yet three in a row.
    both.follow([1.0, 1.0, INF, 1.0, 1.0, 1.0], "with interval 3 and inf in step 3")
