"""The reader's own answer beside the folded solution: which stays, and what is celebrated."""

from types import SimpleNamespace
from typing import Any

import pytest

from course.exercises import check_00_speedup, own

OWN = """
import statistics
LIMIT = 2
def helper(pair): return pair[0] / pair[1]
def speedup(a, b): return statistics.median(map(helper, zip(a, b)))
"""
SOLUTION = """
import statistics
def speedup(a, b):
    return statistics.median(x / y for x, y in zip(a, b, strict=True))
"""
WRONG = "def speedup(a, b): return 1.0"
CHECK = "solved = check_00_speedup(speedup)"


class Notebook:
    """A kernel whose front end sends the tags of the cells."""

    def __init__(self) -> None:
        self.user_ns: dict[str, Any] = {"check_00_speedup": check_00_speedup}
        self.kernel = SimpleNamespace(get_parent=lambda: self.parent)

    def run(self, source: str, *tags: str) -> None:
        code = f"{source}\n{CHECK}"
        self.parent = {"metadata": {"tags": list(tags)}, "content": {"code": code}}
        exec(code, self.user_ns)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    made = Notebook()
    monkeypatch.setattr(own, "_own", {})
    monkeypatch.setattr(own, "_won", set())
    monkeypatch.setattr(own, "_shell", lambda: made)
    return made


@pytest.fixture
def celebrated(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    shown: list[Any] = []
    monkeypatch.setattr("IPython.display.display", lambda what, **_: shown.append(what))
    return shown


def test_what_the_reader_solved_stays_behind_the_solution(
    notebook: Notebook, celebrated: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    notebook.run(OWN, "exercise", "nbval-check-output")
    (badge,) = celebrated
    assert "labkit-new" in badge["text/html"] and badge["text/plain"] == "★ Solved by yourself."
    mine = notebook.user_ns["speedup"]
    notebook.run(SOLUTION, "solution")
    assert notebook.user_ns["speedup"] is mine and notebook.user_ns["solved"]
    assert own.STAYS in capsys.readouterr().out
    assert len(celebrated) == 1 and own.solved("00") and not own.solved("0")


def test_a_solution_takes_the_place_of_what_has_not_passed(
    notebook: Notebook, celebrated: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    for before, won in (([WRONG], False), ([OWN, WRONG], True)):
        for source in before:
            notebook.run(source, "exercise")
        # A star that was won stays.
        assert own.solved("00") == won
        notebook.run(SOLUTION, "solution")
        assert notebook.user_ns["speedup"]([4.0], [1.0]) == 4.0 and own.solved("00") == won
    said = capsys.readouterr().out
    assert own.STAYS not in said and said.count(own.NOT_YOURS) == 1


def test_a_later_answer_of_the_reader_is_the_one_that_stays(
    notebook: Notebook, celebrated: list[Any]
) -> None:
    notebook.run(OWN, "exercise")
    notebook.run(SOLUTION.replace("x / y", "1 * x / y"), "exercise")
    latest = notebook.user_ns["speedup"]
    notebook.run(SOLUTION, "solution")
    assert notebook.user_ns["speedup"] is latest


def test_without_tags_each_cell_does_what_it_says(
    notebook: Notebook, celebrated: list[Any]
) -> None:
    notebook.run(OWN)
    notebook.run(SOLUTION)
    assert not celebrated and not own.solved("00")
    assert notebook.user_ns["speedup"].__code__.co_names[0] != "helper"


def test_outside_a_kernel_a_check_is_a_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert own._shell() is None
    cells: dict[str, Any] = {}
    exec(SOLUTION, cells)
    assert check_00_speedup(cells["speedup"]) and not check_00_speedup(lambda a, b: 1.0)
    assert "★" not in capsys.readouterr().out


def test_a_cell_with_a_magic_defines_nothing_that_is_known() -> None:
    assert own._defined({"content": {"code": "%time x = 1"}}) == []
    assert own._defined({"content": {"code": OWN}}) == ["helper", "speedup"]
