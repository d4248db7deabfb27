"""Settings and generators that models of `test_silent.py` reach in another file."""

from __future__ import annotations

import contextvars
import functools
import random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

ALPHA = 1.0
READ_BY_HELPER = 1.0
RNG = np.random.default_rng(0)
TORCH_RNG = torch.Generator()
WITHIN = contextvars.ContextVar("WITHIN", default=1.0)


class Hyper:
    alpha = 1.0


class Dice:
    rng = random.Random(0)


class Child(Hyper):
    """Inherits its settings."""


class Holder:
    """An object whose settings stand on its class."""

    alpha = 1.0


class Scale:
    """Settings that can be called."""

    def __init__(self) -> None:
        self.alpha = 1.0

    def __call__(self, x: Tensor) -> Tensor:
        return x * self.alpha


class ByProperty:
    """Reads a global variable in a property."""

    @property
    def alpha(self) -> float:
        return READ_BY_HELPER


class Noise:
    """Keeps a generator inside."""

    def __init__(self) -> None:
        self.rng = {"of": [random.Random(0)]}

    def draw(self) -> float:
        return self.rng["of"][0].random()


def scaled(x: Tensor) -> Tensor:
    return twice_removed(x)


def twice_removed(x: Tensor) -> Tensor:
    return x * READ_BY_HELPER


@functools.lru_cache
def remembered() -> Holder:
    return Holder()


def drawn() -> float:
    return float(RNG.random())


def by(settings: dict[str, float]) -> Any:
    """A decorator that keeps its settings in a closure."""

    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def scales(self: nn.Module, x: Tensor) -> Tensor:
            return function(self, x) * settings["alpha"]

        return scales

    return decorate
