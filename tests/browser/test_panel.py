"""The panel in a real browser: operated, stopped, refused, reloaded, read in the dark, and saved."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from .harness import JupyterServer, NotebookPage

pytestmark = pytest.mark.browser

IMPORTS = """
import time
import torch
from labkit import Lab, LabPanel, Workload
"""
LAB = """
def make_workload(double, size, kind):
    inputs = torch.randn(size, size)
    def step():
        result = inputs @ inputs
        if double:
            result = inputs @ result
        return result.mean() if kind == "mean" else result.sum()
    return Workload(step, size, unit="rows")

lab = Lab(make_workload, double=[False, True], size=[64, 128, 256], kind=["mean", "sum", "fast"],
          unavailable={"kind": {"fast": "needs a GPU"}})
panel = LabPanel(lab)
panel
"""
SECOND = "other = LabPanel(lab)\nother"
BROKEN = """
def make_broken(double):
    raise FileNotFoundError("the images are not there")

LabPanel(Lab(make_broken, double=[False, True]))
"""
GREYED = """
gone = Lab(make_workload, double=[False, True], size=[64], kind=["mean", "sum"], unavailable={"kind": "sums need a GPU"})
LabPanel(gone)
"""


@pytest.fixture
def opened(lab_page: NotebookPage) -> NotebookPage:
    lab_page.open([IMPORTS, LAB, SECOND, BROKEN, GREYED], "panel.ipynb")
    assert lab_page.run_all() == []
    return lab_page


def endless(page: NotebookPage) -> None:
    """Make the next runs last until Stop: steps so slow that no interval narrows."""
    page.execute(
        "import random\npanel.lab.make_workload = lambda **_: Workload(lambda: time.sleep(0.01 + random.random() / 20))"
    )
    page.panel().set_budget(60)


def test_run_shows_live_numbers_and_leaves_figure_and_table_in_the_notebook(opened: NotebookPage) -> None:
    panel = opened.panel()
    assert panel.names("toggle") == ["double"]
    assert panel.names("slider") == ["size"]
    assert panel.names("dropdown") == ["kind"]
    assert panel.set_slider("size", 2) == "256"
    assert panel.set_slider("size", -1) == "128"
    assert panel.set_slider("size", 1, "baseline") == "128"
    panel.set_toggle("double", False)
    panel.set_toggle("double", True)
    panel.set_dropdown("kind", "sum")
    assert "needs a GPU" in panel.root.locator(".labkit-grid").inner_text()
    assert panel.control("kind").locator("option").all_inner_texts() == ["mean", "sum"]
    panel.button("code").click()
    code = panel.root.locator(".labkit-source pre")
    code.wait_for()
    assert "double=True" in code.inner_text()
    opened.screenshot("panel-before", panel.root)

    pressed = time.monotonic()
    panel.run()
    panel.wait_running()
    panel.wait_number()
    print(f"\nfirst live number {time.monotonic() - pressed:.2f} s after Run")
    assert panel.wait_finished().startswith("Done:")
    assert panel.runs() == 1
    assert "×" in panel.speedup()
    assert panel.root.locator(".labkit-head .labkit-badge").inner_text() != ""
    opened.screenshot("panel-after", panel.root)

    saved = opened.save()
    outputs = [output for cell in saved.cells for output in cell.outputs]
    figures = [output for output in outputs if "image/png" in output.data]
    tables = [output for output in outputs if "speed-up" in output.data.get("text/plain", "")]
    assert len(figures) == 1
    assert len(tables) == 1
    assert "baseline" in tables[0].data["text/plain"]
    assert "widget-view" in str([list(output.data) for output in outputs])
    opened.screenshot("panel-page")


def test_sweep_and_same_settings(opened: NotebookPage) -> None:
    panel = opened.panel()
    panel.root.locator(".labkit-swept select").select_option(label="size")
    panel.root.locator(".labkit-follow input").check()
    panel.sweep()
    panel.wait_running()
    assert "3 comparisons" in panel.wait_finished()
    assert panel.runs() == 3
    opened.screenshot("panel-sweep", panel.root)
    assert panel.control("double").locator("input").is_checked()
    panel.button("same").click()
    opened.page.wait_for_timeout(300)
    assert not panel.control("double").locator("input").is_checked()
    streams = [output for output in opened.outputs() if output["output_type"] == "stream"]
    assert streams == []


def test_stop_answers_and_the_next_run_works(opened: NotebookPage) -> None:
    panel = opened.panel()
    endless(opened)
    panel.run()
    panel.wait_number()
    panel.set_slider("size", 1)  # applies to the next run
    pressed = time.monotonic()
    panel.stop()
    assert panel.wait_finished(20).startswith("Stopped")
    print(f"\nstopped {time.monotonic() - pressed:.2f} s after Stop")
    panel.stop()
    opened.page.wait_for_timeout(300)
    assert "Nothing is running" in panel.status()
    opened.execute("panel.lab.make_workload = make_workload")
    panel.run()
    panel.wait_running()
    assert panel.wait_finished().startswith("Done:")
    assert panel.runs() == 2
    assert "size=64" not in panel.root.locator(".labkit-history tbody tr").first.inner_text()


def test_second_panel_is_refused_and_can_stop_the_first(opened: NotebookPage) -> None:
    first, second = opened.panel(0), opened.panel(1)
    endless(opened)
    first.run()
    first.wait_running()
    second.run()
    opened.page.wait_for_timeout(500)
    assert "Another panel is measuring" in second.status()
    opened.screenshot("panel-refused", second.root)
    second.stop()  # the first panel may be out of sight, or no longer on the page
    first.wait_finished(20)
    opened.execute("lab.make_workload = make_workload")
    second.run()
    second.wait_running()
    assert second.wait_finished().startswith("Done:")


def test_rerun_of_the_cell_while_it_measures(opened: NotebookPage) -> None:
    endless(opened)
    opened.panel().run()
    opened.panel().wait_running()
    opened.run_cell(1)
    panel = opened.panel()
    panel.run()
    opened.page.wait_for_timeout(500)
    assert "Another panel is measuring" in panel.status()
    panel.stop()
    opened.execute(
        "import labkit.panel, threading\nfor t in threading.enumerate():\n    if t.name == 'labkit-panel': t.join()"
    )
    panel.run()
    panel.wait_running()
    assert panel.wait_finished().startswith("Done:")


def test_error_in_make_workload_is_shown(opened: NotebookPage) -> None:
    panel = opened.panel(2)
    panel.run()
    opened.page.wait_for_function(
        "text => document.body.innerText.includes(text)", arg="FileNotFoundError", timeout=20_000
    )
    assert "the images are not there" in panel.wait_finished()
    opened.screenshot("panel-error", panel.root)


def test_greyed_control_says_why(opened: NotebookPage) -> None:
    panel = opened.panel(3)
    assert panel.names("dropdown") == []
    assert "sums need a GPU" in panel.root.locator(".labkit-grid").inner_text()
    assert panel.control("kind").locator("select").is_disabled()
    panel.run()
    panel.wait_running()
    assert panel.wait_finished().startswith("Done:")
    opened.screenshot("panel-greyed", panel.root)


def test_keyboard_alone(opened: NotebookPage) -> None:
    panel, keyboard = opened.panel(), opened.page.keyboard
    cells = opened.cells()
    for locator in (
        panel.button("run"),
        panel.control("size").locator(".noUi-handle"),
        panel.control("double").locator("input"),
    ):
        locator.focus()
        for key in ("b", "a", "d", "d", "x", "0", "0"):
            keyboard.press(key)
        opened.page.wait_for_timeout(200)
        assert opened.cells() == cells
        assert locator.evaluate("node => node.getAttribute('aria-label') || node.innerText")

    panel.control("double", "baseline").locator("input").focus()
    order = []
    for _ in range(16):
        order.append(
            opened.page.evaluate(
                "document.activeElement.getAttribute('aria-label') || document.activeElement.innerText.trim()"
            )
        )
        keyboard.press("Tab")
    wanted = [
        "double, baseline",
        "double, candidate",
        "size, baseline",
        "size, candidate",
        "Run",
        "Stop",
        "time budget",
        "Sweep",
    ]
    assert [name for name in order if name in wanted] == wanted

    panel.control("double").locator("input").focus()
    keyboard.press("Space")
    assert not panel.control("double").locator("input").is_checked()
    panel.button("run").focus()
    keyboard.press("Enter")
    panel.wait_running()
    assert panel.wait_finished().startswith("Done:")
    assert panel.button("run").evaluate("node => node === document.activeElement")


def test_page_reload_during_a_run(opened: NotebookPage) -> None:
    endless(opened)
    opened.panel().run()
    opened.panel().wait_number()
    opened.save()
    opened.reload()
    panel = opened.panel()  # the widgets are back, from the kernel's state
    assert panel.running()
    panel.wait_number()
    opened.screenshot("panel-reloaded", panel.root)
    panel.stop()
    assert panel.wait_finished(20).startswith("Stopped")
    opened.execute("panel.lab.make_workload = make_workload")
    panel.run()
    panel.wait_running()
    assert panel.wait_finished().startswith("Done:")
    assert panel.runs() == 2
    panel.root.locator(
        ".labkit-copy img"
    ).wait_for()  # the cell's outputs are out of reach: the results show in the panel
    opened.screenshot("panel-reloaded-after", panel.root)


def test_dark_theme_and_narrow_page(browser_page: NotebookPage) -> None:
    browser_page.open([IMPORTS, LAB], "narrow.ipynb")
    assert browser_page.run_all() == []
    browser_page.set_theme("dark")
    try:
        panel = browser_page.panel()
        panel.set_dropdown("kind", "sum")
        panel.run()
        panel.wait_running()
        assert panel.wait_finished().startswith("Done:")
        assert panel.root.evaluate("node => node.scrollWidth <= node.clientWidth")
        browser_page.screenshot("panel-dark", panel.root)
        browser_page.screenshot("panel-dark-page")
    finally:
        browser_page.set_theme("light")
    browser_page.screenshot("panel-narrow", browser_page.panel().root)


@pytest.fixture
def browser_page(browser, server: JupyterServer) -> Iterator[NotebookPage]:  # type: ignore[no-untyped-def]
    page = NotebookPage(server, browser, width=900, height=1100)
    yield page
    page.close()


def test_notebook_run_twice_without_restart(opened: NotebookPage) -> None:
    opened.panel().run()
    opened.panel().wait_running()
    opened.panel().wait_finished()
    assert opened.run_all() == []
    panel = opened.panel()
    assert panel.runs() == 0
    panel.run()
    panel.wait_running()
    assert panel.wait_finished().startswith("Done:")
