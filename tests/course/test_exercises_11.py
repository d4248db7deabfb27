"""The exercise's check of notebook 11: the stub, wrong answers, the solution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from course import exercises


def stub(n: int, a: int, b: int) -> int: ...


def solution(n: int, a: int, b: int) -> int:
    return min(range(1, n + 1), key=lambda k: k * a + -(-n // k) * b)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        pytest.param(stub, "return a number", id="stub"),
        pytest.param(lambda n, a, b: None, "return a number", id="nothing"),
        pytest.param(lambda n, a, b: 0, "from 1 to 24", id="no piece"),
        pytest.param(lambda n, a, b: (n * b / a) ** 0.5, "whole number", id="not whole"),
        pytest.param(lambda n, a, b: "12", "whole number", id="text"),
        pytest.param(lambda n, a, b: round(n**0.5), "is possible", id="root of the blocks"),
        pytest.param(
            lambda n, a, b: max(1, min(n, round((n * b / a) ** 0.5))),
            "is possible",
            id="root, rounded",
        ),
        pytest.param(
            lambda n, a, b: min(range(1, n + 1), key=lambda k: k * a + n / k * b),
            "is possible",
            id="unrounded",
        ),
        pytest.param(lambda n, a, b: n, "is possible", id="every block"),
    ],
)
def test_wrong_answers(
    answer: Callable[..., Any], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exercises.check_11_best_segments(answer) is False
    printed = capsys.readouterr().out
    assert printed.startswith("not yet: ")
    assert says in printed


def test_solution_and_other_ties(capsys: pytest.CaptureFixture[str]) -> None:
    assert exercises.check_11_best_segments(solution) is True
    assert capsys.readouterr().out.startswith("✓")
    last = lambda n, a, b: min(range(n, 0, -1), key=lambda k: k * a + -(-n // k) * b)  # noqa: E731
    assert exercises.check_11_best_segments(last) is True


def test_a_reader_s_own_error_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        exercises.check_11_best_segments(lambda n, a, b: n // 0)
