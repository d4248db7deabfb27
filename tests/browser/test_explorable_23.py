"""Notebook 23's moving picture: looks at the lines of the course's own scripts, in Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from course import programs
from course.explorables import CatchTheLine, alive

from .test_explorables import BET_FIRST, Model, Moving, Mulberry32

pytestmark = pytest.mark.browser

SWITCHES = ([], [20], [44], [20, 44], [20, 43, 44])


@pytest.fixture(scope="module")
def model(blank: Page) -> Model:
    return Model(blank, "catch_the_line")


def states(model: Model) -> Iterator[dict[str, Any]]:
    for script in model.value("SCRIPTS"):
        for mended in SWITCHES:
            yield {**model.value("OPENS"), "script": script, "mended": mended, "looks": 400}


def test_the_lines_are_those_of_the_scripts(model: Model) -> None:
    assert model.value("SCRIPTS") == list(programs.SCRIPTS)
    assert sorted(map(int, model.value("MENDED"))) == sorted(programs.MENDS)
    for state in states(model):
        lines = programs.load(state["script"], state["mended"]).lines
        for line in model.value("LINES"):
            # Without the indent of a method.
            wanted = lines[line - 1][4:] if line < 30 else lines[line - 1]
            assert model("textOf", state, line) == wanted


def counted(times: list[float], looks: int, seed: int) -> list[int]:
    """How many looks hit each line."""
    draws, found = Mulberry32(seed), [0] * len(times)
    for _ in range(looks):
        left = sum(times) * draws.uniform()
        for place, time in enumerate(times):
            left -= time
            if left < 0:
                found[place] += 1
                break
    return found


def test_looks_hit_a_line_as_often_as_it_runs(model: Model) -> None:
    scripts = model.value("SCRIPTS")
    for state in states(model):
        times = model("times", state)
        seed = scripts.index(state["script"]) + 10 * sum(state["mended"]) + 5
        for looks in (0, 8, 400):
            assert model("counts", {**state, "looks": looks}) == counted(times, looks, seed)
        for time, count in zip(times, model("counts", state), strict=True):
            low, high = model("interval", count, 400)
            # Three times as wide as a 95 % interval: none of these looks is beyond it.
            middle, half = (low + high) / 2, max(0.01, high - low)
            assert abs(time / sum(times) - middle) < 1.5 * half


def test_the_answer_is_the_line_with_most_time(model: Model) -> None:
    found = {}
    for state in states(model):
        times = dict(zip(model.value("LINES"), model("times", state), strict=True))
        assert model("answer", state) == [max(times, key=times.__getitem__)]
        found[state["script"], tuple(state["mended"])] = model("answer", state)[0]
    assert found["train.py", ()] == 20 and found["train.py", (20,)] == 40
    assert found["digits.py", ()] == 40


def test_a_mend_gains_what_its_line_took_at_most(model: Model) -> None:
    for state in states(model):
        before, after = (sum(model("times", {**state, "mended": m})) for m in ([], state["mended"]))
        assert model("gain", state) == pytest.approx(before / after)
        for line in state["mended"]:
            alone = {**state, "mended": [line]}
            whole = {**state, "mended": []}
            times = dict(zip(model.value("LINES"), model("times", whole), strict=True))
            assert 1 <= model("gain", alone) <= model("limit", times[line] / before)
    assert model("limit", 0.5) == 2
    assert model("toggle", {"mended": [20]}, 44) == {"mended": [20, 44]}
    assert model("toggle", {"mended": [20, 44]}, 20) == {"mended": [44]}


@pytest.fixture
def moving(browser: Browser) -> Iterator[Moving]:
    page = browser.new_page(viewport={"width": 1000, "height": 800}, reduced_motion="reduce")
    page.set_content(alive(CatchTheLine))
    yield Moving(page, page.locator(".course-explorable"))
    page.close()


def press(moving: Moving, name: str) -> None:
    moving.press(moving.root.locator(f"button.xp-{name}"), "Enter")


def test_lines_are_found_mended_and_found_again(moving: Moving) -> None:
    moving.press(moving.root.get_by_label("bet: 40: backward()", exact=True), "Enter")
    assert "is wrong. 400 looks: " in moving.result() and "% in line 20" in moving.result()
    press(moving, "mend-20")
    assert "Mended, an epoch takes 116 instead of 179 ms: 1.54 times as fast." in moving.result()
    assert "% in line 40" in moving.result() and "worth" not in moving.result()
    assert moving.root.locator("text.xp-green", has_text="/ 255").count() == 1
    press(moving, "mend-43")
    assert "Line 43 was not worth it." in moving.result()
    press(moving, "mend-20")
    assert moving.root.locator("text.xp-green", has_text="/ 255").count() == 0


def test_another_script_is_another_bet(moving: Moving) -> None:
    press(moving, "mend-20")
    moving.root.locator("input[aria-label='script: digits.py']").check(force=True)
    moving.page.wait_for_timeout(100)
    assert moving.result() == BET_FIRST
    moving.press(moving.root.get_by_label("bet: 40: backward()", exact=True), "Enter")
    assert ", is right. 400 looks: " in moving.result()
    press(moving, "mend-20")
    assert "1.02 times as fast. Line 20 was not worth it." in moving.result()
