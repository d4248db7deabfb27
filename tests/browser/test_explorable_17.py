"""Notebook 17's moving picture: what tools show and cost, and the game's rules, in Python."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from course.explorables import BugHunt, alive

from .test_explorables import Model, Moving, Mulberry32

pytestmark = pytest.mark.browser

BOXES, STEPS = 8, 10_000
FAULTS = ("divides", "root", "backward", "slow")
TOOLS = ("outputs", "once", "always", "gradcheck", "profiler")


@pytest.fixture(scope="module")
def model(blank: Page) -> Model:
    return Model(blank, "bug_hunt")


def points_at(tool: str, fault: str, box: int) -> int:
    """The column that a tool points at; -1: at none. The loss is behind the boxes."""
    if tool in ("once", "always"):
        # Backward begins at the loss, which is nan already where the forward pass divides.
        return {"divides": BOXES, "root": box}.get(fault, -1)
    finds = {"outputs": "divides", "gradcheck": "backward", "profiler": "slow"}
    return box if finds[tool] == fault else -1


def seconds(tool: str, fault: str, bad: int) -> float:
    """Of steps of one second."""
    until = bad if fault in ("divides", "root") else STEPS
    forward = 1 / 3
    calls = BOXES * 2 * 64
    return {
        "outputs": 1.4,
        "once": 12,
        "always": 12 * until,
        "gradcheck": calls * forward / BOXES,
        "profiler": 3.5,
    }[tool]


def dealt(game: int) -> list[dict[str, Any]]:
    draws = Mulberry32(game)

    def pick(count: int) -> int:
        return int(draws.uniform() * count)

    rest = list(FAULTS[1:])
    for last in range(len(rest) - 1, 0, -1):
        other = pick(last + 1)
        rest[last], rest[other] = rest[other], rest[last]
    faults = ["divides", *rest, FAULTS[pick(len(FAULTS))]]
    return [
        {"fault": each, "box": 1 + pick(BOXES - 2), "bad": 1500 + pick(8000)} for each in faults
    ]


def test_cases_are_seeded_and_each_fault_comes(model: Model) -> None:
    assert model.value("FAULTS") == list(FAULTS)
    for game in range(1, 30):
        cases = model("deal", game)
        assert cases == dealt(game)
        assert {case["fault"] for case in cases} == set(FAULTS)
        assert cases[0]["fault"] == "divides"
        assert all(0 < case["box"] < BOXES - 1 and case["bad"] < STEPS for case in cases)
    # Nobody guesses the box of the next case from the last one.
    assert len({case["box"] for case in dealt(model.value("OPENS")["game"])}) == 5


def test_tools_show_and_cost_what_the_rules_say(model: Model) -> None:
    assert model.value("TOOLS") == list(TOOLS)
    for tool, fault, box in product(TOOLS, FAULTS, (1, 4, 6)):
        case = {"fault": fault, "box": box, "bad": 2000 + box}
        column = points_at(tool, fault, box)
        assert model("named", tool, case) == column
        assert model("price", tool, case) == pytest.approx(seconds(tool, fault, case["bad"]))
        marks = model("evidence", tool, case)
        assert len(marks) == BOXES + 1
        if tool == "outputs" and fault == "divides":
            assert marks == ["ok"] * box + ["nan"] * (BOXES + 1 - box)
        elif tool == "profiler":
            assert sum(marks) == pytest.approx(3 if fault == "slow" else 1)
        elif column >= 0:
            assert marks.count(marks[column]) == 1


def test_the_answer_is_the_cheapest_tool_that_names_the_box(model: Model) -> None:
    wanted = dict(zip(FAULTS, ("outputs", "once", "gradcheck", "profiler"), strict=True))
    for game, place in product((1, 2, 124), range(5)):
        case = dealt(game)[place]
        state = {"game": game, "round": place}
        naming = [tool for tool in TOOLS if points_at(tool, case["fault"], 3) == 3]
        best = min(naming, key=lambda tool: seconds(tool, case["fault"], case["bad"]))
        assert model("answer", state) == [best] == [wanted[case["fault"]]]
        assert model("least", state) == seconds(best, case["fault"], case["bad"])


def test_a_case_is_paid_by_tools_and_wrong_accusations(model: Model) -> None:
    state = dict(model.value("OPENS"))
    case = dealt(state["game"])[0]
    for tool in ("once", "outputs", "once"):
        state |= model("use", state, tool)
    assert state["used"] == ["once", "outputs"] and state["last"] == "once"
    assert model("spent", state) == pytest.approx(13.4)
    wrong = state | {"chosen": 0}
    wrong |= model("accuse", wrong)
    assert wrong["accused"] == [0] and wrong["paid"] == []
    assert model("spent", wrong) == pytest.approx(13.4 + case["bad"])
    assert model("accuse", wrong) == {}
    right = wrong | {"chosen": case["box"]}
    right |= model("accuse", right)
    assert right["paid"] == [pytest.approx(13.4 + case["bad"])]
    # Nothing is paid for a case that is solved.
    assert model("use", right, "profiler") == model("accuse", right) == {}
    following = right | model("advance", right)
    assert (following["round"], following["used"], following["accused"]) == (1, [], [])
    skipped = following | model("advance", following)
    assert skipped["paid"] == [*right["paid"], None]
    assert model("par", skipped) == pytest.approx(1.4 + 128 / 3)


def test_times_in_words(model: Model) -> None:
    for given, words in ((1.4, "1.4 s"), (42.67, "43 s"), (5589, "93 min"), (67068, "19 h")):
        assert model("time", given) == words


@pytest.fixture
def moving(browser: Browser) -> Iterator[Moving]:
    page = browser.new_page(viewport={"width": 1000, "height": 800}, reduced_motion="reduce")
    page.set_content(alive(BugHunt))
    yield Moving(page, page.locator(".course-explorable"))
    page.close()


def accuse(moving: Moving, box: int) -> None:
    suspect = moving.slider("chosen")
    moving.press(suspect, "Home")
    for _ in range(box):
        moving.press(suspect, "ArrowRight")
    moving.press(moving.root.locator("button.xp-accuse"), "Enter")


NAMES = {
    "outputs": "outputs",
    "once": "anomaly mode, one step",
    "gradcheck": "gradcheck",
    "profiler": "profiler",
}


def test_a_game_is_won_by_keys(moving: Moving, model: Model) -> None:
    opens = model.value("OPENS")
    for place, case in enumerate(dealt(opens["game"])):
        (tool,) = model("answer", {**opens, "round": place})
        moving.press(moving.root.get_by_label(f"bet: {NAMES[tool]}", exact=True), "Enter")
        assert ", is right. " in moving.result()
        accuse(moving, case["box"])
        assert f"Box {case['box'] + 1} it is" in moving.result()
        if place < 4:
            moving.press(moving.root.locator("button.xp-next"), "Enter")
            assert moving.result() == "Bet first, or move something."
    assert "★ No bug is safe from you!" in moving.result()
    assert moving.root.locator("svg text.xp-green", has_text="✓").count() >= 5
    moving.press(moving.root.locator("button.xp-next"), "Enter")
    assert moving.root.locator("svg text.xp-bold.xp-green", has_text="✓").count() == 0


def test_anomaly_mode_names_the_loss_where_the_forward_pass_divides(moving: Moving) -> None:
    bet = moving.root.get_by_label("bet: anomaly mode, one step", exact=True)
    moving.press(bet, "Enter")
    assert "is wrong. Anomaly mode names the loss" in moving.result()
    assert moving.root.locator("svg text", has_text="named").count() == 1
    moving.press(moving.root.locator("button.xp-show"), "Enter")
    assert "Yours: anomaly mode, one step. It is outputs. Box 5 is the first" in moving.result()


def test_a_wrong_accusation_costs_a_training(moving: Moving) -> None:
    accuse(moving, 1)
    assert "Box 2 was right. You changed it for nothing, and trained again" in moving.result()
    # A box is chosen by a click, too.
    moving.root.locator("svg text.xp-middle", has_text="4").first.click()
    moving.page.wait_for_timeout(100)
    assert moving.root.locator("button.xp-accuse").inner_text() == "Accuse box 4"
