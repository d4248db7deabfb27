"""The exercise of the front notebook 08: AdamW as an optimizer of torch's kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from course.exercises.tell import NotYet, attempt, check

Make = Callable[..., torch.optim.Optimizer]
RATES, DECAYS = (0.1, 0.02), (0.5, 0.05)
SHAPES = ((5,), (2, 3), (4,))
# The second weights have no gradient at the second step.
WITHOUT = (1, 1)
STEPS = 4
L2 = "that is Adam with L2; the decay must not go through the root"
UNCORRECTED = (
    "m and v are not corrected: they begin at zero, so divide m by 1 - 0.9**t and v by 1 - 0.999**t"
)
# Of the gradients: small ones show where the 1e-8 is added.
SIZES = (1.0, 1e-6, 1.0)


@check("four steps of two groups, the same as torch.optim.AdamW", judged="inside")
def check_08_own_adamw(answer: Make) -> None:
    """`answer(params, lr, weight_decay)` is a torch.optim.Optimizer with a method `step()`.

    Four steps on two groups of weights, one of which lacks a gradient once; then a new optimizer
    that goes on from the other's ``state_dict()``.
    """
    with _quiet():
        own, wanted = _weights(), _weights()
        made = attempt(answer, _groups(own), RATES[0], DECAYS[0])
        if not isinstance(made, torch.optim.Optimizer):
            raise NotYet("AdamW is no class of the kind torch.optim.Optimizer")
        torchs = torch.optim.AdamW(_groups(wanted), lr=RATES[0], weight_decay=DECAYS[0])
        l2, raw = _weights(), _weights()
        with_l2 = torch.optim.Adam(_groups(l2), lr=RATES[0], weight_decay=DECAYS[0])
        uncorrected = _Uncorrected(_groups(raw))
        for step in range(STEPS):
            for weights in (own, wanted, l2, raw):
                _give_gradients(weights, step)
            kept = [None if weight.grad is None else weight.grad.clone() for weight in own]
            attempt(made.step)
            torchs.step()
            with_l2.step()
            uncorrected.step()
            _compare(own, wanted, {L2: l2, UNCORRECTED: raw}, step)
            _gradients_are_as_before(own, kept, step)
        _state_is_kept(answer, made, own, wanted, torchs)


@contextmanager
def _quiet() -> Iterator[None]:
    """Random numbers are put back."""
    with torch.random.fork_rng(devices=[]):
        yield


class _Uncorrected:
    """AdamW whose means are used as they are, though they began at zero."""

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        first = {"lr": RATES[0], "weight_decay": DECAYS[0]}
        self.groups = [first | group for group in groups]
        self.means: dict[torch.nn.Parameter, tuple[torch.Tensor, torch.Tensor]] = {}

    @torch.no_grad()
    def step(self) -> None:
        for group in self.groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._move(weight, weight.grad, group["lr"], group["weight_decay"])

    def _move(
        self, weight: torch.nn.Parameter, gradient: torch.Tensor, rate: float, decay: float
    ) -> None:
        zeros = torch.zeros_like(weight), torch.zeros_like(weight)
        mean, square = self.means.setdefault(weight, zeros)
        mean.lerp_(gradient, 0.1)
        square.lerp_(gradient.square(), 0.001)
        weight.mul_(1 - rate * decay)
        weight.addcdiv_(mean, square.sqrt() + 1e-8, value=-rate)


def _weights() -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(8)
    return [
        torch.nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64))
        for shape in SHAPES
    ]


def _groups(weights: list[torch.nn.Parameter]) -> list[dict[str, Any]]:
    rest = {"params": weights[2:], "lr": RATES[1], "weight_decay": DECAYS[1]}
    return [{"params": weights[:2]}, rest]


def _give_gradients(weights: list[torch.nn.Parameter], step: int) -> None:
    generator = torch.Generator().manual_seed(100 + step)
    for number, (weight, size) in enumerate(zip(weights, SIZES, strict=True)):
        drawn = size * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
        weight.grad = None if (step, number) == WITHOUT else drawn


def _compare(
    own: list[torch.nn.Parameter],
    wanted: list[torch.nn.Parameter],
    known: dict[str, list[torch.nn.Parameter]],
    step: int,
) -> None:
    """NotYet at the first weights that are not torch's; ``known``: mistakes, by their hints."""
    for number, (mine, right) in enumerate(zip(own, wanted, strict=True)):
        if torch.allclose(mine, right, rtol=1e-7, atol=1e-12):
            continue
        where = f"step {step + 1}, weights {number}"
        if (step, number) == WITHOUT:
            raise NotYet(f"{where}: without a gradient they are to stay as they are, decay and all")
        for hint, wrong in known.items():
            if torch.allclose(mine, wrong[number]):
                raise NotYet(f"{where}: {hint}")
        off = (mine - right).abs().max().item()
        raise NotYet(f"{where}: they differ from torch's by up to {off:.3g}")


def _gradients_are_as_before(
    weights: list[torch.nn.Parameter], kept: list[torch.Tensor | None], step: int
) -> None:
    for weight, before in zip(weights, kept, strict=True):
        if before is not None and (weight.grad is None or not torch.equal(weight.grad, before)):
            raise NotYet(f"step {step + 1} changed a gradient; the caller still needs it")


def _state_is_kept(
    answer: Make,
    made: torch.optim.Optimizer,
    own: list[torch.nn.Parameter],
    wanted: list[torch.nn.Parameter],
    torchs: torch.optim.Optimizer,
) -> None:
    """A new optimizer goes on where the first one's state dict ended."""
    for weight in own:
        for name, value in made.state.get(weight, {}).items():
            if torch.is_tensor(value) and value.grad_fn is not None:
                raise NotYet(f"state[w][{name!r}] keeps a graph: put @torch.no_grad() above step()")
    again = attempt(answer, _groups(own), RATES[0], DECAYS[0])
    again.load_state_dict(made.state_dict())
    for weights in (own, wanted):
        _give_gradients(weights, STEPS)
    attempt(again.step)
    torchs.step()
    for mine, right in zip(own, wanted, strict=True):
        if not torch.allclose(mine, right, rtol=1e-7, atol=1e-12):
            raise NotYet(
                "a new optimizer with the first one's state_dict() does not go on as it would: "
                "keep t, m and v in self.state[w]"
            )
