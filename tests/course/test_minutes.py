"""The minutes that a notebook says it takes: one rule for all."""

from copy import deepcopy
from pathlib import Path

import nbformat
import pytest

from course import anatomy, minutes
from course import notebooks as tool
from course.notebook_files import place, read_notebook

PATHS = tool.notebooks()


@pytest.mark.parametrize("path", PATHS, ids=place)
def test_a_notebook_says_what_the_rule_gives(path: Path) -> None:
    assert list(minutes.check_minutes(read_notebook(path), path.stem)) == []


@pytest.fixture
def good() -> nbformat.NotebookNode:
    return read_notebook(anatomy.TEMPLATE_FILE)


def test_each_part_counts(good: nbformat.NotebookNode) -> None:
    """200 words, 30 lines and an exercise of 10 minutes more; a board less."""
    before = minutes.parts(good, "_template")
    assert before["running"] == 1 and before["playing"] == 10
    more = deepcopy(good)
    text = "word " * 200 + "\n\n*Difficulty: easy. About 10 minutes.*"
    more.cells.append(nbformat.v4.new_markdown_cell(text))
    more.cells.append(nbformat.v4.new_code_cell("pass\n" * 30))
    more.cells = [cell for cell in more.cells if "board" not in cell.metadata.get("tags", ())]
    after = minutes.parts(more, "_template")
    assert after["reading"] - before["reading"] == pytest.approx(1 + 5 / 200)
    assert after["reading code"] - before["reading code"] == pytest.approx(1, abs=0.1)
    assert after["building"] - before["building"] == 10
    assert after["playing"] == 8
    assert minutes.estimate(more, "_template") == minutes.estimate(good, "_template") + 10


def test_a_long_notebook_runs_as_long_as_it_did_when_it_was_recorded() -> None:
    assert minutes.recorded("03_learning_rate_schedules") > 5
    assert minutes.recorded("99_never_recorded") == minutes.RUN_ALL


def test_other_minutes_are_named(good: nbformat.NotebookNode) -> None:
    wanted = minutes.estimate(good, "_template")
    good.metadata.labkit.minutes = wanted + 10
    far, card = minutes.check_minutes(good, "_template")
    assert f"is {wanted + 10}; course/minutes.py has {wanted} (reading 2, " in far
    assert f"does not say on its card that it takes {wanted + 10} minutes" in card
    good.metadata.labkit.minutes = wanted - 1
    assert "metadata.labkit.minutes is" in next(minutes.check_minutes(good, "_template"))
