"""The board in JupyterLab: nothing runs by itself, and a press of each button does what it says."""

from __future__ import annotations

from playwright.sync_api import Locator

from .harness import NotebookPage

CELLS = [
    "from course.board import board\nboard('as_tensor')",
    "answer = 6 * 7\nprint(answer)",
]


def button(page: NotebookPage, name: str) -> Locator:
    return page.page.get_by_role("button", name=name, exact=True)


def test_a_switch_is_measured_kept_and_taken_back(lab_page: NotebookPage) -> None:
    lab_page.open(CELLS)
    assert lab_page.run_all() == []
    first = lab_page.page.locator(".jp-Notebook .jp-CodeCell").first
    # The cell is done, and nothing was measured.
    first.get_by_text("as_tensor").first.wait_for()
    assert button(lab_page, "Keep it").count() == 0
    bet = first.locator(".widget-toggle-buttons").get_by_text("no difference", exact=True)
    bet.click()
    lab_page.screenshot("board-bet", first)
    button(lab_page, "Measure it (a minute at most)").click()
    button(lab_page, "Keep it").wait_for(timeout=60_000)
    told = first.get_by_text("You bet on").or_(first.get_by_text("stays open"))
    told.first.wait_for()
    # What a busy machine leaves open stays on the page.
    assert bet.count() == first.get_by_text("stays open").count()
    assert button(lab_page, "Stop").count() == 0
    lab_page.screenshot("board-measured", first)
    button(lab_page, "Keep it").click()
    button(lab_page, "Undo").wait_for()
    first.get_by_text("Kept.").first.wait_for()
    button(lab_page, "Undo").click()
    button(lab_page, "Do not keep it").click()
    first.get_by_text("Not kept.").first.wait_for()
    assert lab_page.console == []


def test_another_switch_is_chosen_from_the_list(lab_page: NotebookPage) -> None:
    lab_page.open(CELLS)
    assert lab_page.run_all() == []
    first = lab_page.page.locator(".jp-Notebook .jp-CodeCell").first
    first.locator(".widget-dropdown select").select_option("clipping")
    first.get_by_text("limit the norm of the gradient to 1").first.wait_for()
    first.get_by_text("Its lines in the slow script").click()
    first.get_by_text("clip_grad_norm_").wait_for()
    assert button(lab_page, "Measure it (two minutes at most)").count() == 1
    assert first.locator(".widget-toggle-buttons").count() == 1
    lab_page.screenshot("board-chosen", first)
    assert lab_page.console == []


SLOW = """
import math
from course.board import board, cell, measure

measured = cell.measure

def slow(switch, present, seconds=None, whole=False, most=math.inf, **told):
    if most < 100:
        raise measure.TooSlow("there was no time", 9.0, 2)
    return measured(switch, present, 0.2, **told)

cell.measure = slow
board('as_tensor')
"""


def test_what_is_too_slow_gets_a_button(lab_page: NotebookPage) -> None:
    lab_page.open([SLOW])
    assert lab_page.run_all() == []
    lab_page.page.set_viewport_size({"width": 390, "height": 900})
    button(lab_page, "Measure it (a minute at most)").click()
    patient = button(lab_page, "Take the time it needs (about 2 min)")
    patient.wait_for(timeout=60_000)
    # Its words are not cut on a phone.
    assert patient.evaluate("button => button.scrollWidth <= button.clientWidth")
    patient.click()
    button(lab_page, "Keep it").wait_for(timeout=60_000)
    assert patient.count() == 0 and lab_page.console == []


def test_run_all_again_leaves_one_board_that_works(lab_page: NotebookPage) -> None:
    lab_page.open(CELLS)
    for _ in range(2):
        assert lab_page.run_all() == []
    assert button(lab_page, "Measure it (a minute at most)").count() == 1
    button(lab_page, "Measure it (a minute at most)").click()
    # A cell that begins ends it, or finds it done.
    lab_page.run_cell(1)
    last = lab_page.page.get_by_text("another cell began").or_(button(lab_page, "Keep it"))
    last.first.wait_for(timeout=60_000)
    assert "42" in lab_page.page.locator(".jp-Notebook .jp-CodeCell").nth(1).inner_text()


ROUGH = """
from IPython.display import HTML
from course.board.page import html
from course.board.store import Choice, Choices, Figure
from course.board.waterfall import waterfall

odd = Figure("as_tensor", "time", (), 2.0, (0.5, 8.0), "unclear", 200.0)
HTML(html(waterfall(Choices(200.0, {"as_tensor": Choice(odd, True)}), None, 200_000)))
"""


def test_bars_of_one_scale_are_as_wide_whatever_stands_beside_them(lab_page: NotebookPage) -> None:
    lab_page.open([ROUGH])
    assert lab_page.run_all() == []
    for width in (1400, 390):
        lab_page.page.set_viewport_size({"width": width, "height": 900})
        fields = lab_page.page.locator(".labkit-goal svg .k-field")
        wide = fields.evaluate_all("all => all.map(one => one.getBoundingClientRect().width)")
        assert len(wide) > 1 and max(wide) - min(wide) < 0.5, wide
    lab_page.screenshot("board-rough")
