"""The exercise's check of the template: the stub, wrong answers, the solution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from course import exercises


def stub(samples: int, rows: int) -> int: ...


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        pytest.param(stub, "return a number", id="stub"),
        pytest.param(lambda n, r: n // r, "65 rows in blocks of 16 take 5 calls, not 4", id="down"),
        pytest.param(lambda n, r: n // r + 1, "64 rows in blocks of 16 take 4", id="one more"),
        pytest.param(lambda n, r: max(4, -(-n // r)), "3 rows in blocks of 16 take 1", id="four"),
    ],
)
def test_wrong_answers(
    answer: Callable[..., Any], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exercises.check_template_calls(answer) is False
    assert capsys.readouterr().out.startswith(f"not yet: {says}")


def test_the_solution_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert exercises.check_template_calls(lambda samples, rows: -(-samples // rows)) is True
    assert capsys.readouterr().out == "✓ that is the number of blocks\n"
