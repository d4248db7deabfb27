"""A front notebook as its reader meets it: all cells run at once, or one after the other."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from course.ending import ending
from course.notebook_files import notebook_path
from course.progress import PATH
from course.stamp import stamp
from labkit.panel import guess
from labkit.racing import RaceResult, RaceRun

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


# What JupyterLab leaves for an output in a window of 1300, 700 and 390 pixels.
@pytest.mark.parametrize("room", [1000, 312, 290])
def test_all_columns_of_an_ending_and_a_stamp_are_seen(
    browser: Browser, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    score = guess.Score()
    monkeypatch.setattr(guess, "SCORE", score)
    asked = "frozen norms · Inference, biases left out: how many times as fast is the candidate?"
    score.count("a", guess.Decided(asked, "the candidate", "no difference", False))
    score.leave_open("b", "a wide layer · 1 row, not 64: how many times as fast?", "19×")
    runs = [RaceRun(arm, seed, ((10, 1.0, 0.5),), True) for arm in "ab" for seed in range(4)]
    race = RaceResult(tuple(runs), 0.9, "accuracy", True)
    claim = stamp("sixteen bits are enough", {"steps of 0.01, ten layers in a row": race})
    page = browser.new_page(viewport={"width": room, "height": 900})
    shown = f"{claim._repr_html_()}{ending(PATH[-1])._repr_html_()}"
    page.set_content(f'<body style="margin: 0">{shown}</body>')
    tables = page.locator(".labkit-rows .labkit-scroll")
    wide = "all => all.map(each => [each.scrollWidth, each.clientWidth])"
    widths = tables.evaluate_all(wide)
    page.close()
    assert len(widths) == 3
    assert all(content <= seen <= room for content, seen in widths), widths
