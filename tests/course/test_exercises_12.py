"""The exercise's check of notebook 12: the stub, wrong answers, the solution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from course import exercises
from course.exercises.lab_12 import _peak as peak


def stub(saved: list[int], outputs: list[int]) -> int: ...


def solution(saved: list[int], outputs: list[int]) -> int:
    n = len(saved)
    rest = [0] * (n + 1)
    for s in range(n - 1, -1, -1):
        rest[s] = min(
            [
                sum(saved[s:]),
                *(max(sum(saved[s:t]), outputs[t - 1] + rest[t]) for t in range(s + 1, n)),
            ],
        )
    return rest[0]


def equal_pieces(saved: list[int], outputs: list[int]) -> int:
    n = len(saved)
    ways = [tuple(n * i // k for i in range(1, k)) for k in range(1, n + 1)]
    return min(peak(saved, outputs, cuts) for cuts in ways)


def checkpointed_end(saved: list[int], outputs: list[int]) -> int:
    """The output of the last piece is held too."""
    return solution(saved, outputs) + outputs[-1]


def greedy(saved: list[int], outputs: list[int]) -> int:
    """The larger of two pieces at the best single cut."""
    return min(
        peak(saved, outputs, cuts) for cuts in ((), *((place,) for place in range(1, len(saved))))
    )


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        pytest.param(stub, "return the smallest peak", id="stub"),
        pytest.param(lambda saved, outputs: None, "return the smallest peak", id="nothing"),
        pytest.param(lambda saved, outputs: sum(saved), "some cuts give", id="plain"),
        pytest.param(
            lambda saved, outputs: max(saved), "no cuts give less", id="outputs forgotten"
        ),
        pytest.param(equal_pieces, "some cuts give", id="equal pieces"),
        pytest.param(greedy, "some cuts give", id="one cut"),
        pytest.param(checkpointed_end, "some cuts give", id="last output held"),
        pytest.param(
            lambda saved, outputs: solution(saved, outputs) if len(saved) < 20 else 0,
            "36 that save",
            id="small only",
        ),
    ],
)
def test_wrong_answers(
    answer: Callable[..., Any], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exercises.check_12_lowest_peak(answer) is False
    printed = capsys.readouterr().out
    assert printed.startswith("not yet: ")
    assert says in printed


def test_solution(capsys: pytest.CaptureFixture[str]) -> None:
    assert exercises.check_12_lowest_peak(solution) is True
    assert capsys.readouterr().out.startswith("✓")


def test_an_answer_that_empties_its_lists_is_no_harm(capsys: pytest.CaptureFixture[str]) -> None:
    def destroying(saved: list[int], outputs: list[int]) -> int:
        found = solution(saved, outputs)
        saved.clear()
        outputs.clear()
        return found

    assert exercises.check_12_lowest_peak(destroying) is True


def test_a_reader_s_own_error_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        exercises.check_12_lowest_peak(lambda saved, outputs: saved[0] // 0)
