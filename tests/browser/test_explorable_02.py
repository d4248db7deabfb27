"""Notebook 02's moving picture: steps, times and paths against Python's, and its question."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise, product

import pytest
from playwright.sync_api import Browser, Page

from .test_explorables import Model, Moving, hurry

pytestmark = pytest.mark.browser

PACE = {"memory": (0.13, 0.00004), "loader": (0.18, 0.0027)}
RING = 0.35


@pytest.fixture(scope="module")
def model(blank: Page) -> Model:
    return Model(blank, "three_walkers")


def steps_of(rows: int) -> int:
    return math.ceil(4 * (1 + 240 / rows))


def arrival(rows: int, reader: str) -> float:
    fixed, each = PACE[reader]
    return steps_of(rows) * (fixed + each * rows)


def test_steps_and_times_are_those_of_the_fit(model: Model) -> None:
    sizes = [1, *model.value("SIZES"), 1500]
    assert [model("stepsOf", size) for size in (1, 10, 100, 500, 1500)] == [964, 100, 14, 6, 5]
    for size, reader in product(sizes, PACE):
        assert model("stepsOf", size) == steps_of(size)
        assert model("arrival", size, reader) == pytest.approx(arrival(size, reader))
    # All rows win from memory; from a DataLoader the middle does.
    assert arrival(1500, "memory") < arrival(100, "memory") < arrival(1, "memory")
    assert arrival(100, "loader") < arrival(1500, "loader") < arrival(1, "loader")


def test_the_answer_is_who_needs_the_least_time(model: Model) -> None:
    opens = model.value("OPENS")
    for rows, reader in product(model.value("SIZES"), PACE):
        times = {
            "one": arrival(1, reader),
            "some": arrival(rows, reader),
            "all": arrival(1500, reader),
        }
        [found] = model("answer", {**opens, "rows": rows, "reader": reader})
        assert found == min(times, key=lambda who: times[who])
    assert model("answer", opens) == ["all"]
    assert model("answer", {**opens, "reader": "loader"}) == ["some"]


def test_a_better_size_is_larger_or_smaller_or_none(model: Model) -> None:
    opens, sizes = model.value("OPENS"), model.value("SIZES")
    for reader in PACE:
        best = min(sizes, key=lambda rows: arrival(rows, reader))
        for rows in sizes:
            told = model("better", {**opens, "rows": rows, "reader": reader})
            assert told == (rows < best) - (rows > best)


def test_a_path_ends_in_the_ring_and_not_before(model: Model) -> None:
    for rows, seed in product((1, 10, 100, 1500), range(4)):
        path = model("path", rows, seed)
        # As far along the valley has the same loss.
        away = [math.hypot(x, math.sqrt(3) * y) for x, y in path]
        assert len(path) == steps_of(rows) + 1
        assert path[0] == [-3.4, 1.7] and away[-1] < RING
        assert min(away[:-1]) >= RING
        # The last step is as any other: the curve of the loss has no cliff.
        assert away[-1] > 0.9 * RING
    assert model("path", 1500, 1) == model("path", 1500, 2), "all rows have no noise"
    assert model("path", 1, 1) != model("path", 1, 2)


def test_noise_falls_with_the_root_of_the_rows(model: Model) -> None:
    def scatter(rows: int) -> float:
        """Mean length of a step across the valley, away from both ends."""
        path = model("path", rows, 7)
        middle = path[len(path) // 4 : 3 * len(path) // 4]
        jumps = [abs(b[0] - a[0]) for a, b in pairwise(middle)]
        return sum(jumps) / len(jumps)

    assert 1.5 < scatter(1) / scatter(5) < 3.5


def test_whole_steps_are_done_by_a_time(model: Model) -> None:
    fixed, each = PACE["loader"]
    pace = fixed + 100 * each
    assert model("done", 100, "loader", 0) == 0
    assert model("done", 100, "loader", 2.5 * pace) == 2
    assert model("done", 100, "loader", 1e6) == 14


def test_one_row_is_drawn_beneath_the_others_and_the_clock_goes_when_all_are_there(
    browser: Browser,
) -> None:
    from course.explorables import ThreeWalkers, alive

    page = browser.new_page(viewport={"width": 1000, "height": 900})
    page.set_content(f"<body>{alive(ThreeWalkers)}</body>")
    moving = Moving(page, page.locator(".course-explorable"))

    def lines(look: str) -> int:
        return moving.root.locator(f"svg .xp-line{look}").count()

    try:
        moving.press(moving.slider("clock"), "End")
        faint = moving.root.locator("svg path.xp-half.xp-purple").first.get_attribute("d") or ""
        strong = (
            moving.root.locator("svg path.xp-purple:not(.xp-half)").first.get_attribute("d") or ""
        )
        assert faint.count("L") > 100 and strong.count("L") < 20
        # The goal's line is dashed, too.
        assert lines(".xp-dash") == 1
        moving.press(moving.slider("clock"), "PageDown")
        moving.press(moving.slider("clock"), "PageDown")
        assert lines(".xp-dash") == 2
    finally:
        page.close()


@pytest.fixture
def moving(browser: Browser) -> Iterator[Moving]:
    from course.explorables import ThreeWalkers, alive

    page = browser.new_page(viewport={"width": 1000, "height": 900})
    page.set_content(f"<body>{alive(ThreeWalkers)}</body>")
    hurry(page)
    yield Moving(page, page.locator(".course-explorable"))
    page.close()


def test_a_bet_is_judged_when_all_have_walked(moving: Moving) -> None:
    some, all_rows = moving.wagers()[1:]
    moving.press(some, "Enter")
    moving.root.locator(".xp-result", has_text="After ").wait_for(timeout=15_000)
    assert some.get_attribute("aria-pressed") == "true"
    assert moving.root.locator(".xp-right, .xp-wrong").count() == 0
    assert moving.root.locator(".xp-play").inner_text() == "Pause"
    moving.root.locator(".xp-wrong").wait_for(timeout=15_000)
    moving.page.wait_for_timeout(100)
    assert moving.result().startswith("Your bet, 100 rows, is wrong. First: all 1,500 rows.")
    # What has been seen is not played again.
    moving.press(all_rows, "Enter")
    assert moving.result().startswith("Your bet, all 1,500 rows, is right.")


def test_a_move_while_a_bet_plays_judges_it(moving: Moving) -> None:
    some = moving.wagers()[1]
    moving.press(some, "Enter")
    moving.press(moving.slider("rows"), "ArrowRight")
    assert "xp-wrong" in (some.get_attribute("class") or "")
    assert "Your bet" not in moving.result()


def test_a_paused_bet_is_judged_when_it_goes_on(moving: Moving) -> None:
    moving.press(moving.wagers()[2], "Enter")
    play = moving.root.locator(".xp-play")
    moving.press(play, "Enter")
    assert play.inner_text() == "Play"
    assert moving.root.locator(".xp-right").count() == 0
    moving.press(play, "Enter")
    moving.root.locator(".xp-right").wait_for(timeout=15_000)


def test_another_reader_is_another_bet(moving: Moving) -> None:
    moving.press(moving.wagers()[1], "Enter")
    moving.root.locator("input.xp-reader-loader").check(force=True)
    moving.page.wait_for_timeout(100)
    assert moving.result() == "Bet first, or move something."
    assert moving.root.locator(".xp-wager[aria-pressed=true], .xp-right, .xp-wrong").count() == 0
    moving.press(moving.slider("rows"), "Home")
    # It is on 100 rows again.
    moving.press(moving.wagers()[1], "Enter")
    moving.root.locator(".xp-right").wait_for(timeout=15_000)
    assert moving.slider("rows").get_attribute("aria-valuetext") == "100"
