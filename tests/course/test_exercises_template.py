"""The exercise's check of the template: the stub, wrong answers, the solution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from course import exercises


def stub(model, inputs, rows): ...


def in_blocks(model, inputs, rows):
    return torch.cat([model(block) for block in inputs.split(rows)])


def one_by_one(model, inputs, rows):
    return torch.cat([model(block) for block in inputs.split(1)])


def without_the_rest(model, inputs, rows):
    whole = inputs[: len(inputs) // rows * rows]
    return torch.cat([model(block) for block in (*whole.split(rows), inputs[:0])])


def the_last_only(model, inputs, rows):
    return [model(block) for block in inputs.split(rows)][-1]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (stub, "return a tensor"),
        (one_by_one, "8 rows in blocks of 4 are blocks of [4, 4], not [1, 1"),
        (without_the_rest, "8 rows in blocks of 4 are blocks of [4, 4], not [4, 4, 0]"),
        (the_last_only, "the outputs of all blocks"),
    ],
)
def test_wrong_answers(
    answer: Callable[..., Any], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exercises.check_template_blocks(answer) is False
    assert capsys.readouterr().out.startswith(f"not yet: {says}")


def test_the_solution_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert exercises.check_template_blocks(in_blocks) is True
    assert capsys.readouterr().out == "✓ all rows, in blocks of that size\n"
