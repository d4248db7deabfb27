"""The exercise of the front notebook 15: all gradients as pieces of one tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from course.exercises.tell import NotYet, attempt, check

Flat = Callable[[Iterator[nn.Parameter]], Any]
STEPS = 2


@check("every gradient is a piece of one tensor, and one fill clears them all", judged="inside")
def check_15_flat_gradients(answer: Flat) -> None:
    """`answer(parameters)` returns one tensor of zeros, of which the gradients of all parameters
    that are trained are pieces.

    It is tried on a small model with a scalar weight and a frozen one, beside a twin.
    """
    model, twin = _model(), _model()
    flat = _returned(answer, model)
    _pieces(model, flat, "at first")
    for step in range(1, STEPS + 1):
        batch = torch.arange(12, dtype=torch.float64).reshape(4, 3) / step
        for each in (model, twin):
            for _ in range(2):
                each(batch).square().mean().backward()
        case = f"step {step}, after two backward passes"
        _pieces(model, flat, case)
        _same_gradients(model, twin, case)
        for each in (model, twin):
            torch.optim.SGD(_trained(each), lr=0.1).step()
        flat.zero_()
        twin.zero_grad()


class _Scaled(nn.Module):
    """Two layers, the first frozen in part, and a scalar weight between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.scale = nn.Parameter(torch.tensor(0.5))
        self.last = nn.Linear(4, 2)
        self.first.bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = torch.tanh(self.first(x)) * self.scale
        result: Tensor = self.last(hidden)
        return result


def _model() -> _Scaled:
    """The same weights each time, in double precision."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return _Scaled().double()


def _trained(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _returned(answer: Flat, model: nn.Module) -> Tensor:
    try:
        flat = attempt(answer, model.parameters())
    except RuntimeError as error:
        # What torch says where a gradient is of another dtype than its parameter.
        if "type" not in str(error):
            raise
        raise NotYet(
            "the parameters are torch.float64 here, and each gradient has its parameter's dtype: "
            "make the tensor with their dtype and device"
        ) from error
    if not isinstance(flat, Tensor):
        raise NotYet(f"return one tensor; this is of type {type(flat).__name__}")
    count = sum(parameter.numel() for parameter in _trained(model))
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad and parameter.grad is not None:
            raise NotYet(f"{name} is frozen (requires_grad is False): it gets no gradient")
    if flat.numel() != count:
        raise NotYet(f"the tensor has {flat.numel()} numbers; the trained parameters {count}")
    if flat.count_nonzero():
        raise NotYet("the tensor holds something else than zeros at first")
    return flat


def _pieces(model: nn.Module, flat: Tensor, case: str) -> None:
    """Each gradient lies in the flat tensor, and no two of them in the same place."""
    owners: dict[int, str] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if parameter.grad is None:
            raise NotYet(f"{case}: {name} has no gradient. An iterator is walked through only once")
        first = (parameter.grad.data_ptr() - flat.data_ptr()) // flat.element_size()
        places = range(first, first + parameter.numel())
        if first < 0 or places.stop > flat.numel():
            raise NotYet(f"{case}: the gradient of {name} is a copy, no piece of your tensor")
        if shared := {owners[place] for place in places if place in owners}:
            raise NotYet(f"{case}: the gradients of {shared.pop()} and {name} share numbers")
        owners |= dict.fromkeys(places, name)


def _same_gradients(model: nn.Module, twin: nn.Module, case: str) -> None:
    for (name, parameter), other in zip(model.named_parameters(), twin.parameters(), strict=True):
        if other.grad is None:
            continue
        if parameter.grad is None or not torch.equal(parameter.grad, other.grad):
            raise NotYet(f"{case}: the gradient of {name} is not that of an ordinary backward")
