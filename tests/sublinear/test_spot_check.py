"""A fitted model that compares itself with the plain one now and then."""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest
import torch
from torch import nn

import sublinear

ROWS, WIDTH = 64, 16
SCALE = "LABKIT_TEST_SCALE"


class ByTheEnvironment(nn.Module):
    """Scales by a number in the environment: no guard of the compiler watches whether it comes."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x).tanh()
        return x * float(os.environ.get(SCALE, "1"))


@pytest.fixture(autouse=True)
def scale(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Sets the number, which is 1 while there is none."""
    monkeypatch.delenv(SCALE, raising=False)
    return lambda value: monkeypatch.setenv(SCALE, value)


def fitted(**options: object) -> sublinear.Fitted:
    torch.manual_seed(0)
    x = torch.randn(ROWS, WIDTH)
    return sublinear.fit(ByTheEnvironment(), x, repeats=1, max_overhead=10.0, **options)


def test_what_changes_unnoticed_is_found_at_the_next_check(scale: Callable[[str], None]) -> None:
    model = fitted(check_every=3).model
    x = torch.randn(ROWS, WIDTH)
    for _ in range(4):
        model(x).sum().backward()
    scale("3")
    wrong = model(x)
    with pytest.raises(RuntimeError, match="forward 6: the planned model no longer trains as"):
        model(x)
    # Without it the old value stays: what this test is about.
    assert torch.allclose(3 * wrong, ByTheEnvironment.forward(model, x), atol=1e-5)


def test_a_check_leaves_everything_as_it_was(scale: Callable[[str], None]) -> None:
    found = fitted(check_every=1)
    plain = fitted()
    x = torch.randn(ROWS, WIDTH)
    for _ in range(3):
        before = torch.get_rng_state(), random.getstate()
        for each in (found, plain):
            each.model(x).square().mean().backward()
        assert torch.equal(torch.get_rng_state(), before[0]) and random.getstate() == before[1]
    # Gradients of three backward passes have added up.
    for own, other in zip(found.model.parameters(), plain.model.parameters(), strict=True):
        assert own.grad is not None and torch.equal(own.grad, other.grad)


def test_only_training_counts_and_measuring_does_not(scale: Callable[[str], None]) -> None:
    found = fitted(check_every=2)
    found.measure(seconds=0.1)
    scale("3")
    x = torch.randn(ROWS, WIDTH)
    found.model.eval()
    assert torch.isfinite(found.model(x)).all()
    found.model.train()
    with torch.no_grad():
        found.model(x)
    found.model(x)
    with pytest.raises(RuntimeError, match="forward 2: "):
        found.model(x)


@pytest.mark.parametrize("every", [0, -1, 2.5, True, "10"])
def test_an_interval_that_is_none_is_told(every: object) -> None:
    with pytest.raises(ValueError, match=r"check_every=.*: a whole number from 1"):
        fitted(check_every=every)
