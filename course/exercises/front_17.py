"""The exercise of the front notebook 17: the module that makes the first bad number."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from course.exercises.tell import NotYet, attempt, check, far

FirstBad = Callable[..., Any]


@check("the module that broke the numbers, in one forward pass", judged="both")
def check_17_first_bad(answer: FirstBad) -> None:
    """`answer(model, *inputs)` runs the model once and names the innermost module whose result is
    first not finite though what it was given is, by its name in `model.named_modules()`.

    "inputs" where an input is not finite, None where all is finite. No hook stays.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        _plain(answer)
        _innermost(answer)
        _infinite(answer)
        _tuples(answer)
        _inputs(answer)
        _called_twice(answer)
        _between_modules(answer)
        # A hook in another process leaves nothing here.
        if not far(answer):
            _after_an_error(answer)


# --------------------------------------------------------------------------------------- the models


class Divide(nn.Module):
    """0 / 0 in every number."""

    def forward(self, x: Tensor) -> Tensor:
        return (x - x) / (x - x)


class Log(nn.Module):
    """Minus infinity in every number."""

    def forward(self, x: Tensor) -> Tensor:
        return (x - x).log()


class Root(nn.Module):
    """nan where a number is negative."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sqrt()


class Pair(nn.Module):
    """A result in a tuple, as of an LSTM: the second part is nan."""

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        return x, [x - x, (x - x) / 0]


class First(nn.Module):
    """The first part of a pair."""

    def forward(self, pair: tuple[Tensor, Any]) -> Tensor:
        return pair[0]


class Twice(nn.Module):
    """One module called twice; its second call meets negative numbers."""

    def __init__(self) -> None:
        super().__init__()
        # Defined first, called last.
        self.last = nn.Linear(3, 3)
        self.root = Root()

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.last(self.root(-1 - self.root(x)))
        return result


class Between(nn.Module):
    """Divides by zero between two modules, both of which are right."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.second((self.first(x) * 0) / 0)
        return result


class Fails(nn.Module):
    """Ends in an error."""

    def forward(self, x: Tensor) -> Tensor:
        raise ZeroDivisionError("a planned error of the check")


# --------------------------------------------------------------------------------------- the cases


def _plain(answer: FirstBad) -> None:
    _wants(answer, _model(nn.ReLU()), None, "a model whose numbers are all finite")
    tokens = nn.Sequential(nn.Embedding(4, 3), nn.Linear(3, 2))
    _wants(answer, tokens, None, "whole numbers as an input", torch.tensor([0, 3]))


def _innermost(answer: FirstBad) -> None:
    why = "0/0 in the module '1.1'"
    found = _found(answer, _model(Divide()), why)
    if found in ("1", ""):
        name = "the model itself" if found == "" else "'1'"
        raise NotYet(
            f"{why}: yours says {found!r}; {name} contains '1.1', so it is not the innermost"
        )
    if found in ("2", "2.0"):
        raise NotYet(f"{why}: yours says {found!r}; it was given nan already: look for the first")
    _same(found, "1.1", why)


def _infinite(answer: FirstBad) -> None:
    why = "the log of 0 in the module '1.1'"
    found = _found(answer, _model(Log()), why)
    if found != "1.1":
        raise NotYet(f"{why}: yours says {found!r}; it is '1.1': infinity is not finite, either")


def _tuples(answer: FirstBad) -> None:
    model = nn.Sequential(nn.Linear(3, 3), Pair(), First())
    why = "'1' returns a tuple with a list in it, as an LSTM does, and nan in that"
    try:
        found = _found(answer, model, why)
    except (AttributeError, TypeError) as error:
        raise NotYet(f"{why}: yours ended in {error}; look into tuples and lists") from error
    if found != "1":
        raise NotYet(f"{why}: yours says {found!r}; it is '1': look into tuples and lists")


def _inputs(answer: FirstBad) -> None:
    for bad in (math.nan, math.inf):
        x = torch.tensor([[1.0, bad, 2.0]])
        why = f"an input with {bad} in it"
        _wants(answer, _model(nn.ReLU()), "inputs", why, x)
    model = nn.Bilinear(3, 3, 2)
    why = "a second input with nan in it"
    _wants(answer, model, "inputs", why, torch.ones(1, 3), torch.full((1, 3), math.nan))


def _called_twice(answer: FirstBad) -> None:
    why = "'root' is called twice, and its second result is nan; 'last' was defined before it"
    _wants(answer, Twice(), "root", why)


def _between_modules(answer: FirstBad) -> None:
    model = nn.Sequential(nn.ReLU(), Between())
    why = "'1' divides by zero between its modules '1.first' and '1.second'"
    found = _found(answer, model, why)
    if found == "1.second":
        raise NotYet(f"{why}: '1.second' was given nan; what made it was given finite numbers")
    _same(found, "1", why)


def _after_an_error(answer: FirstBad) -> None:
    model = _model(Fails())
    try:
        attempt(answer, model, torch.ones(1, 3))
    except ZeroDivisionError:
        pass
    else:
        raise NotYet("a model that ends in an error: let the error through")
    if left := _hooks(model):
        raise NotYet(f"after an error in the model {left} hooks are left: remove them in `finally`")


# -------------------------------------------------------------------------------------- what helps


def _model(inner: nn.Module) -> nn.Sequential:
    """A module in a container, between two others; on inputs of ones all else is finite."""
    middle = nn.Sequential(nn.Linear(3, 3), inner)
    return nn.Sequential(nn.Linear(3, 3), middle, nn.Sequential(nn.Linear(3, 2)))


def _wants(
    answer: FirstBad, model: nn.Module, wanted: str | None, why: str, *inputs: Tensor
) -> None:
    _same(_found(answer, model, why, *inputs), wanted, why)


def _found(answer: FirstBad, model: nn.Module, why: str, *inputs: Tensor) -> Any:
    """What the function returns; NotYet where it leaves a hook."""
    found = attempt(answer, model, *(inputs or (torch.ones(2, 3),)))
    if left := _hooks(model):
        raise NotYet(
            f"{why}: {left} hooks are left on the model: keep their handles, remove() them"
        )
    return found


def _same(found: Any, wanted: str | None, why: str) -> None:
    if found != wanted:
        raise NotYet(f"{why}: it is {wanted!r}; yours says {found!r}")


def _hooks(model: nn.Module) -> int:
    """Forward hooks on all modules, of both kinds."""
    modules = list(model.modules())
    return sum(len(each._forward_hooks) + len(each._forward_pre_hooks) for each in modules)
