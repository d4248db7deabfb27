"""A fitted model that compares itself with the plain one now and then."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from torch import nn

import sublinear

ROWS, WIDTH = 64, 16


class ByAFile(nn.Module):
    """Scales by a number in a file, which no plan can notice: a library reads it."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(6))
        self.file = file

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x).tanh()
        return x * float(self.file.read_text())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "scale.txt"
    found.write_text("1")
    return found


def fitted(file: Path, **options: object) -> sublinear.Fitted:
    torch.manual_seed(0)
    x = torch.randn(ROWS, WIDTH)
    return sublinear.fit(ByAFile(file), x, repeats=1, max_overhead=10.0, **options)


def test_what_changes_unnoticed_is_found_at_the_next_check(file: Path) -> None:
    model = fitted(file, check_every=3).model
    x = torch.randn(ROWS, WIDTH)
    for _ in range(4):
        model(x).sum().backward()
    file.write_text("3")
    wrong = model(x)
    with pytest.raises(RuntimeError, match="forward 6: the planned model no longer trains as"):
        model(x)
    # Without it the old value stays: what this test is about.
    assert torch.allclose(3 * wrong, ByAFile.forward(model, x), atol=1e-5)


def test_a_check_leaves_everything_as_it_was(file: Path) -> None:
    found = fitted(file, check_every=1)
    plain = fitted(file)
    x = torch.randn(ROWS, WIDTH)
    for _ in range(3):
        before = torch.get_rng_state(), random.getstate()
        for each in (found, plain):
            each.model(x).square().mean().backward()
        assert torch.equal(torch.get_rng_state(), before[0]) and random.getstate() == before[1]
    # Gradients of three backward passes have added up.
    for own, other in zip(found.model.parameters(), plain.model.parameters(), strict=True):
        assert own.grad is not None and torch.equal(own.grad, other.grad)


def test_only_training_counts_and_measuring_does_not(file: Path) -> None:
    found = fitted(file, check_every=2)
    found.measure(seconds=0.1)
    file.write_text("3")
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
def test_an_interval_that_is_none_is_told(file: Path, every: object) -> None:
    with pytest.raises(ValueError, match=r"check_every=.*: a whole number of forwards from 1"):
        fitted(file, check_every=every)
