"""The panel in a real browser: operated, stopped, refused, reloaded, read in the dark,
and saved.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from itertools import combinations

import pytest
from playwright.sync_api import Browser, BrowserContext
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

from .harness import JupyterServer, NotebookPage

pytestmark = pytest.mark.browser

IMPORTS = """
import random
import time
import torch
from labkit import Lab, Workload
from labkit.panel import Bet, LabPanel
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
SECOND = "LabPanel(lab)"
BROKEN = """
def make_broken(double):
    raise FileNotFoundError("the images are not there")

LabPanel(Lab(make_broken, double=[False, True]))
"""
GREYED = """
LabPanel(Lab(make_workload, double=[False, True], size=[64], kind=["mean", "sum"],
             unavailable={"kind": "sums need a GPU"}))
"""
# Steps of such different lengths that no interval narrows: a run lasts until Stop.
ENDLESS = (
    "lab.make_workload = lambda **_: Workload(lambda: time.sleep(0.01 + random.random() / 20))"
)
RESTORE = "lab.make_workload = make_workload; panel.buttons.budget.value = 1"
# Ends whatever a test left running.
FREE = """
from labkit.panel.run import measuring
if measuring():
    runs = measuring()
    runs.stop()
    runs.wait()
"""
OVER = """
from labkit.panel.run import measuring
assert measuring() is None
"""
OPEN_WIDGETS = """
from ipywidgets.widgets import widget
print(len(widget._instances))
"""


LEARNER = """
from torch import nn

def make_learner(rate, rows, ahead=0):
    weight = torch.ones(rows, 64, requires_grad=True)
    def step():
        weight.grad = None
        loss = weight.square().sum()
        loss.backward()
        with torch.no_grad():
            weight.sub_(rate * weight.grad)
        return loss.detach()
    return Workload(step, rows, evaluate=lambda: float(weight.detach().square().mean()))

learner = LabPanel(Lab(
    make_learner, rate=[0.01, 0.05], ahead=[0, 2],
    situation={"rows": [8, 64, 512]},
    scenarios={"few rows": {}, "many rows": {"rows": 512}},
    race={"target": 0.01, "steps": 400, "every": 5, "metric": "loss",
          "higher_is_better": False, "seeds": 2},
), bets={"many rows": Bet("Which side is faster here?", "order")})
learner
"""


DRAWS = """
if panel.latest:
    import threading
    torch.manual_seed(0)
    alive = [each.name for each in threading.enumerate() if each.name == "labkit-panel"]
    print([round(torch.rand(1).item(), 4) for _ in range(3)], alive)
"""


@pytest.fixture(scope="module")
def notebook(
    browser: Browser, context: BrowserContext, server: JupyterServer
) -> Iterator[NotebookPage]:
    page = NotebookPage(server, browser, context=context)
    page.open([IMPORTS, LAB, SECOND, BROKEN, GREYED, LEARNER, DRAWS], "panel.ipynb")
    yield page
    page.close()


@pytest.fixture
def opened(notebook: NotebookPage) -> NotebookPage:
    """The notebook with new labs and panels, in the kernel of the tests before,
    as readers run it too.
    """
    notebook.execute(FREE)
    assert notebook.run_all() == []
    last = notebook.page.locator(".labkit-live").nth(4)
    try:
        last.wait_for(timeout=10_000)
    except PlaywrightTimeoutError:
        # Messages were lost: once more, as a reader would.
        assert notebook.run_all() == []
    return notebook


def test_run_shows_live_numbers_and_leaves_its_result_in_the_notebook(
    opened: NotebookPage,
) -> None:
    panel = opened.panel()
    assert panel.names("toggle") == ["double"]
    assert panel.names("slider") == ["size"]
    assert panel.names("dropdown") == ["kind"]
    assert panel.set_slider("size", 2) == "256"
    assert panel.set_slider("size", -1) == "128"
    panel.set_toggle("double", False)
    panel.set_toggle("double", True)
    panel.set_dropdown("kind", "sum")
    assert "fast: needs a GPU" in panel.root.locator(".labkit-technique").inner_text()
    assert panel.control("kind").locator("option").all_inner_texts() == ["mean", "sum"]
    panel.open_more()
    assert panel.set_slider("size", 1, "baseline") == "128"
    panel.button("code").click()
    code = panel.root.locator(".labkit-source", has_text="size=128")
    code.wait_for()
    call, sweep = code.inner_text().splitlines()
    assert (
        call == "lab.run(double=True, size=128, kind='sum', baseline={'size': 128}, seconds=0.25)"
    )
    assert sweep.startswith("lab.sweep('size', double=True")
    opened.screenshot("panel-before", panel.root)
    panel.button("more").click()

    pressed = time.monotonic()
    panel.run()
    panel.wait_number()
    print(f"\nfirst live number {time.monotonic() - pressed:.2f} s after Run")
    opened.screenshot("panel-live", panel.root)
    assert panel.wait_finished().startswith("Done:")
    assert len(panel.history()) == 1
    assert "double: False → True" in panel.history()[0]
    assert re.search(r"\d", panel.speedup())
    assert panel.verdict().split(",")[0] in ("faster", "slower", "same", "unclear")
    picture = panel.root.locator(".labkit-picture svg")
    assert picture.get_attribute("role") == "img"
    assert panel.status() == f"Done: {picture.get_attribute('aria-label')}"
    opened.screenshot("panel-after", panel.root)

    outputs = [output for cell in opened.save().cells for output in cell.outputs]
    (result,) = [output for output in outputs if "95 %" in output.data.get("text/plain", "")]
    assert "baseline" in result.data["text/plain"]
    assert "<svg" in result.data["text/html"]
    # What a page without widgets shows.
    assert "lab.run(double=True" in outputs[0].data["text/plain"]


def test_few_controls_at_first_and_nothing_jumps(opened: NotebookPage) -> None:
    panel = opened.panel(4)
    seen = panel.root.locator("button:visible, select:visible, input:visible, .noUi-handle:visible")
    names = seen.evaluate_all("nodes => nodes.map(n => n.ariaLabel || n.innerText.trim())")
    assert names == [
        *("Time", "Memory", "Race", "few rows", "many rows"),
        *("rate, candidate", "ahead, candidate", "your bet"),
        *("no difference", "Run", "More"),
    ]
    sure = panel.root.locator(".labkit-sure")
    results = panel.root.locator(".labkit-picture")
    # As a click would scroll.
    panel.button("run").scroll_into_view_if_needed()
    below, place = sure.bounding_box(), results.bounding_box()
    panel.run()
    panel.wait_number()
    assert results.bounding_box() == place
    assert panel.button("stop").is_visible() and not panel.button("run").is_visible()
    assert panel.wait_finished().startswith("Done:")
    assert results.bounding_box() == place
    assert sure.bounding_box() == below
    assert "pairs" not in sure.inner_text()
    sure.locator("summary").click()
    assert "pairs of" in sure.inner_text()


def test_sweep_and_same_settings(opened: NotebookPage) -> None:
    panel = opened.panel()
    panel.open_more()
    panel.root.locator(".labkit-swept select").select_option(label="size")
    panel.root.locator(".labkit-follow input").check()
    panel.sweep()
    assert panel.wait_finished().startswith("Done: Sweep of size:")
    assert len(panel.history()) == 3
    assert "Sweep of size:" in panel.root.locator(".labkit-head").inner_text()
    opened.screenshot("panel-sweep", panel.root)
    assert panel.control("double").locator("input").is_checked()
    panel.button("same").click()
    panel.control("double").get_by_text("off").wait_for()
    assert not panel.control("double").locator("input").is_checked()
    assert [output for output in opened.outputs() if output["output_type"] == "stream"] == []


def test_stop_answers_and_the_next_run_works(opened: NotebookPage) -> None:
    panel = opened.panel()
    opened.execute(ENDLESS)
    panel.set_run_on_change(False)
    panel.set_budget(60)
    panel.run()
    panel.wait_result()
    panel.set_slider("size", 1)  # applies to the next run
    # The keyboard's place follows from Run to Stop and back.
    focused = "node => node === document.activeElement"
    panel.button("stop").focus()
    pressed = time.monotonic()
    panel.stop()
    assert panel.wait_finished(20).startswith("Stopped: ")
    print(f"\nstopped {time.monotonic() - pressed:.2f} s after Stop")
    assert panel.button("run").evaluate(focused)
    opened.execute(RESTORE)
    panel.run()
    assert panel.wait_finished().startswith("Done:")
    newest, first = panel.history()
    assert "size: 64 → 128" in newest
    assert "size 64" in first


def test_second_panel_is_refused_and_can_stop_the_first(opened: NotebookPage) -> None:
    first, second = opened.panel(0), opened.panel(1)
    opened.execute(ENDLESS)
    first.set_budget(60)
    first.run()
    first.wait_number()
    second.run()
    second.wait_status("Another panel is measuring")
    opened.screenshot("panel-refused", second.root)
    second.stop()  # the first panel may be out of sight, or no longer on the page
    first.wait_status("Stopped")
    opened.execute(FREE + RESTORE)
    second.run()
    assert second.wait_finished().startswith("Done:")


def test_rerun_of_the_cell_while_it_measures(opened: NotebookPage) -> None:
    former = opened.panel()
    opened.execute(ENDLESS)
    former.set_budget(60)
    former.run()
    former.wait_number()
    widgets = int(opened.execute(OPEN_WIDGETS))
    opened.run_cell(1)
    panel = opened.panel()
    opened.execute(OVER)
    assert int(opened.execute(OPEN_WIDGETS)) == widgets
    panel.run()
    assert panel.wait_finished().startswith("Done:")
    # The second panel of the page is another cell's.
    assert opened.panel(1).status().startswith("Ready")


def test_an_error_is_shown_and_a_greyed_control_says_why(opened: NotebookPage) -> None:
    panel = opened.panel(2)
    panel.run()
    assert panel.wait_finished().startswith("FileNotFoundError: the images are not there")
    opened.screenshot("panel-error", panel.root)
    panel = opened.panel(3)
    assert panel.names("dropdown") == []
    assert "sums need a GPU" in panel.root.locator(".labkit-technique").inner_text()
    assert panel.control("kind").locator("select").is_disabled()
    panel.run()
    assert panel.wait_finished().startswith("Done:")
    opened.screenshot("panel-greyed", panel.root)


def test_keyboard_alone(opened: NotebookPage) -> None:
    panel, keyboard = opened.panel(), opened.page.keyboard
    cells = opened.cells()
    run, slider, toggle = (
        panel.button("run"),
        panel.control("size").locator(".noUi-handle"),
        panel.control("double"),
    )
    for focusable in (run, slider, toggle.locator("input")):
        focusable.focus()
        for key in ("b", "a", "d", "d", "x"):
            keyboard.press(key)
        opened.page.wait_for_timeout(200)
        assert opened.cells() == cells

    active = "document.activeElement"
    focused = f"{active}.getAttribute('aria-label') || {active}.innerText.trim()"
    panel.open_more()
    panel.root.locator(".labkit-modes button").first.focus()
    order = []
    for _ in range(19):
        order.append(opened.page.evaluate(focused))
        keyboard.press("Tab")
    assert order == [
        *("Time", "Memory"),
        *(f"{name}, candidate" for name in ("double", "size", "kind")),
        *("your bet", "no difference", "Run", "Less"),
        *(f"{name}, baseline" for name in ("double", "size", "kind")),
        *("time budget", "run on change", "Sweep", "control to sweep", "sweep on both sides"),
        *("Same settings (A/A)", "Show the code"),
    ]

    toggle.locator("input").focus()
    keyboard.press("Space")
    toggle.get_by_text("off").wait_for()
    run.focus()
    keyboard.press("Enter")
    panel.root.locator(".labkit-live[data-run='1']:not(.labkit-running)").wait_for()
    assert panel.status().startswith("Done:")
    assert run.evaluate("node => node === document.activeElement")


def test_page_reload_during_a_run(opened: NotebookPage) -> None:
    panel = opened.panel()
    opened.execute(ENDLESS)
    panel.set_slider("size", 1)
    panel.set_run_on_change(False)
    panel.set_budget(60)
    panel.run()
    panel.wait_number()
    opened.save()
    opened.reload()
    panel.wait_number()  # the widgets are back, from the kernel's state, and go on
    opened.screenshot("panel-reloaded", panel.root)
    panel.stop()
    assert panel.wait_finished(20).startswith("Stopped")
    opened.execute(RESTORE)
    assert panel.set_slider("size", 1) == "256"
    panel.run()
    assert panel.wait_finished().startswith("Done:")
    newest, first = panel.history()
    assert "size: 64 → 256" in newest  # the slider still reaches the kernel
    assert "size: 64 → 128" in first
    # The cell's outputs are out of reach.
    panel.root.locator(".labkit-notice", has_text="The page was reloaded").wait_for()
    opened.screenshot("panel-reloaded-after", panel.root)


# anywidget gives a widget's module two seconds to load; here the page is busy for longer.
BUSY = """() => {
    const timeout = AbortSignal.timeout;
    AbortSignal.timeout = () => {
        const [late, end] = [timeout.call(AbortSignal, 50), performance.now() + 100];
        while (performance.now() < end);
        return late;
    };
    return timeout;
}"""


def test_a_panel_that_comes_up_on_a_busy_page_shows_its_runs(opened: NotebookPage) -> None:
    timeout = opened.page.evaluate_handle(BUSY)
    opened.run_cell(1)
    opened.page.evaluate("timeout => { AbortSignal.timeout = timeout; }", timeout)
    panel = opened.panel()
    panel.run()
    assert panel.wait_finished(20).startswith("Done:")


def test_dark_theme_and_narrow_page(opened: NotebookPage) -> None:
    panel = opened.panel()
    opened.page.set_viewport_size({"width": 900, "height": 1100})
    opened.set_theme("dark")
    try:
        panel.set_dropdown("kind", "sum")
        panel.run()
        assert panel.wait_finished().startswith("Done:")
        opened.screenshot("panel-dark", panel.root)
        opened.screenshot("panel-dark-page")
        parts = panel.root.evaluate(
            "node => [node, ...node.children].map(part => "
            "[part.className, part.scrollWidth - part.clientWidth])"
        )
        assert [part for part in parts if part[1] > 0] == []
    finally:
        opened.set_theme("light")
        opened.page.set_viewport_size({"width": 1300, "height": 1000})


def test_guess_run_and_change_by_one_click(opened: NotebookPage) -> None:
    """The main path of a front notebook, from the guess to what changes by itself."""
    panel = opened.panel(4)
    assert panel.root.locator(".labkit-modes button").all_inner_texts() == [
        "Time",
        "Memory",
        "Race",
    ]
    # The situation has one widget.
    panel.open_more()
    handle = panel.control("rows").locator(".noUi-handle")
    assert handle.get_attribute("aria-label") == "rows, both sides"
    opened.screenshot("front-more", panel.root)
    panel.button("more").click()
    assert panel.guess(8) == "2.0× as fast"
    opened.screenshot("front-before", panel.root)

    panel.run()
    panel.wait_number()
    assert panel.wait_finished().startswith("Done:")
    told = panel.root.locator(".labkit-told")
    assert told.inner_text().startswith("You bet 2.0×")
    assert "2.00×" in panel.root.locator(".labkit-picture").inner_text()
    locked = panel.root.locator(".labkit-guess:visible .noUi-handle")
    locked.focus()
    opened.page.keyboard.press("ArrowRight")
    assert panel.root.locator(".labkit-guessed").inner_text() == "2.0× as fast"
    opened.screenshot("front-time", panel.root)

    # After the first Run a control starts the next by itself.
    panel._before = panel._started()
    clicked = time.monotonic()
    panel.set_slider("rate", -1)
    panel.wait_number()
    print(f"\nfirst number {time.monotonic() - clicked:.2f} s after a change")
    assert panel.wait_finished().startswith("Done:")


def test_a_scenario_arms_its_own_question_and_run_reveals(opened: NotebookPage) -> None:
    panel = opened.panel(4)
    panel.run()
    assert panel.wait_finished().startswith("Done:")
    panel.scenario("many rows")
    scenario = panel.root.get_by_role("button", name="many rows")
    question = panel.root.locator(".labkit-question", has_text="Which side is faster here?")
    question.wait_for()
    assert scenario.get_attribute("aria-pressed") == "true"
    panel.root.locator(".labkit-stale").wait_for()
    choice = panel.root.get_by_role("button", name="neither")
    choice.click()
    panel.run()
    assert panel.wait_finished().startswith("Done:")
    assert choice.get_attribute("aria-pressed") == "true"
    told = panel.root.locator(".labkit-told")
    assert told.inner_text().startswith("You bet on neither")
    opened.screenshot("front-order", panel.root)
    newest, _ = panel.history()
    assert "rows 512" in newest


def test_memory_and_race(opened: NotebookPage) -> None:
    panel = opened.panel(4)
    panel.mode("Memory")
    panel.run()
    assert "the memory of the baseline" in panel.wait_finished()
    head = panel.root.locator(".labkit-head")
    assert "the memory of the baseline" in head.inner_text()
    assert "bytes alive" in panel.root.locator(".labkit-picture").inner_text()
    opened.screenshot("front-memory", panel.root)
    panel.mode("Race")
    # The target is there before the run.
    assert "Race to loss of at most 0.01" in head.inner_text()
    assert "target 0.01" in panel.root.locator(".labkit-picture").inner_text()
    panel.root.get_by_role("button", name="both").click()
    panel.run()
    assert "Race to loss of at most 0.01" in panel.wait_finished()
    assert "You bet on both: right." in head.inner_text()
    opened.screenshot("front-race", panel.root)
    panel.mode("Memory")
    assert "the memory of the baseline" in head.inner_text()
    panel.open_more()
    modes = panel.root.locator(".labkit-past td:nth-child(3)").all_inner_texts()
    assert modes == ["Race", "Memory"]


def test_a_panel_of_600_pixels(opened: NotebookPage) -> None:
    panel = opened.panel(4)
    opened.page.set_viewport_size({"width": 716, "height": 1200})
    try:
        for mode in ("Time", "Memory", "Race"):
            panel.mode(mode)
            panel.run()
            assert panel.wait_finished().startswith("Done:")
            wider = panel.root.evaluate(
                "node => [node, ...node.children].filter(part => "
                "part.scrollWidth > part.clientWidth).map(part => part.className)"
            )
            assert wider == []
            opened.screenshot(f"front-narrow-{mode}", panel.root)
        assert panel.root.bounding_box()["width"] <= 620
    finally:
        opened.page.set_viewport_size({"width": 1300, "height": 1000})


# Words of a picture with their places and sizes, in pixels of the page.
PLACES = """texts => texts.map(text => {
    const {left, right, top, bottom} = text.getBoundingClientRect();
    const size = parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a;
    return {words: text.textContent, left, right, top: top + 3, bottom: bottom - 3, size};
})"""


def overlap(one: dict[str, float], other: dict[str, float]) -> bool:
    across = one["left"] < other["right"] and other["left"] < one["right"]
    return across and one["top"] < other["bottom"] and other["top"] < one["bottom"]


def test_a_phone_s_width_leaves_sliders_to_drag(opened: NotebookPage) -> None:
    panel = opened.panel()
    opened.page.set_viewport_size({"width": 450, "height": 1200})
    try:
        opened.page.wait_for_timeout(300)
        opened.screenshot("panel-phone", panel.root)
        assert panel.root.bounding_box()["width"] < 400
        panel.run()
        assert panel.wait_finished().startswith("Done:")
        # No text is smaller than 11 pixels, or lies on another one.
        texts = panel.root.locator(".labkit-picture svg text").evaluate_all(PLACES)
        assert len(texts) > 6 and min(text["size"] for text in texts) >= 11
        for one, other in combinations(texts, 2):
            assert not overlap(one, other), (one, other)
        opened.screenshot("panel-phone-result", panel.root)
        panel.open_more()
        for slider in panel.root.locator(".noUi-target:visible").all():
            assert slider.bounding_box()["width"] > 40
    finally:
        opened.page.set_viewport_size({"width": 1300, "height": 1000})


def test_a_result_of_other_settings_is_pale(opened: NotebookPage) -> None:
    panel = opened.panel()
    results = panel.root.locator(".labkit-head")
    panel.run()
    assert panel.wait_finished().startswith("Done:")
    panel.set_run_on_change(False)
    try:
        panel.set_dropdown("kind", "sum")
        panel.root.locator(".labkit-stale").wait_for()
        assert float(results.evaluate("node => getComputedStyle(node).opacity")) < 0.5
        opened.screenshot("panel-pale", panel.root)
        panel.set_dropdown("kind", "mean")
        panel.root.locator(".labkit-live:not(.labkit-stale)").wait_for()
    finally:
        panel.set_run_on_change(True)


def test_what_the_notebook_keeps_is_hidden_beside_the_panel(opened: NotebookPage) -> None:
    panel = opened.panel(4)
    panel.run()
    assert panel.wait_finished().startswith("Done:")
    kept = opened.page.locator(".jp-OutputArea-child:has(.labkit-result)").last
    assert kept.count() == 1 and not kept.is_visible()
    # Without the panel it is seen.
    panel.root.evaluate("node => node.remove()")
    kept.wait_for()
    assert kept.locator("svg").is_visible()


def test_a_cell_that_begins_ends_the_run(opened: NotebookPage) -> None:
    panel = opened.panel()
    opened.execute(ENDLESS)
    panel.set_budget(60)
    panel.run()
    panel.wait_result()
    # Clicks are no cells, nor is what a page asks for unseen.
    panel.open_more()
    opened.execute("1 + 1")
    assert panel.running()
    opened.run_cell(6)
    panel.wait_status("Ended: another cell began. Press Run to measure again.")
    assert not panel.running()
    panel.root.locator(".labkit-sure").locator("summary").click()
    assert "stopped early" in panel.root.locator(".labkit-sure").inner_text()
    opened.screenshot("panel-ended-by-a-cell", panel.root)
    # The cell's draws are those without a panel, and it says nothing where the block is short.
    texts = ["".join(out["text"]) for out in opened.outputs() if out["output_type"] == "stream"]
    assert texts == ["[0.4963, 0.7682, 0.0885] []\n"]
    opened.execute(RESTORE)
    panel.run()
    assert panel.wait_finished().startswith("Done:")


LONG = "lab.make_workload = lambda **_: Workload(lambda: time.sleep(3))"


def test_a_cell_waits_for_a_long_block_and_can_be_interrupted(opened: NotebookPage) -> None:
    panel = opened.panel()
    opened.execute(LONG)
    panel.run()
    panel.wait_status("Building")
    opened.start_cell(6)
    waits = opened.page.get_by_text("this cell begins when the panel's present block has ended")
    waits.wait_for()
    opened.screenshot("panel-cell-waits")
    opened.interrupt()
    opened.page.get_by_text("KeyboardInterrupt: the cell did not run").wait_for(timeout=2_000)
    assert panel.running()
    assert panel.wait_finished(20) == "Ended: another cell began. Press Run to measure again."
    opened.execute(RESTORE)
