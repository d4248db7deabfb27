"""Budgets as people type them."""

import pytest
import torch

from sublinear import budget
from sublinear.budget import as_budget

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("typed", "limit"),
    [
        (0.5, 500),
        ("50 %", 500),
        ("12.5%", 125),
        (1.0, 1000),
        (600, 600),
        (2e9, 2e9),
        ("6 GB", 6 * 10**9),
        ("6 GiB", 6 * 2**30),
        (None, None),
    ],
)
def test_a_budget_in_bytes(typed: float | str | None, limit: float | None) -> None:
    found = as_budget(typed)
    assert found.limit(1000, CPU, 0) == limit
    assert found.given == (typed is not None)


def test_all_is_what_is_free_less_a_tenth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "free_bytes", lambda device: 1000)
    assert as_budget("all").limit(1, CPU, held=50) == 950


def test_all_is_refused_where_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "free_bytes", lambda device: None)
    with pytest.raises(ValueError, match="budget='all': how much memory is free on cpu"):
        as_budget("all").limit(1, CPU, 0)


@pytest.mark.parametrize("typed", ["half", "120 %", "0 %", "6 apples", "6 iB"])
def test_other_texts_are_refused(typed: str) -> None:
    with pytest.raises(ValueError, match=f"budget='{typed}': a number of bytes is accepted"):
        as_budget(typed)
