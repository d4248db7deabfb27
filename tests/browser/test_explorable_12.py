"""Notebook 12's moving picture: cuts, searches and medals against Python's."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import accumulate, combinations, pairwise
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from course.explorables import CutTheNetwork, alive

from .test_explorables import Model, Moving

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def model(blank: Page) -> Model:
    return Model(blank, "cut_the_network")


@pytest.fixture(scope="module")
def levels(model: Model) -> dict[str, Any]:
    return model.value("LEVELS")


def peak(level: dict[str, Any], cuts: Any) -> int:
    """For each piece the outputs of those before it, and what its own blocks save."""
    held = highest = 0
    for first, end in pairwise([0, *cuts, len(level["saved"])]):
        highest = max(highest, held + sum(level["saved"][first:end]))
        held += level["outputs"][end - 1]
    return highest


def ways(blocks: int) -> Iterator[tuple[int, ...]]:
    for number in range(blocks):
        yield from combinations(range(1, blocks), number)


def test_peaks_are_those_of_the_rule_and_exact_is_the_lowest_of_all(
    model: Model, levels: dict[str, Any]
) -> None:
    for name, level in levels.items():
        every = list(ways(len(level["saved"])))
        for cuts in every[:: len(every) // 25]:
            assert model("peakOf", name, list(cuts)) == peak(level, cuts)
            assert model("again", list(cuts)) == (cuts[-1] if cuts else 0)
        exact = model("exactCuts", name)
        assert exact == sorted(set(exact)) and exact[0] > 0 and exact[-1] < len(level["saved"])
        assert peak(level, exact) == min(peak(level, cuts) for cuts in every)


def test_the_searches_are_those_that_the_picture_names(
    model: Model, levels: dict[str, Any]
) -> None:
    wanted = {"equal": (28, 22, 18), "resnet": (36, 28, 25), "hourglass": (41, 29, 25)}
    wanted["necks"] = (41, 18, 17)
    for name, level in levels.items():
        blocks, pieces = len(level["saved"]), model("rootPieces", name)
        assert pieces == round(blocks**0.5)
        equal = [blocks * piece // pieces for piece in range(1, pieces)]
        assert model("equalCuts", name, pieces) == equal
        grids = []
        for number in range(1, 25):
            cuts, inside = [], 0
            for block, saved in enumerate(level["saved"][:-1], 1):
                inside += saved
                if inside > sum(level["saved"]) * number / 25:
                    cuts.append(block)
                    inside = 0
            grids.append(peak(level, cuts))
        assert peak(level, model("gridCuts", name)) == min(grids)
        goals = model("goals", name)
        assert (goals["root"], goals["grid"], goals["exact"]) == wanted[name]
        assert goals["root"] == peak(level, equal)


def test_generations_are_valid_never_worse_and_settle(model: Model, levels: dict[str, Any]) -> None:
    """001.36: the search converges, and is stable after about five generations."""
    fallen, left = {}, {}
    for name, level in levels.items():
        generations = model("evolve", name, 10)
        assert len(generations) == 11
        for plans in generations:
            assert 2 <= len(plans) <= 16 and len({tuple(cuts) for cuts in plans}) == len(plans)
            for cuts in plans:
                assert cuts == sorted(set(cuts))
                assert all(0 < cut < len(level["saved"]) for cut in cuts)
            peaks = [peak(level, cuts) for cuts in plans]
            assert peaks == sorted(peaks)
        bests = [peak(level, plans[0]) for plans in generations]
        assert bests == sorted(bests, reverse=True)
        assert bests[0] == model("goals", name)["grid"]
        fallen[name], left[name] = bests[0] - bests[5], bests[5] - bests[10]
        # What was drawn does not depend on how far it goes.
        assert model("evolve", name, 4) == generations[:5]
    assert sum(fallen.values()) >= 8 > 3 * sum(left.values())


def test_checkpoints_in_checkpoints_are_the_best_of_all_schedules(
    model: Model, levels: dict[str, Any]
) -> None:
    for name, level in levels.items():
        saved, outputs = level["saved"], level["outputs"]

        @cache
        def needs(first: int, end: int, extra: int, saved: Any = saved, outputs: Any = outputs):
            """The least room in which so many forward runs suffice: by runs, not by room."""
            if first == end:
                return 0
            if extra < end - first:
                return float("inf")
            found = [saved[first] + needs(first + 1, end, extra - 1)]
            for cut in range(first + 1, end):
                for behind in range(end - cut, extra - 2 * (cut - first) + 1):
                    before = extra - (cut - first) - behind
                    inside = needs(cut, end, behind) + outputs[cut - 1]
                    found.append(max(inside, needs(first, cut, before)))
            return min(found)

        frontier = model("frontier", name)
        blocks = len(saved)
        assert frontier[-1] == [sum(saved), 0]
        for least, extra in frontier:
            if extra <= 2 * blocks:
                assert needs(0, blocks, blocks + extra) == least
                assert needs(0, blocks, blocks + extra - 1) > least
        one_level = model("goals", name)["exact"]
        assert frontier[0][0] < one_level
    assert model("frontier", "equal")[0] == [8, 66]


def test_the_first_pieces_are_the_longest_where_blocks_are_equal(
    model: Model, levels: dict[str, Any]
) -> None:
    for name, level in levels.items():
        blocks = len(level["saved"])
        found: dict[str, list[int]] = {"first": [], "last": [], "equal": []}
        for cuts in combinations(range(1, blocks), 5):
            lengths = [end - first for first, end in pairwise([0, *cuts, blocks])]
            if lengths == sorted(lengths, reverse=True) and lengths[0] > lengths[-1]:
                found["first"].append(peak(level, cuts))
            elif lengths == sorted(lengths) and lengths[0] < lengths[-1]:
                found["last"].append(peak(level, cuts))
        found["equal"] = [peak(level, [blocks * piece // 6 for piece in range(1, 6)])]
        best = {shape: min(peaks) for shape, peaks in found.items()}
        for shape, lowest in best.items():
            assert peak(level, model("bestShape", name, shape)) == lowest
        right = [shape for shape, lowest in best.items() if lowest == min(best.values())]
        assert model("answer", {"level": name}) == right
    assert list(accumulate([3, 2, 2, 2, 2])) == model("bestShape", "equal", "first")


def test_medals_and_words(model: Model) -> None:
    for peak_, prize in ((28, ""), (27, "bronze"), (22, "bronze"), (21, "silver"), (18, "gold")):
        assert model("medal", "equal", peak_) == prize
    opens = model.value("OPENS")
    said = {}
    for cuts in ([], [4, 8], [2, 4, 6, 8, 10], [3, 5, 7, 9, 11], [3, 5, 7, 9, 10, 11]):
        said[len(cuts)] = model("inWords", opens, cuts, [])
    assert said[0].endswith("Shorten the red piece. To beat: 28, √n equal pieces.")
    assert said[2].startswith("Peak 28: piece 3 of 3 saves 24, beside 4 of outputs.")
    assert said[6].endswith("★ Gold: none of all 2,048 ways is lower.")
    given = model("inWords", {**opens, "given": ["equal"]}, [3, 5, 7, 9, 10, 11], [])
    assert "Gold" not in given and "This is exact" in given


@pytest.fixture
def moving(browser: Browser) -> Iterator[Moving]:
    page = browser.new_page(viewport={"width": 1000, "height": 800})
    page.set_content(alive(CutTheNetwork))
    yield Moving(page, page.locator(".course-explorable"))
    page.close()


def gate(moving: Moving, block: int) -> Any:
    return moving.root.get_by_label(f"cut before block {block}", exact=True)


def test_gold_is_reached_by_clicks_and_keys_and_shows_what_is_exact(moving: Moving) -> None:
    row = moving.root.locator("svg text", has_text="exact")
    moving.press(moving.slider("pieces"), "Home")
    for block in (4, 6, 8, 10):
        gate(moving, block).click()
    assert moving.root.locator("svg text", has_text="?").count() == 2
    moving.press(gate(moving, 11), "Space")
    moving.press(gate(moving, 11), "ArrowRight")
    label = moving.page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert label == "cut before block 12"
    moving.press(gate(moving, 12), "Enter")
    assert "★ Gold" in moving.result()
    assert moving.root.locator("svg text", has_text="yours: gold").count() == row.count() == 1
    assert moving.root.locator("svg text", has_text="?").count() == 0
    # A second click takes the cut away.
    moving.press(gate(moving, 12), "Enter")
    assert "Gold" not in moving.result()
    assert gate(moving, 12).get_attribute("aria-pressed") == "false"


def test_giving_up_shows_the_plan_without_a_medal_and_then_nests(moving: Moving) -> None:
    button = moving.root.locator("button.xp-exact")
    moving.press(button, "Enter")
    assert "Peak 18" in moving.result() and "This is exact" in moving.result()
    assert moving.root.locator("svg text", has_text="gold").count() == 0
    moving.press(button, "Enter")
    assert "Checkpoints in checkpoints need 8 at least: 66" in moving.result()
    # Another network: all is unknown again.
    moving.root.locator("select").select_option("necks")
    moving.page.wait_for_timeout(100)
    assert moving.root.locator("svg text", has_text="?").count() == 2
    assert moving.root.locator("button.xp-gate").count() == 13
    assert button.inner_text() == "Give up"


def test_each_press_is_a_generation(moving: Moving) -> None:
    button = moving.root.locator("button.xp-genetic")
    for _ in range(5):
        moving.press(button, "Enter")
    assert moving.result().endswith("Genetic, best by generation: 22 22 22 22 22 20.")
    for _ in range(6):
        moving.press(button, "Enter")
    assert "generation" not in moving.result()
