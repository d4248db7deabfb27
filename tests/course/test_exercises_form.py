"""The form that all checks share: cases, the first wrong one of which is the hint."""

import traceback
from pathlib import Path

import pytest

from course import exercises
from course.exercises.tell import NotYet, check
from tests import labs


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


FORGOTTEN = """\
def double(number):
    return helper(number)

def helper(number):
    return 2 * nmber

check(double)
"""


def test_an_error_shows_the_reader_s_lines_and_none_of_the_check() -> None:
    names = {"__name__": "__main__", "check": check_double}
    with pytest.raises(NameError) as caught:
        exec(compile(FORGOTTEN, "<cell>", "exec"), names)
    shown = []
    for frame, line in traceback.walk_tb(caught.tb):
        shown.append((Path(frame.f_code.co_filename).name, line))
    # The line that called the check, then the reader's own functions.
    assert shown[1:] == [("<cell>", 7), ("<cell>", 2), ("<cell>", 5)]


def test_a_hint_that_shows_an_endless_value_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    @check("short")
    def check_short(answer: object) -> None:
        """`answer` is short."""
        raise NotYet(f"{answer} is too long")

    assert check_short("no" * 1000) is False
    said = capsys.readouterr().out
    assert said.startswith("not yet: nono") and said.endswith("no …\n")
    assert len(said) < 600


def test_an_error_of_the_check_itself_shows_the_check() -> None:
    with pytest.raises(TypeError) as caught:
        check_double(3)
    files = [Path(frame.f_code.co_filename).name for frame, _ in traceback.walk_tb(caught.tb)]
    assert files[-1] == "tell.py" and files.count("tell.py") == 2


CHECKS = [name for name in exercises.__all__ if name.startswith("check_")]


@pytest.mark.parametrize("name", CHECKS)
def test_each_stub_is_told_what_to_do(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    def stub(*_: object, **__: object) -> None:
        raise NotImplementedError("your turn")

    assert getattr(exercises, name)(stub) is False
    said = "not yet: write it, then run this cell again\n"
    assert capsys.readouterr().out == said


@pytest.mark.parametrize("name", CHECKS)
def test_each_check_raises_an_error_of_the_reader_s_own(name: str) -> None:
    with pytest.raises(ZeroDivisionError):
        getattr(exercises, name)(lambda *_, **__: 1 // 0)


def test_each_check_has_one_table_of_answers() -> None:
    assert sorted(lab.CHECK.__name__ for lab in labs.tables()) == sorted(CHECKS)


@pytest.mark.parametrize("name", CHECKS)
def test_each_check_is_in_this_form(name: str) -> None:
    function = getattr(exercises, name)
    assert function.__name__ == name
    assert function.__doc__
    assert function.__wrapped__.__annotations__["return"] in ("None", None)
