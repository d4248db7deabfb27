"""The exercise of notebook 09: when a search has paid for itself."""

import math

import pytest

from course.exercises import check_09_steps_until_it_pays


def right(first_off, later_off, first_on, later_on):
    extra, saved = first_on - first_off, later_off - later_on
    if extra <= 0:
        return 1
    return 1 + math.ceil(extra / saved) if saved > 0 else math.inf


def empty(first_off, later_off, first_on, later_on): ...


def forgets_the_first(first_off, later_off, first_on, later_on):
    extra, saved = first_on - first_off, later_off - later_on
    if extra <= 0:
        return 1
    return math.ceil(extra / saved) if saved > 0 else math.inf


def rounds_down(first_off, later_off, first_on, later_on):
    extra, saved = first_on - first_off, later_off - later_on
    return 1 + extra // saved if saved > 0 else math.inf


def search_alone(first_off, later_off, first_on, later_on):
    saved = later_off - later_on
    return 1 + math.ceil(first_on / saved) if saved > 0 else math.inf


def forgets_never(first_off, later_off, first_on, later_on):
    return max(1, 1 + math.ceil((first_on - first_off) / ((later_off - later_on) or 1e-9)))


def forgets_at_once(first_off, later_off, first_on, later_on):
    extra, saved = first_on - first_off, later_off - later_on
    return 1 + math.ceil(extra / saved) if saved > 0 else math.inf


def test_the_solution_passes(capsys):
    assert check_09_steps_until_it_pays(right) is True
    assert capsys.readouterr().out.startswith("✓")


def test_a_loop_is_a_solution_too():
    def by_counting(first_off, later_off, first_on, later_on):
        for n in range(1, 1000):
            if first_on + (n - 1) * later_on <= first_off + (n - 1) * later_off:
                return n
        return math.inf

    assert check_09_steps_until_it_pays(by_counting) is True


@pytest.mark.parametrize("answer", [empty])
def test_an_unsolved_stub_is_told_so(answer, capsys):
    assert check_09_steps_until_it_pays(answer) is False
    assert capsys.readouterr().out.startswith(
        "not yet: first steps 10 and 100, later steps 10 and 8 want 46"
    )


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (forgets_the_first, "first steps 10 and 100, later steps 10 and 8 want 46, yours says 45"),
        (search_alone, "first steps 10 and 100, later steps 10 and 8 want 46, yours says 51"),
        (rounds_down, "first steps 10 and 101, later steps 10 and 8 want 47, yours says 46"),
        (forgets_never, "later steps 10 and 10 want inf"),
        (forgets_at_once, "first steps 50 and 50, later steps 10 and 12 want 1, yours says inf"),
    ],
)
def test_wrong_answers_fail_and_are_told_why(answer, hint, capsys):
    assert check_09_steps_until_it_pays(answer) is False
    printed = capsys.readouterr().out
    assert printed.startswith("not yet: ")
    assert hint in printed


def test_an_error_of_the_readers_own_comes_through():
    with pytest.raises(ZeroDivisionError):
        check_09_steps_until_it_pays(lambda a, b, c, d: 1 / 0)
