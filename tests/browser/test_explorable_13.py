"""Notebook 13's moving picture: weights of tokens, memory of trays and the lowest peaks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import inf
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page

from course.explorables import FairShares, alive

from .test_explorables import Model, Moving, drag

pytestmark = pytest.mark.browser

SENTENCES = [2, 3, 3, 4, 6, 7, 9, 12, 15, 18, 20, 21]


@pytest.fixture(scope="module")
def model(blank: Page) -> Model:
    return Model(blank, "fair_shares")


def sentences_in(state: dict[str, Any]) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(state["count"])]
    for tokens, tray in zip(SENTENCES, state["trays"], strict=True):
        found[tray].append(tokens)
    return found


def packings(model: Model) -> Iterator[dict[str, Any]]:
    for count in range(1, 7):
        ways = [model("dealt", count, seed) for seed in range(3)]
        ways += [model(name, count) for name in ("sorted", "balanced", "lone")]
        for trays in ways:
            yield {"count": count, "trays": trays}


def test_weights_are_those_of_the_divided_sums(model: Model) -> None:
    """The weight of each token in the sum of the trays' gradients, by adding up."""
    assert model.value("SENTENCES") == SENTENCES and sum(SENTENCES) == 120
    for packing in packings(model):
        trays = sentences_in(packing)
        for divide in ("own", "all", "only"):
            state = {**packing, "divide": divide}
            weights = []
            for tray in trays:
                tokens = sum(tray)
                divisor = {"own": tokens * len(trays), "all": 120, "only": tokens}[divide]
                weights += [1 / divisor] * tokens
                if tokens:
                    assert model("counts", tokens, state) == pytest.approx(120 / divisor)
            expected = sum(abs(120 * weight - 1) for weight in weights) / 120
            assert model("off", state) == pytest.approx(expected, abs=1e-12)


def test_a_tray_keeps_its_sentences_as_long_as_the_longest(model: Model) -> None:
    for packing in packings(model):
        for tray, kept in zip(sentences_in(packing), model("memory", packing), strict=True):
            size = len(tray) * max(tray, default=0)
            assert kept == {"all": size, "padding": size - sum(tray)}


@cache
def lowest(count: int, tokens: int = 0) -> float:
    """The lowest peak of all packings; with ``tokens`` of those with so many in each tray."""
    size, total = [0] * 4096, [0] * 4096
    for inside in range(1, 4096):
        tray = [SENTENCES[i] for i in range(12) if inside >> i & 1]
        size[inside], total[inside] = len(tray) * max(tray), sum(tray)

    @cache
    def best(left: int, trays: int) -> float:
        if not left or not trays:
            return inf if left or (tokens and trays) else 0
        highest = 1 << (left.bit_length() - 1)
        rest = others = left ^ highest
        found = inf
        # All parts of what is left that have its longest sentence.
        while True:
            tray = others | highest
            if not tokens or total[tray] == tokens:
                found = min(found, max(size[tray], best(left ^ tray, trays - 1)))
            if not others:
                return found
            others = (others - 1) & rest

    return best(4095, count)


@pytest.mark.parametrize("count", range(1, 7))
def test_the_lowest_peaks_are_those_of_all_packings(model: Model, count: int) -> None:
    assert model("lowest", count) == lowest(count)
    assert model("lowestEqual", count) == lowest(count, 120 // count)


def test_packings_are_what_their_buttons_say(model: Model) -> None:
    for count in range(1, 7):
        for packing in (model("dealt", count, 4), model("sorted", count)):
            sizes = [len(tray) for tray in sentences_in({"count": count, "trays": packing})]
            assert max(sizes) - min(sizes) <= 1
        trays = sentences_in({"count": count, "trays": model("sorted", count)})
        pairs = zip(trays[1:], trays, strict=False)
        assert all(max(shorter) <= min(longer) for shorter, longer in pairs)
        trays = sentences_in({"count": count, "trays": model("balanced", count)})
        assert max(map(sum, trays)) - min(map(sum, trays)) <= 3
    assert model("dealt", 4, 1) != model("dealt", 4, 2)
    # Greedy is nearly fair, and not quite.
    near = {**model.value("OPENS"), "trays": model("balanced", 4)}
    assert 0 < model("off", near) < 0.05


# Of each sentence its tray: 30 tokens in each; the lowest peak.
EQUAL = [3, 0, 1, 3, 0, 1, 3, 2, 3, 2, 1, 0]
BEST = [3, 3, 3, 3, 3, 2, 2, 2, 1, 1, 0, 0]


def test_the_mean_of_means_can_be_right_and_the_score_goes_on(model: Model) -> None:
    opens = model.value("OPENS")
    assert sentences_in(opens)[0] == [2]
    assert model("answer", opens) == [15]
    assert model("answer", {**opens, "divide": "only"}) == [60]
    assert "In tray 1 each token counts 15×: 2 tokens have 1/4 of" in model("inWords", opens)
    for trays, divide, prize, said in (
        (EQUAL, "own", "bronze", "Bronze: fair, with 30 tokens in each tray; peak 63."),
        (EQUAL, "all", "bronze", "below 63, the peak of equal tokens, is silver."),
        (model("sorted", 4), "all", "bronze", "peak 63; below 63"),
        (BEST, "all", "gold", "★ Gold: fair, peak 42. No packing into 4 trays needs less."),
        (BEST, "own", "", "To beat: 0 %, every token grey."),
        (opens["trays"], "only", "", "The means are added up, and nobody divides by 4."),
    ):
        state = {**opens, "trays": trays, "divide": divide}
        assert model("medal", state) == prize
        assert said in model("inWords", state)
    six = {**opens, "count": 6, "trays": model("balanced", 6)}
    assert "Fair would be 20 tokens in each; one has 21." in model("inWords", six)
    one = {**opens, "count": 1, "trays": [0] * 12}
    assert "One tray is the whole batch: fair, and peak 252." in model("inWords", one)


@pytest.fixture
def moving(browser: Browser) -> Iterator[Moving]:
    page = browser.new_page(viewport={"width": 1000, "height": 900})
    page.set_content(alive(FairShares))
    yield Moving(page, page.locator(".course-explorable"))
    page.close()


def strip(moving: Moving, sentence: int) -> Locator:
    return moving.root.locator("button.xp-strip").nth(sentence)


def weights(moving: Moving) -> list[str]:
    return moving.root.locator("svg text", has_text="counts").all_text_contents()


def test_keys_move_a_sentence_and_the_focus(moving: Moving) -> None:
    assert weights(moving) == []
    moving.press(strip(moving, 1), "ArrowRight")
    assert strip(moving, 1).get_attribute("aria-label") == "sentence of 3 tokens, tray 3"
    assert "each counts 15×" in weights(moving)
    moving.press(strip(moving, 1), "ArrowDown")
    focused = "document.activeElement.getAttribute('aria-label')"
    assert moving.page.evaluate(focused) == "sentence of 3 tokens, tray 3"
    moving.press(strip(moving, 0), "ArrowRight")
    assert strip(moving, 0).get_attribute("aria-label") == "sentence of 2 tokens, tray 2"
    # Nothing lies beyond the last tray.
    for _ in range(4):
        moving.press(strip(moving, 11), "ArrowRight")
    assert strip(moving, 11).get_attribute("aria-label") == "sentence of 21 tokens, tray 4"


def test_gold_is_reached_by_dragging(moving: Moving) -> None:
    move_to(moving, EQUAL)
    assert "Bronze: fair" in moving.result()
    assert moving.root.locator("svg text", has_text="fair").count() == 4
    moving.root.locator("select.xp-divide").select_option("all")
    move_to(moving, BEST)
    assert "★ Gold: fair, peak 42." in moving.result()


def move_to(moving: Moving, trays: list[int]) -> None:
    """Drag each sentence into its tray."""
    for sentence, tray in enumerate(trays):
        box, root = strip(moving, sentence).bounding_box(), moving.root.locator(".xp-stage")
        stage = root.bounding_box()
        assert box and stage
        across = stage["x"] + stage["width"] * (tray + 0.5) / 4 - box["x"] - box["width"] / 2
        drag(moving, strip(moving, sentence), across)
    now = [strip(moving, each).get_attribute("aria-label") or "" for each in range(12)]
    assert [int(label[-1]) - 1 for label in now] == trays


def test_buttons_pack(moving: Moving) -> None:
    button = {
        name: moving.root.locator(f"button.xp-{name}") for name in ("deal", "sort", "balance")
    }
    moving.press(button["balance"], "Enter")
    assert "on average a token is off by" in moving.result().lower()
    moving.press(button["sort"], "Enter")
    assert "In tray 4 each token counts" in moving.result()
    before = moving.shown()
    moving.press(button["deal"], "Enter")
    assert moving.shown() != before
    moving.press(moving.slider("count"), "Home")
    assert "One tray is the whole batch" in moving.result()
