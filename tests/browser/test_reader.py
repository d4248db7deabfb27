"""A front notebook as its reader meets it: all cells run at once, or one after the other."""

from __future__ import annotations

import pytest

from course.notebook_files import notebook_path

from .harness import NotebookPage

pytestmark = [pytest.mark.browser, pytest.mark.notebook]

OWN = """
import statistics

def speedup(a, b):
    return statistics.median(x / y for x, y in zip(a, b))

mine = speedup
solved = exercises.check_00_speedup(speedup)
"""


def shown(page: NotebookPage) -> str:
    return page.page.locator(".labkit-panel").first.locator(".labkit-active").inner_text()


def tagged(page: NotebookPage, tag: str) -> int:
    return page._js(
        "return widget.content.model.toJSON().cells.findIndex("
        "cell => (cell.metadata.tags || []).includes(argument));",
        tag,
    )


def test_run_all_leaves_the_first_question_and_a_step_offers_the_next(
    lab_page: NotebookPage,
) -> None:
    lab_page.open(notebook_path("00_start_here"))
    assert lab_page.run_all() == []
    assert shown(lab_page) == "a narrow layer"
    panel = lab_page.panel()
    assert panel.root.locator(".labkit-guessed").inner_text() == "move the slider"
    assert panel.root.get_by_role("button", name="the same twice").count() == 1
    # Far below the panel, by hand.
    lab_page.run_cell(tagged(lab_page, "breaks"))
    assert shown(lab_page) == "the same twice"


def test_a_bet_on_no_difference_is_one_press_and_its_rule_is_told(lab_page: NotebookPage) -> None:
    lab_page.open(notebook_path("00_start_here"))
    assert lab_page.run_to("panel") == []
    panel = lab_page.panel()
    panel.button("even").click()
    words = panel.root.locator(".labkit-guessed")
    words.get_by_text("no difference").or_(words).first.wait_for()
    panel.run()
    assert panel.wait_finished().startswith("Done:")
    head = panel.root.locator(".labkit-head")
    assert "You bet 1.0×" in head.inner_text() and "Within 20 %" in head.inner_text()
    lab_page.screenshot("bet-judged", panel.root)


def test_what_the_reader_solved_is_celebrated_and_stays(lab_page: NotebookPage) -> None:
    lab_page.open(notebook_path("00_start_here"))
    assert lab_page.run_to("panel") == []
    exercise, solution = (tagged(lab_page, tag) for tag in ("exercise", "solution"))
    lab_page._js(
        "widget.content.model.cells.get(argument[0]).sharedModel.setSource(argument[1]);",
        [exercise, OWN],
    )
    lab_page.run_cell(exercise)
    cell = lab_page.page.locator(".jp-Notebook .jp-Cell").nth(exercise)
    cell.get_by_text("Solved by yourself.").wait_for()
    lab_page.screenshot("solved", cell)
    lab_page.run_cell(solution)
    assert lab_page.execute("print(speedup is mine, solved)").strip() == "True True"
