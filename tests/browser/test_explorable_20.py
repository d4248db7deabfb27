"""Notebook 20's moving picture: what each switch keeps and learns, against Python's; its lamps."""

from __future__ import annotations

from itertools import product
from statistics import fmean
from typing import Any

import pytest
from playwright.sync_api import Page

from .test_explorables import Model, Mulberry32

pytestmark = pytest.mark.browser

BATCHES = 8
MODES = ("grad", "no_grad", "inference_mode")


@pytest.fixture(scope="module")
def model(blank: Page) -> Model:
    return Model(blank, "two_switches")


def settings(model: Model) -> list[dict[str, Any]]:
    """All twelve."""
    opens = model.value("OPENS")
    return [
        {**opens, "layers": layers, "autograd": autograd, "total": total}
        for layers, autograd, total in product(("train", "eval"), MODES, ("loss", "item"))
    ]


def simulated(state: dict[str, Any]) -> list[tuple[float, int, int]]:
    """When a block has run, tensors of earlier batches and of this one: graphs as lists, kept by
    the names of a loop.
    """
    seen = [(0.0, 0, 0)]
    total: list[list[str]] = []
    loss: list[str] = []
    for batch in range(BATCHES):
        graph: list[str] = []
        for block in range(state["blocks"]):
            time = batch + (block + 1) / state["blocks"]
            graph += ["input", "output"]
            earlier = [each for each in total if each is not loss]
            held = sum(map(len, earlier)) + len(loss)
            seen.append((time, held, len(graph) if state["autograd"] == "grad" else 2))
        if state["autograd"] == "grad":
            loss = graph
            if state["total"] == "loss":
                total.append(graph)
    return seen


def test_memory_is_what_the_names_of_the_loop_hold(model: Model) -> None:
    peaks = {}
    for state in settings(model):
        for blocks in (2, 6, 12):
            now = {**state, "blocks": blocks}
            expected = simulated(now)
            for time, *tensors in expected:
                found = model("held", now, time)
                assert [found["earlier"], found["now"]] == tensors
            most = model("peak", now)
            assert most == max(sum(tensors) for _, *tensors in expected)
            peaks[state["autograd"], state["total"], blocks] = most
    assert [peaks["grad", "loss", blocks] for blocks in (2, 6, 12)] == [32, 96, 192]
    assert [peaks["grad", "item", blocks] for blocks in (2, 6, 12)] == [8, 24, 48]
    assert {most for (mode, *_), most in peaks.items() if mode != "grad"} == {2}


def struck(rate: float, number: int, batch: int) -> list[bool]:
    random = Mulberry32(100 * number + batch + 57)
    return [random.uniform() < rate for _ in range(8)]


def mean_loss(training: bool, number: int) -> float:
    means = []
    for batch in range(BATCHES):
        random = Mulberry32(1000 + batch)
        values = [0.3 + 0.9 * random.uniform() for _ in range(8)]
        gone = struck(0.25 if training else 0, number, batch)
        scale = 4 / 3 if training else 1
        means.append(
            fmean(0 if out else scale * each for each, out in zip(values, gone, strict=True))
        )
    return fmean(means)


def test_dropout_changes_the_answer_and_evaluation_does_not(model: Model) -> None:
    for state in settings(model):
        training = state["layers"] == "train"
        answers = [model("loss", state, number) for number in (1, 2)]
        assert answers == pytest.approx([mean_loss(training, number) for number in (1, 2)])
        assert (f"{answers[0]:.3f}" == f"{answers[1]:.3f}") is not training
        for batch in range(BATCHES):
            found = model("dropped", state, 1, batch)
            assert found == struck(0.25 if training else 0, 1, batch)
    # One is struck out in each batch, so that every moment shows what dropout does.
    assert min(sum(struck(0.25, 1, batch)) for batch in range(BATCHES)) >= 1


def test_batch_norm_moves_towards_the_images_that_it_sees(model: Model) -> None:
    for state in settings(model):
        mean = 0.0
        for batch in range(BATCHES):
            assert model("running", state, batch) == pytest.approx(mean)
            if state["layers"] == "train":
                mean = 0.9 * mean + 0.1 * 1.5
            assert model("running", state, batch + 0.1) == pytest.approx(mean)
        assert model("running", state, BATCHES) == pytest.approx(mean)


def test_four_of_twelve_settings_are_green(model: Model) -> None:
    green = [state for state in settings(model) if model("isGreen", state)]
    assert len(green) == model.value("GREEN") == 4
    assert {state["layers"] for state in green} == {"eval"}
    assert {state["autograd"] for state in green} == {"no_grad", "inference_mode"}


def test_a_lamp_is_red_as_soon_as_something_is_wrong(model: Model) -> None:
    opens = model.value("OPENS")
    red = {"little": 1 / 6, "steady": 2, "same": BATCHES - 0.1, "unlearned": 0}
    for tenth in range(10 * BATCHES + 1):
        time = tenth / 10
        found = model("lamps", opens, time)
        for lamp, begin in red.items():
            assert found[lamp] == ("red" if time > begin else "open")
    item = {**opens, "total": "item", "layers": "eval"}
    assert model("lamps", item, BATCHES - 0.1)["steady"] == "open"
    assert model("lamps", item, BATCHES) == {
        "little": "red",
        "steady": "green",
        "same": "green",
        "unlearned": "green",
    }


def test_no_grad_saves_most_and_no_switch_alone_lights_all_lamps(model: Model) -> None:
    opens = model.value("OPENS")
    assert model("answer", opens) == ["no_grad"]
    for changes in model.value("BETS").values():
        assert not model("isGreen", {**opens, **changes})
    # All bets are alike where nothing is recorded anyway.
    assert len(model("answer", {**opens, "autograd": "no_grad"})) == 3


def test_green_settings_are_counted_once(model: Model) -> None:
    state = model.value("OPENS")
    for number, changes in enumerate(
        [
            {"layers": "eval"},
            {"autograd": "no_grad"},
            {"total": "item"},
            {"autograd": "inference_mode"},
            {"total": "loss"},
            {"autograd": "no_grad"},
        ]
    ):
        state = model("switched", state, changes)
        assert state["time"] == BATCHES
        assert len(state["found"]) == [0, 1, 2, 3, 4, 4][number]
    assert model("inWords", state).startswith("★ All green. At most 2 tensors")


def test_a_wrong_bet_is_told_why(model: Model) -> None:
    opens = {**model.value("OPENS"), "time": BATCHES}
    said = model("inWords", {**opens, "layers": "eval"})
    assert "At most 96 tensors: the total holds every graph. eval() tells autograd nothing" in said
    said = model("inWords", {**opens, "total": "item"})
    assert "At most 24 tensors: this graph, and the one that loss still holds" in said
    said = model("inWords", {**opens, "autograd": "no_grad"})
    assert "At most 2 tensors" in said and "batch norm has learned" in said
    assert model("inWords", {**opens, "time": 2.3}) == "Batch 3: 28 tensors."
