"""Notebook 03's moving picture: the model of schedules against Python's, and its question."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise, product
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from .test_explorables import Model, Moving, Mulberry32, hurry

pytestmark = pytest.mark.browser

STEPS, NOISE, LOST = 200, 0.3, 100
STARTS = ("calm", "steep")
# Where the loss ends at the best highest rate of each schedule.
ENDS = {
    "calm": {
        "constant": 0.0297,
        "linear": 0.0142,
        "cosine": 0.0147,
        "cycle": 0.0181,
        "wsd": 0.0185,
        "cyclic": 0.0453,
        "rise": 0.0350,
        "fall": 0.0157,
    },
    "steep": {
        "constant": 0.0443,
        "linear": 0.0928,
        "cosine": 0.0929,
        "cycle": 0.0192,
        "wsd": 0.0185,
        "cyclic": 0.0453,
        "rise": 0.0350,
        "fall": 0.0730,
    },
}


@pytest.fixture(scope="module")
def model(blank: Page) -> Model:
    return Model(blank, "bend_the_rate")


def rates(grips: list[float]) -> list[float]:
    """Straight lines between six grips."""
    corners = [199 * number / 5 for number in range(6)]
    found = []
    for step in range(STEPS):
        (left, low), (right, high) = next(
            pair for pair in pairwise(zip(corners, grips, strict=True)) if step <= pair[1][0] + 1e-9
        )
        found.append(low + (high - low) * (step - left) / (right - left))
    return found


def curvatures(start: str, step: int) -> tuple[float, float]:
    return (8 if start == "steep" and step < 20 else 1), 0.02


def losses(grips: list[float], start: str) -> list[float]:
    """The mean of w² follows m <- (1 - eta l)² m + eta² s²; the loss is the sum of l m / 2."""
    squares, found = [1.0, 25.0], []
    for step, rate in enumerate(rates(grips)):
        both = curvatures(start, step)
        squares = [
            (1 - rate * curvature) ** 2 * square + (rate * NOISE) ** 2
            for curvature, square in zip(both, squares, strict=True)
        ]
        loss = sum(c * square / 2 for c, square in zip(both, squares, strict=True))
        found.append(loss)
        if loss > LOST:
            return [*found[:-1], math.inf]
    return found


@pytest.mark.parametrize("start", STARTS)
def test_rates_and_mean_losses_are_those_of_the_recursion(model: Model, start: str) -> None:
    lost = 0
    own = [0.01, 3, 0.2, 1.28, 0.05, 0.7]
    for grips in (
        own,
        own[::-1],
        [0.25] * 6,
        [2.2] * 6,
        *map(list, model.value("SHAPES").values()),
    ):
        grips = [max(0.01, rate) for rate in grips]
        assert model("rates", grips) == pytest.approx(rates(grips))
        expected, found = losses(grips, start), model("losses", grips, start)
        assert found == pytest.approx(expected)
        lost += expected[-1] == math.inf
    assert lost


@pytest.mark.parametrize("start", STARTS)
def test_runs_with_noise_scatter_around_the_mean(model: Model, start: str) -> None:
    grips = model("tuned", "cycle", start)
    runs = [model("walk", grips, start, seed) for seed in range(300)]
    expected = losses(grips, start)
    for step in (10, 50, 120, 199):
        mean = sum(run[step] for run in runs) / len(runs)
        assert mean == pytest.approx(expected[step], rel=0.3)
    # One of them, number by number.
    noise, weights = Mulberry32(7), [1.0, 5.0]
    for step, rate in enumerate(rates(grips)):
        both = curvatures(start, step)
        weights = [
            w - rate * (curvature * w + NOISE * noise.normal())
            for curvature, w in zip(both, weights, strict=True)
        ]
        loss = sum(c * w**2 / 2 for c, w in zip(both, weights, strict=True))
        assert runs[7][step] == pytest.approx(loss, rel=1e-6)


@pytest.mark.parametrize("start", STARTS)
def test_each_schedule_is_shown_with_its_best_highest_rate(model: Model, start: str) -> None:
    all_rates = model.value("RATES")
    assert (len(all_rates), all_rates[0], all_rates[-1]) == (61, 0.01, 3)
    for shape, parts in model.value("SHAPES").items():
        ends = {}
        for peak in all_rates:
            grips = [min(3, max(0.01, part * peak)) for part in parts]
            ends[peak] = losses(grips, start)[-1]
        found = model("tuned", shape, start)
        assert losses(found, start)[-1] == pytest.approx(min(ends.values()))
        assert min(ends.values()) == pytest.approx(ENDS[start][shape], abs=6e-5)


def test_the_fall_does_the_work_unless_the_start_is_steep(model: Model) -> None:
    opens: dict[str, Any] = model.value("OPENS")
    assert opens["shape"] == "constant" and not model("compares", opens)
    assert model("answer", opens) == ["fall"]
    assert model("answer", {**opens, "start": "steep"}) == ["both"]


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    opened = browser.new_page(viewport={"width": 1000, "height": 900})
    yield opened
    opened.close()


def shown(page: Page) -> Moving:
    from course.explorables import BendTheRate, alive

    page.set_content(f"<body>{alive(BendTheRate)}</body>")
    hurry(page)
    return Moving(page, page.locator(".course-explorable"))


def test_a_bet_is_judged_once_its_three_schedules_have_been_drawn(page: Page) -> None:
    moving = shown(page)
    assert "1cycle: its rise ..." in moving.root.locator("svg text").all_text_contents()
    rise = moving.wagers()[0]
    moving.press(rise, "Enter")
    assert moving.result() == "The rise alone, the fall alone, or both: which ends lowest?"
    assert rise.get_attribute("aria-pressed") == "true"
    assert moving.root.locator(".xp-right, .xp-wrong").count() == 0
    playing = moving.root.locator("svg text").all_text_contents()
    assert {"1cycle", "rises, then stays up", "stays up, then falls"} <= set(playing)
    assert "0.0157" not in playing
    moving.root.locator(".xp-wrong").wait_for(timeout=10_000)
    page.wait_for_timeout(100)
    told = "Your bet, the rise, is wrong. The rise alone ends at 0.035, the fall alone at 0.0157, "
    invited = "Now choose a steep start: bet again."
    assert moving.result() == f"{told}both at 0.0181. {invited}"
    listed = moving.root.locator("svg text").all_text_contents()
    assert {"0.0157", "0.0181", "0.035"} <= set(listed)
    # The next one needs no play.
    moving.press(moving.wagers()[1], "Enter")
    assert moving.result().startswith("Your bet, the fall, is right.")


def test_another_bet_ends_the_play_and_is_judged_at_once(page: Page) -> None:
    moving = shown(page)
    moving.press(moving.wagers()[0], "Enter")
    moving.press(moving.wagers()[1], "Enter")
    assert moving.result().startswith("Your bet, the fall, is right.")
    page.wait_for_timeout(500)
    assert moving.result().startswith("Your bet, the fall, is right.")


def test_a_move_while_the_bet_plays_judges_it_and_is_kept(page: Page) -> None:
    moving = shown(page)
    moving.press(moving.wagers()[2], "Enter")
    moving.root.locator("select").select_option("cosine")
    moving.root.locator(".xp-wrong").wait_for(timeout=2_000)
    # Its verdict is on the button; what is said is of what was moved, also when the film is over.
    for wait in (100, 600):
        page.wait_for_timeout(wait)
        assert moving.result().startswith("cosine, up to a rate of ")
    assert moving.root.locator("select").input_value() == "cosine"


@pytest.mark.parametrize("wait", [0, 600], ids=["while it plays", "after the verdict"])
def test_another_start_is_another_question(page: Page, wait: int) -> None:
    moving = shown(page)
    moving.press(moving.wagers()[1], "Enter")
    page.wait_for_timeout(wait)
    assert moving.root.locator(".xp-right").count() == bool(wait)
    moving.root.get_by_label("start: steep", exact=True).check(force=True)
    page.wait_for_timeout(300)
    assert moving.root.locator(".xp-right, .xp-wrong").count() == 0
    assert moving.root.locator(".xp-wager[aria-pressed=true]").count() == 0
    assert moving.result().startswith("constant, up to a rate of ")
    # It has a film of its own.
    moving.press(moving.wagers()[2], "Enter")
    moving.root.locator(".xp-right").wait_for(timeout=15_000)
    page.wait_for_timeout(100)
    assert moving.result().startswith("Your bet, only both together, is right.")


def test_the_runs_that_are_drawn_end_on_both_sides_of_the_mean(model: Model) -> None:
    low, *_, high = model.value("SEEDS")
    for start, shape in product(STARTS, model.value("SHAPES")):
        grips = model("tuned", shape, start)
        least, most = (model("smooth", model("walk", grips, start, seed)) for seed in (low, high))
        assert least[-1] < model("ending", grips, start) < most[-1]


def test_the_noise_of_a_run_stays_on_its_axis(model: Model) -> None:
    """Drawn as a mean of ten steps, a run of the menu hardly leaves the chart below."""
    low, high = 0.0003, 20
    for start, shape in product(STARTS, ("constant", "cycle", "linear")):
        grips = model("tuned", shape, start)
        for seed in model.value("SEEDS"):
            run = model("smooth", model("walk", grips, start, seed))
            outside = [loss for loss in run if not low <= loss <= high]
            assert len(outside) < 0.05 * len(run)


def test_a_bent_schedule_is_judged_and_kept_in_the_list(page: Page) -> None:
    moving = shown(page)
    menu, grip = moving.root.locator("select"), moving.root.locator(".xp-grip").nth(2)

    def listed() -> list[str]:
        return moving.root.locator("svg text").all_text_contents()

    def choose(shape: str) -> None:
        menu.select_option(shape)
        moving.press(menu, "Shift")

    choose("cycle")
    assert moving.result() == "1cycle, up to a rate of 1.28, ends at 0.0181."
    moving.press(grip, "ArrowDown")
    assert menu.input_value() == "own"
    assert moving.result().startswith("Yours ends at 0.0")
    assert any(words in listed() for words in ("yours, at best", "★ yours, at best"))
    choose("linear")
    for number, presses in ((0, 6), (1, 2), (2, -4), (3, -3)):
        for _ in range(abs(presses)):
            key = "ArrowUp" if presses > 0 else "ArrowDown"
            moving.press(moving.root.locator(".xp-grip").nth(number), key)
    assert moving.result().endswith("★ You beat every schedule of the menu.")
    assert "★ yours, at best" in listed()
    moving.root.get_by_label("start: steep", exact=True).check(force=True)
    moving.press(menu, "Shift")
    assert moving.result().startswith("Lost: the steep start throws it out.")
    # A list for each start, and nothing wins that was lost.
    assert "lost" in listed() and "★ yours, at best" not in listed() and "linear" not in listed()


def test_yours_is_the_constant_rate_before_the_first_move(page: Page) -> None:
    moving = shown(page)
    menu = moving.root.locator("select")
    menu.select_option("own")
    moving.press(menu, "Shift")
    assert moving.result().startswith("Yours ends at 0.0")
    assert moving.root.locator("svg path").count() > 0
