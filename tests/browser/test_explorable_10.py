"""Notebook 10's moving picture: the tank against the formula and against a clock in Python."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise, product
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from course.explorables import KeepTheTankFull, alive

from .test_explorables import Model, Moving, hurry

pytestmark = pytest.mark.browser

# Milliseconds of a tick; all times are whole ticks.
TICK = 0.25


@pytest.fixture(scope="module")
def model(blank: Page) -> Model:
    return Model(blank, "keep_the_tank_full")


def states(model: Model) -> Iterator[dict[str, Any]]:
    opens = model.value("OPENS")
    memories = ("pageable", "pinned", "non_blocking")
    names = ("host", "device", "every", "copy", "memory")
    for values in product((0.5, 4, 8), (1, 4), (1, 16), (0, 3), memories):
        yield opens | dict(zip(names, values, strict=True))


def test_a_step_takes_what_the_formula_says(model: Model) -> None:
    """A copy that blocks is added to each step; one in the queue is part of the device's time."""
    for state in states(model):
        queued = state["memory"] == "non_blocking"
        copy = state["copy"] / (1 if state["memory"] == "pageable" else 2)
        host, device = state["host"], state["device"] + queued * copy
        expected = max(host, device) + min(host, device) / state["every"]
        assert model("pace", state) == pytest.approx(expected + (not queued) * copy), state
        found = model("parts", state)
        assert found["each"] == pytest.approx(found["host"] + found["held"] + found["device"])
        assert found["each"] / found["seldom"] == pytest.approx(model("cost", state)), state


def ticked(state: dict[str, Any], length: float) -> tuple[list[float], float, int]:
    """Levels of the tank, milliseconds of light, and reads, by a clock without events."""
    copy = state["copy"] / (1 if state["memory"] == "pageable" else 2)
    blocks = copy > 0 and state["memory"] != "non_blocking"
    each = state["device"] + (0 if blocks else copy)
    work, light, reads, poured = 0.0, 0.0, 0, 0
    doing, left, levels = "prepares", state["host"], []
    pressed = {begin for begin, _ in state["holds"]}
    for tick in range(int(length / TICK)):
        now = tick * TICK
        if doing == "prepares" and left > 0 and now in pressed:
            doing = "reads"
        # All that takes no time.
        while True:
            if doing == "prepares" and left == 0:
                doing = "waits" if blocks else "full"
            elif doing == "waits" and work == 0:
                doing, left = "copies", copy
            elif doing == "copies" and left == 0:
                doing = "full"
            elif doing == "full" and work <= 29 * each:
                work, poured = work + each, poured + 1
                held = any(begin <= now < end for begin, end in state["holds"])
                doing = "reads" if held or poured % state["every"] == 0 else "prepares"
                left = state["host"]
            elif doing == "reads" and work == 0:
                reads, doing = reads + 1, "prepares"
            else:
                break
        levels.append(work / each)
        light += min(work, TICK)
        work = max(0.0, work - TICK)
        left -= TICK if doing in ("prepares", "copies") else 0
    return levels, light, reads


def test_the_tank_over_time_is_that_of_a_clock(model: Model) -> None:
    length = 90
    for state in states(model):
        if state["copy"] and state["memory"] == "pinned":
            state["copy"] = 2
        for holds in ([], [[10.25, 30]], [[3, 3.5], [50, 70]]):
            given = {**state, "holds": holds, "time": length}
            spans = model("simulate", given, length)["spans"]
            levels, light, reads = ticked(given, length)
            assert all(a["end"] == pytest.approx(b["begin"]) for a, b in pairwise(spans))
            assert model("score", given)["lit"] == pytest.approx(light / length), given
            # A read that ends with the last tick may be counted or not.
            assert abs(model("score", given)["reads"] - reads) <= 1
            for span in spans:
                if float(span["begin"] / TICK).is_integer():
                    at = levels[int(span["begin"] / TICK)]
                    assert span["from"] == pytest.approx(at), (given, span)


def test_reading_costs_most_where_host_and_device_take_equally_long(model: Model) -> None:
    opens = model.value("OPENS")
    for device in model.value("BETS"):
        assert model("answer", {**opens, "device": device}) == [device]
    assert model("cost", {**opens, "host": 4}) == pytest.approx(8 / 4.25)
    assert model("cost", opens) == pytest.approx(5 / 4.0625)
    # Far from it next to nothing.
    assert model("cost", {**opens, "host": 0.5, "device": 8}) < 1.07
    # With the copy in the queue, the device takes longer.
    held, queued = ({**opens, "copy": 6, "memory": each} for each in ("pinned", "non_blocking"))
    assert model("copying", held) == {"held": 3, "queued": 0}
    assert model("copying", queued) == {"held": 0, "queued": 3}
    # A copy that blocks has read's own effect: little is left to lose.
    assert model("cost", {**held, "host": 4}) < model("cost", {**opens, "host": 4})


def test_a_wrong_bet_hears_that_another_host_time_costs_more(browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 1000, "height": 800})
    try:
        page.set_content(alive(KeepTheTankFull))
        moving = Moving(page, page.locator(".course-explorable"))
        moving.root.get_by_role("button", name="bet: 8 ms").click()
        page.wait_for_timeout(100)
        assert "That is 1.45×; another host time costs more." in moving.result()
        moving.root.locator(".xp-show").click()
        page.wait_for_timeout(100)
        assert "It is 4 ms" in moving.result()
        assert "costs more" not in moving.result()
    finally:
        page.close()


def test_space_is_a_read_while_it_is_held(browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 1000, "height": 800})
    try:
        page.set_content(alive(KeepTheTankFull))
        moving = Moving(page, page.locator(".course-explorable"))
        for key in ["ArrowRight"] * 4:
            moving.press(moving.slider("every"), key)
        assert "by you" not in moving.result()
        moving.press(moving.root.locator(".xp-play"), "Enter")
        page.wait_for_timeout(300)
        page.keyboard.down(" ")
        page.wait_for_timeout(400)
        page.keyboard.up(" ")
        assert moving.root.locator(".xp-play").inner_text() == "Pause"
        page.wait_for_timeout(300)
        moving.press(moving.root.locator(".xp-play"), "Enter")
        assert "by you" in moving.result()
        shown = moving.root.locator(".xp-picture rect.xp-red").count()
        assert shown >= 1
        # Played again, the reader's own reads are gone.
        hurry(page)
        moving.press(moving.root.locator(".xp-play"), "Enter")
        page.wait_for_function(
            "() => document.querySelector('.xp-play').textContent === 'Play'", timeout=30_000
        )
        moving.press(moving.root.locator(".xp-play"), "Enter")
        page.wait_for_timeout(100)
        assert "by you" not in moving.result()
    finally:
        page.close()


def test_levels_are_whole_numbers_of_steps_at_most_thirty(model: Model) -> None:
    opens = model.value("OPENS")
    full = {**opens, "host": 0.5, "device": 8, "every": 1000}
    spans = model("simulate", full, 600)["spans"]
    assert max(span["from"] for span in spans) == pytest.approx(30)
    assert any(span["host"] == "full" for span in spans)
    assert not any(math.isnan(span["from"]) for span in spans)
