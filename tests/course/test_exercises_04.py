"""The exercise of notebook 04: how many workers are enough."""

import math

import pytest

from course.exercises import check_04_enough_workers


def test_the_solution_passes(capsys):
    assert check_04_enough_workers(lambda L, T: max(1, math.ceil(L / T))) is True
    assert capsys.readouterr().out.startswith("✓")


def empty(L, T): ...


@pytest.mark.parametrize("answer", [empty])
def test_an_unsolved_stub_is_told_so(answer, capsys):
    assert check_04_enough_workers(answer) is False
    assert capsys.readouterr().out == "not yet: L=12 and T=4 want 3 workers, yours says None\n"


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        # the rule of thumb
        (lambda L, T: 4, "L=12 and T=4 want 3 workers, yours says 4"),
        # rounds down
        (lambda L, T: max(1, L // T), "L=13 and T=4 want 4 workers, yours says 3.0"),
        (lambda L, T: max(1, round(L / T)), "L=13 and T=4 want 4 workers, yours says 3"),
        (
            lambda L, T: math.floor(L / T) + 1,
            "L=12 and T=4 want 3 workers, yours says 4",
            # too many
        ),
        (
            lambda L, T: math.ceil((L + T) / T),
            "L=12 and T=4 want 3 workers, yours says 4",
            # its limit
        ),
        # not even one
        (lambda L, T: math.ceil(L / T), "L=0 and T=1 want 1 workers, yours says 0"),
        (lambda L, T: max(1, L / T), "L=13 and T=4 want 4 workers, yours says 3.25"),
    ],
)
def test_wrong_answers_fail_and_are_told_why(answer, hint, capsys):
    assert check_04_enough_workers(answer) is False
    assert capsys.readouterr().out == f"not yet: {hint}\n"


def test_an_error_in_the_answer_is_raised():
    with pytest.raises(ZeroDivisionError):
        check_04_enough_workers(lambda L, T: 1 // 0)
