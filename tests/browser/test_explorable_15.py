"""Notebook 15's moving picture: the model of pages against Python's, and its question."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise, product
from typing import Any

import pytest
from playwright.sync_api import Page

from .test_explorables import Model

pytestmark = pytest.mark.browser

SIZES = (0.0625, 0.125, 4, 16)
SPEEDS = {"back": 10e9, "keeps": 10e9, "gpu": 3e12}


@pytest.fixture(scope="module")
def model(blank: Page) -> Model:
    return Model(blank, "pages")


def states(model: Model) -> Iterator[dict[str, Any]]:
    for allocator, size, fault in product(SPEEDS, SIZES, (0.1, 0.5, 10)):
        yield {**model.value("OPENS"), "allocator": allocator, "size": size, "fault": fault}


def expected(way: str, state: dict[str, Any]) -> tuple[float, float, float]:
    """Bytes moved, page faults and seconds of four gradients."""
    held = 4 * state["size"] * 2**20
    passes = {"zeros": 5, "none": 1}[way]
    comes_again = way == "none" and state["allocator"] == "back" and state["size"] >= 0.125
    faults = held / 4096 if comes_again else 0
    seconds = passes * held / SPEEDS[state["allocator"]] + faults * state["fault"] * 1e-6
    return passes * held, faults, seconds


@pytest.mark.parametrize("way", ["zeros", "none"])
def test_a_step_takes_its_passes_and_its_page_faults(model: Model, way: str) -> None:
    for state in states(model):
        found = model("account", way, state)
        shown = found["bytes"], found["faults"], found["seconds"]
        assert shown == pytest.approx(expected(way, state))
        assert sum(found["parts"].values()) == pytest.approx(found["seconds"])


@pytest.mark.parametrize("way", ["zeros", "none"])
def test_events_follow_each_other_for_as_long_as_the_step(model: Model, way: str) -> None:
    for state in states(model):
        taken = model("events", way, state)
        assert taken[0]["begin"] == 0
        assert all(before["end"] == after["begin"] for before, after in pairwise(taken))
        _, faults, seconds = expected(way, state)
        assert taken[-1]["end"] == pytest.approx(seconds)
        # 64 cells; the last gradient is the first that backward makes.
        kinds = Counter(event["kind"] for event in taken)
        if way == "zeros":
            assert kinds == {"write": 64, "add": 64, "zero": 64}
            assert [event["cell"] for event in taken[:17]] == [*range(64, 80), 48]
        else:
            assert kinds == ({"fault": 64, "write": 64} if faults else {"write": 64})
            assert taken[0]["cell"] == 48


def test_memory_before_within_and_after_a_step(model: Model) -> None:
    opens = model.value("OPENS")

    def held(way: str, seconds: float, **changes: Any) -> Counter[str]:
        return Counter(model("memoryAt", way, {**opens, **changes}, seconds))

    zeros, none = (model("account", way, opens)["seconds"] for way in ("zeros", "none"))
    assert held("zeros", 0) == held("zeros", zeros) == {"zero": 64, "free": 16}
    assert held("none", 0) == held("none", none) == held("none", 2 * none) == {"gone": 64}
    assert held("none", 0, allocator="keeps") == held("none", 0, size=0.0625) == {"free": 64}
    # Behind the last of five passes but one, all gradients are there.
    filled = next(each for each in model("events", "zeros", opens) if each["kind"] == "zero")
    assert filled["begin"] == pytest.approx(0.8 * zeros)
    assert held("zeros", filled["begin"]) == {"written": 64, "free": 16}
    within = [held("none", part / 128 * none) for part in range(1, 128)]
    assert all(each["fault"] <= 1 for each in within)
    assert sum(each["fault"] for each in within) > 20
    assert within[-1]["gone"] == 0


def test_a_cell_is_marked_while_it_is_added_to(model: Model) -> None:
    opens = model.value("OPENS")
    for event in model("events", "zeros", opens):
        if event["kind"] == "add":
            middle = (event["begin"] + event["end"]) / 2
            held = model("memoryAt", "zeros", opens, middle)
            assert [cell for cell, what in enumerate(held) if what == "add"] == [event["cell"]]


def test_few_cells_show_the_one_that_something_is_done_to(model: Model) -> None:
    held = ["free", "free", "fault", "gone", "zero", "zero", "zero", "zero", "free", "add"]
    assert model("merged", held, 1) == held
    assert model("merged", held, 2) == ["free", "fault", "zero", "zero", "add"]


def test_bars_are_the_events_in_their_order(model: Model) -> None:
    opens = model.value("OPENS")
    kinds = [each["kind"] for each in model("stretches", "zeros", opens)]
    assert kinds == ["write", "add"] * 4 + ["zero"]
    assert [each["kind"] for each in model("stretches", "none", opens)] == ["fault", "write"] * 64
    assert len(model("stretches", "none", opens, 4)) == 2 * 16
    for way in ("zeros", "none"):
        taken = model("stretches", way, opens)
        assert taken[-1]["end"] == pytest.approx(model("account", way, opens)["seconds"])


def test_zeros_win_where_faults_take_longer_than_four_passes_over_their_pages(model: Model) -> None:
    opens = model.value("OPENS")
    even = 4 * 4096 / SPEEDS["back"] * 1e6
    for size, fault in product((0.125, 1, 16), model.value("FAULTS")):
        winner = "zeros" if fault > even else "none"
        assert model("answer", {**opens, "size": size, "fault": fault}) == [winner]


def test_zeros_win_at_first_and_four_ways_lead_out(model: Model) -> None:
    opens = model.value("OPENS")
    assert model("answer", opens) == ["zeros"]
    for change in ({"fault": 1}, {"size": 0.0625}, {"allocator": "keeps"}, {"allocator": "gpu"}):
        assert model("answer", {**opens, **change}) == ["none"]


def test_the_result_asks_for_the_other_way_until_it_wins(model: Model) -> None:
    opens = model.value("OPENS")

    def said(**changes: Any) -> str:
        return model("inWords", {**opens, **changes})

    assert said().endswith("Zeros win by 1.5 ms per step. Can you make None win?")
    assert said(fault=1).endswith("★ None wins by 2.6 ms per step.")
    kept = said(allocator="keeps", fault=10)
    assert kept.startswith("Freed memory stays, so no page fault") and "★ None wins" in kept
