"""The form that all checks share: cases, the first wrong one of which is the hint."""

import pytest

from course import exercises
from course.exercises.tell import NotYet, check


@check("twice as much")
def check_double(answer: object, number: int = 3) -> None:
    """`answer(number)` is its double."""
    if exercises.attempt(answer, number) is None:
        raise NotYet("return a number")
    if answer(number) != 2 * number:
        raise NotYet(f"{number} doubled is {2 * number}")


def test_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_double(lambda number: 2 * number) is True
    assert capsys.readouterr().out == "✓ twice as much\n"


def test_the_first_wrong_case_is_the_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_double(lambda number: number, number=4) is False
    assert capsys.readouterr().out == "not yet: 4 doubled is 8\n"


def test_a_function_without_a_body_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_double(lambda number: None) is False
    assert capsys.readouterr().out == "not yet: return a number\n"


def test_an_error_of_the_reader_s_own_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        check_double(lambda number: number / 0)


CHECKS = [name for name in exercises.__all__ if name.startswith("check_")]


@pytest.mark.parametrize("name", CHECKS)
def test_each_stub_is_told_what_to_do(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    def stub(*_: object, **__: object) -> None:
        raise NotImplementedError("your turn")

    assert getattr(exercises, name)(stub) is False
    said = "not yet: write the function, then run this cell again\n"
    assert capsys.readouterr().out == said


@pytest.mark.parametrize("name", CHECKS)
def test_each_check_is_in_this_form(name: str) -> None:
    function = getattr(exercises, name)
    assert function.__name__ == name
    assert function.__doc__
    assert function.__wrapped__.__annotations__["return"] in ("None", None)
