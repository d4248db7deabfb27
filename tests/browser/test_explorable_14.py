"""Notebook 14's moving picture: buckets, the ring and the best cuts against Python's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise, product
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from course.explorables import Buckets, alive

from .test_explorables import Model, Moving

pytestmark = pytest.mark.browser

STATES = [
    {"machines": machines, "images": images, "link": link}
    for machines, images, link in product((2, 8, 32, 64), (4, 32, 256), ("nvlink", "ethernet"))
]


@pytest.fixture(scope="module")
def model(blank: Page) -> Model:
    return Model(blank, "buckets")


class Ring:
    """The same in Python, in seconds and bytes."""

    def __init__(self, model: Model, state: dict[str, Any]) -> None:
        self.machines, link = state["machines"], model.value("LINKS")[state["link"]]
        self.bandwidth, self.latency = link["bytes"], link["message"]
        backward = model.value("LAYERS")[::-1]
        self.sizes = [mib * 2**20 for mib, _ in backward]
        self.times = [ms / 1000 * state["images"] / 32 for _, ms in backward]

    def all_reduce(self, size: float) -> float:
        """2 (p - 1) messages of a p-th each: first sums, then what was summed."""
        messages = 2 * (self.machines - 1)
        return messages * (self.latency + size / self.machines / self.bandwidth)

    def end(self, cuts: Sequence[int]) -> float:
        """When the last bucket is everywhere; the link takes one after the other."""
        done = 0.0
        for first, last in pairwise([0, *cuts, len(self.sizes)]):
            ready = sum(self.times[:last])
            done = max(done, ready) + self.all_reduce(sum(self.sizes[first:last]))
        return done

    def by_size(self, limit: float) -> list[int]:
        cuts, inside = [], 0.0
        for number, size in enumerate(self.sizes[:-1], 1):
            inside += size
            if inside >= limit:
                cuts.append(number)
                inside = 0.0
        return cuts


def ways() -> Iterator[tuple[int, ...]]:
    for number in range(12):
        yield from combinations(range(1, 12), number)


def test_buckets_leave_as_in_the_formula_and_the_best_cuts_are_the_best_of_all(
    model: Model,
) -> None:
    every = list(ways())
    assert len(every) == 2048
    for state in STATES:
        ring = Ring(model, state)
        for cuts in every[::97]:
            assert model("endOf", state, list(cuts)) == pytest.approx(1000 * ring.end(cuts))
        ready = model("readyTimes", state)
        assert ready[-1] == pytest.approx(1000 * sum(ring.times))
        found = model("bestCuts", state)
        least = min(ring.end(cuts) for cuts in every)
        # To a tenth of a millisecond, as it is shown.
        assert ring.end(found) <= least + 1e-4
        plans = {name: plan["cuts"] for name, plan in model.value("PLANS").items()}
        assert plans["none"] == [] and plans["layer"] == list(range(1, 12))
        assert plans["size"] == ring.by_size(25 * 2**20)
        ends = {name: round(10_000 * ring.end(cuts)) for name, cuts in plans.items()}
        right = [name for name, end in ends.items() if end == min(ends.values())]
        assert model("answer", state) == right


def test_the_time_of_an_exchange_hardly_grows_with_machines_but_its_messages_do(
    model: Model,
) -> None:
    """The bytes: twice all of them at most, however many machines; and the messages."""

    def exchange(machines: int, mib: float) -> float:
        return model("exchangeTime", {"machines": machines, "link": "ethernet"}, mib)

    messages = {machines: exchange(machines, 0) for machines in model.value("MACHINES")}
    assert messages[64] == pytest.approx(63 * messages[2])
    bytes_ = {machines: exchange(machines, 60) - messages[machines] for machines in messages}
    assert bytes_[64] < 2 * bytes_[2] == pytest.approx(2 * 1000 * 60 * 2**20 / 12e9)


def test_what_the_machines_are_worth_and_when_no_cut_helps(model: Model) -> None:
    opens = model.value("OPENS")
    for state in STATES:
        ring = Ring(model, state)
        forward = sum(ring.times) / 2
        alone = state["machines"] * 3 * forward
        for cuts in ([], [1, 5]):
            worth = alone / (forward + ring.end(cuts))
            assert model("worth", state, cuts) == pytest.approx(worth)
            assert worth < state["machines"]
    # With 4 images each the link has no backward pass to hide behind.
    few, many = ({**opens, "images": images} for images in (4, 32))
    hidden = {}
    for name, state in (("few", few), ("many", many)):
        one, best = model("endOf", state, []), model("endOf", state, model("bestCuts", state))
        hidden[name] = best / one
    assert hidden["few"] > 0.9 and hidden["many"] < 0.6
    assert "it cannot hide it" in model("inWords", few, model("bestCuts", few))
    assert "cannot hide" not in model("inWords", many, model("bestCuts", many))
    # A link that is quick beside the backward pass: only the last bucket is left.
    quick = {**opens, "link": "nvlink", "cuts": model("bestCuts", {**opens, "link": "nvlink"})}
    assert "the last bucket: behind" in model("inWords", quick, quick["cuts"])
    # The first bucket cannot leave earlier than behind the first layer.
    early = model("inWords", few, [1, 6, 10])
    assert "make fewer" in early and "must leave earlier" not in early


def test_medals_and_words(model: Model) -> None:
    opens = model.value("OPENS")
    plans = {name: plan["cuts"] for name, plan in model.value("PLANS").items()}
    assert model("answer", opens) == ["size"]
    medals = {name: model("medal", opens, cuts) for name, cuts in plans.items()}
    assert medals == {"none": "", "layer": "", "size": "bronze"}
    best = model("bestCuts", opens)
    assert best == [1, 2, 8] and model("medal", opens, best) == "gold"
    assert model("medal", opens, [1, 2, 7]) == "silver"

    def said(cuts: list[int]) -> str:
        return model("game", opens, cuts)

    assert said([]) == (
        "The link idles until all gradients are ready: cut. "
        "To beat for bronze: 40.5 ms, one per layer."
    )
    assert "Each bucket costs 1.2 ms of messages" in said(plans["layer"])
    assert said(plans["size"]).startswith("Bronze. ")
    assert said(plans["size"]).endswith("To beat for silver: 31.8 ms, every 25 MiB.")
    assert said([1]) == (
        "The last bucket has 82.5 MiB, and nothing hides it: make it smaller. "
        "To beat for bronze: 40.5 ms, one per layer."
    )
    few = {**opens, "images": 4}
    assert "finds the link busy" in model("game", few, [3, 6, 10])
    assert "busy from the first gradient on" in model("game", few, plans["size"])
    assert said(best).startswith("★ Gold: none of all 2,048 ways ends earlier.")
    given = {**opens, "given": ["32 32 ethernet"]}
    assert model("game", given, best).startswith("This is the best: none")


@pytest.fixture
def moving(browser: Browser) -> Iterator[Moving]:
    page = browser.new_page(viewport={"width": 1000, "height": 800}, reduced_motion="reduce")
    page.set_content(alive(Buckets))
    yield Moving(page, page.locator(".course-explorable"))
    page.close()


def gate(moving: Moving, place: int) -> Any:
    return moving.root.get_by_label(f"cut after gradient {place}", exact=True)


def unknown(moving: Moving) -> int:
    return moving.root.locator("svg text", has_text="?").count()


def test_gold_is_reached_by_clicks_and_keys(moving: Moving) -> None:
    assert unknown(moving) == 5
    assert moving.root.locator("svg .xp-red").count() == 0
    gate(moving, 1).click()
    moving.page.wait_for_timeout(100)
    # Ends are told, the best is not.
    assert unknown(moving) == 1
    moving.press(gate(moving, 2), "Space")
    moving.press(gate(moving, 7), "ArrowRight")
    label = moving.page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert label == "cut after gradient 8"
    moving.press(gate(moving, 8), "Enter")
    assert "Exchanged after 30.6 ms" in moving.result() and "★ Gold" in moving.result()
    assert moving.root.locator("svg text", has_text="yours: gold").count() == 1
    assert unknown(moving) == 0
    # A second click takes the cut away.
    moving.press(gate(moving, 8), "Enter")
    assert "Gold" not in moving.result()
    assert gate(moving, 8).get_attribute("aria-pressed") == "false"


def test_giving_up_shows_the_best_without_a_medal_for_this_setting_alone(moving: Moving) -> None:
    moving.press(moving.root.locator("button.xp-best"), "Enter")
    assert "This is the best" in moving.result()
    assert moving.root.locator("svg text", has_text="gold").count() == 0
    assert unknown(moving) == 0
    moving.press(moving.slider("machines"), "ArrowLeft")
    assert unknown(moving) == 1
    assert "16 machines do the work of " in moving.result()
    moving.root.locator("select").select_option("nvlink")
    moving.page.wait_for_timeout(100)
    assert "16 machines do the work of 15.9" in moving.result()


def test_play_shows_the_ring_at_work(browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 1000, "height": 800})
    try:
        page.set_content(alive(Buckets))
        root = page.locator(".course-explorable")
        root.locator("button.xp-wager").first.click()
        ring = root.locator("svg text", has_text="adds up pieces")
        ring.wait_for(timeout=15_000)
        assert root.locator("svg text", has_text="bucket 1").count() == 1
        root.locator(".xp-result", has_text="is wrong").wait_for(timeout=15_000)
        assert root.locator("svg text", has_text="all have all sums").count() == 1
    finally:
        page.close()
