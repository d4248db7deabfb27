"""Notebooks in a real browser: run the cells, operate the first panel, take pictures.

Each of the front form up to its first number, and of `WHOLE` all cells; with `pytest tests/browser
--labs all` all cells of all, the deeper ones too (about a quarter of an hour). All of them run
without a browser in `tests/course/test_notebooks.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from course.front import is_front
from course.notebook_files import course_notebooks, notebook_path, place, read_notebook

from .harness import NotebookPage

pytestmark = [pytest.mark.browser, pytest.mark.notebook]

# A planner, worker processes, sides in processes of their own.
SLIDERS = "deeper/12_sublinear_memory"
# One of each plot; among them worker processes, a race, memory, a compiler and the shortest form.
WHOLE = (
    "01_timing_and_vectorization",
    "04_data_loading",
    "11_activation_checkpointing",
    "16_as_tensor",
    "18_gradient_clipping",
    "22_compile_and_cuda_graphs",
)
# Pixels: code between the picture and the panel is what a reader scrolls over.
ONE_SCREEN = 900


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "path" not in metafunc.fixturenames:
        return
    wanted = []
    for path in course_notebooks():
        if is_front(read_notebook(path)) or metafunc.config.getoption("--labs") == "all":
            wanted.append(path)
    assert wanted, "notebooks/ holds no numbered notebook"
    metafunc.parametrize("path", wanted, ids=map(place, wanted))


def test_a_recorded_run_stands_beside_the_reader_s(lab_page: NotebookPage) -> None:
    """In the picture, and in the table that stays."""
    lab_page.open(notebook_path("deeper/00_start_here"))
    assert lab_page.run_all() == []
    panel = lab_page.panel()
    panel.open_more()
    menu = panel.root.locator(".labkit-beside select")
    machine = menu.locator("option:checked").inner_text()
    panel.run()
    assert panel.wait_finished().startswith("Done:")
    drawn = panel.root.locator(".labkit-picture")
    assert machine in drawn.inner_text()
    lab_page.screenshot("recorded-beside", panel.root)
    lab_page.screenshot("recorded-page")
    texts = [output.get("data", {}).get("text/plain", "") for output in lab_page.outputs()]
    assert any(machine in text and "you" in text for text in texts)
    menu.select_option(label="no other machine")
    panel.run()
    assert panel.wait_finished().startswith("Done:")
    assert machine not in drawn.inner_text()


def test_notebook(lab_page: NotebookPage, path: Path, pytestconfig: pytest.Config) -> None:
    shot = place(path).replace("/", "-")
    long = not is_front(read_notebook(path))
    whole = place(path) in WHOLE or pytestconfig.getoption("--labs") == "all"
    lab_page.open(path)
    errors = lab_page.run_all() if whole else lab_page.run_to("panel")
    assert errors == []
    lab_page.screenshot(f"{shot}-top")

    if not long:
        assert 0 < below_the_picture(lab_page) <= ONE_SCREEN
    panel = lab_page.panel()
    for name in panel.names("toggle")[:1]:
        toggle = panel.control(name).locator("input")
        wanted = not toggle.is_checked()
        panel.set_toggle(name, wanted)
        assert toggle.is_checked() == wanted
        panel.set_toggle(name, not wanted)
    for name in panel.names("slider")[:1]:
        before = panel.readout(name)
        assert panel.set_slider(name, 1) != before or panel.set_slider(name, -1) != before
    panel.run()
    panel.wait_number()
    assert panel.wait_finished().startswith("Done:")
    assert len(panel.history()) == 1
    if not whole:
        return
    machines = panel.root.locator(".labkit-beside option").count()
    assert machines > 1 or not long, "no recorded run to draw beside the reader's"
    lab_page.screenshot(f"{shot}-panel", panel.root)

    panel.set_budget(60)
    panel.run()
    panel.wait_result()
    panel.stop()
    # done: its intervals were narrow before the click
    assert panel.wait_finished().startswith(("Stopped:", "Done:"))
    assert len(panel.history()) == 2
    outputs = [output for cell in lab_page.save().cells for output in cell.get("outputs", [])]
    assert any("<svg" in output.get("data", {}).get("text/html", "") for output in outputs)
    lab_page.screenshot(f"{shot}-page")
    if place(path) == SLIDERS:
        check_that_sliders_draw_anew(lab_page)


def below_the_picture(page: NotebookPage) -> float:
    """Pixels between the moving picture and the panel."""
    picture = page.page.locator(".course-explorable").first.bounding_box()
    panel = page.page.locator(".labkit-panel").first.bounding_box()
    assert picture is not None and panel is not None
    return panel["y"] - picture["y"] - picture["height"]


def check_that_sliders_draw_anew(lab_page: NotebookPage) -> None:
    """The genetic search and the plan over the network: each slider's figure follows it, and the
    text above it.
    """
    for number, name in enumerate(("search", "plan")):
        box = lab_page.page.locator(".widget-interact").nth(number)
        before = box.locator("img").get_attribute("src")
        lab_page.screenshot(f"sublinear-{name}-before", box)
        box.locator(".noUi-handle").first.focus()
        lab_page.page.keyboard.press("ArrowLeft")
        lab_page.page.wait_for_function(
            "([n, before]) => { const widget = document.querySelectorAll('.widget-interact')[n];"
            " const image = widget.querySelector('img');"
            " return image && image.src !== before; }",
            arg=[number, before],
            timeout=30_000,
        )
        lab_page.screenshot(f"sublinear-{name}-after", box)
        assert "Error" not in box.inner_text()
