"""Notebook 22's moving picture: when compiling has paid, against Python's; and what ends it."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest
from playwright.sync_api import Page

from .test_explorables import Model

pytestmark = pytest.mark.browser

# Microseconds to launch a kernel.
LAUNCH = {"cores": 20, "a100": 8, "h100": 6}
COMPILED = {"nothing": 1, "shape": 2, "shapes": 2, "number": 8}
CAPTURED = {"nothing": 1, "shape": 2, "shapes": 6, "number": 0}


@pytest.fixture(scope="module")
def model(blank: Page) -> Model:
    return Model(blank, "two_runners")


def settings(model: Model) -> list[dict[str, Any]]:
    """Each machine, way and change, with short and long kernels, cold and warm."""
    opens = model.value("OPENS")
    names = ("machine", "way", "changes", "kernel", "cache")
    values = [list(model.value(each)) for each in ("MACHINES", "WAYS", "CHANGES")]
    return [
        {**opens, **dict(zip(names, each, strict=True))}
        for each in product(*values, (3, 50, 200), ("cold", "warm"))
    ]


def seconds(state: dict[str, Any], eager: bool) -> float:
    """Of a step."""
    n, w = state["operators"], state["kernel"]
    gpu, c = state["machine"] != "cores", LAUNCH[state["machine"]]
    ends = state["changes"] == "number"
    fuses = not eager and not ends and state["way"] != "graph"
    replays = not eager and not ends and gpu and state["way"] in ("graph", "both")
    count = n / 3 if fuses else n
    if fuses and state["way"] == "blocks":
        count *= 1.2
    kept = min(1.0, max(0.5, 0.5 + 0.5 * math.log10(w / 10))) if fuses else 1.0
    launches, kernels = count * (1 if replays else c), n * w * kept
    return (max(launches, kernels) if gpu else launches + kernels) / 1e6


def waits(state: dict[str, Any]) -> float:
    """Seconds to compile and to capture."""
    once = {"compile": 0.4, "both": 0.4, "blocks": 0.4 / 6, "graph": 0}[state["way"]]
    code = COMPILED[state["changes"]] * once * state["operators"]
    graphs = state["machine"] != "cores" and state["way"] in ("graph", "both")
    return code / (5 if state["cache"] == "warm" else 1) + graphs * CAPTURED[state["changes"]]


def test_steps_and_waits_are_those_of_the_formulas(model: Model) -> None:
    never = 0
    for state in settings(model):
        for eager in (True, False):
            found = model("step", state, eager)["time"]
            assert found / 1e6 == pytest.approx(seconds(state, eager))
        assert model("before", state) == pytest.approx(waits(state))
        saved = seconds(state, True) - seconds(state, False)
        after = model("paid", state)
        if saved <= 1e-12:
            assert math.isinf(after)
            never += 1
            continue
        exact = waits(state) / saved
        assert max(1.0, exact) - 1e-6 * exact <= after <= exact + 1 + 1e-6 * exact
        # Not behind any more from there on, and before it yet.
        assert model("total", state, False, after) <= model("total", state, True, after) + 1e-6
        if after > 1:
            earlier = model("total", state, False, after - 2)
            assert earlier > model("total", state, True, after - 2)
    assert never > 20


def test_the_bet_s_answer_is_the_first_number_at_which_it_has_paid(model: Model) -> None:
    opens = model.value("OPENS")
    assert model("paid", opens) == math.ceil(48 / 1.78e-3)
    assert model("answer", opens) == [30000]
    # Nowhere, where a GPU is busy with long kernels.
    long = {**opens, "machine": "a100", "kernel": 100}
    assert model("answer", long) == [] and math.isinf(model("paid", long))
    assert model("answer", {**opens, "cache": "warm"}) == [30000]
    assert model("answer", {**opens, "way": "blocks", "cache": "warm"}) == [3000]


def test_the_runner_that_compiles_stands_until_it_is_ready(model: Model) -> None:
    for count in model.value("STEPS"):
        state = {**model.value("OPENS"), "steps": count}
        both = [model("total", state, eager) for eager in (True, False)]
        for time in (0, 0.3, 0.7, 1):
            now = time * min(both)
            for eager, wait in ((True, 0), (False, 48)):
                found = model("place", {**state, "time": time}, eager)
                done = max(0, now - wait) / seconds(state, eager)
                assert found["done"] == pytest.approx(min(count, done), rel=1e-6, abs=1e-6 * count)
                assert found["ready"] == pytest.approx(min(1, now / wait) if wait else 1)
        # The first one arrives at the end.
        ends = [model("place", {**state, "time": 1}, eager)["done"] for eager in (True, False)]
        assert max(ends) == count
        assert (ends[0] == count) == (both[0] <= both[1])


def test_a_magnified_step_has_its_kernels_in_turn(model: Model) -> None:
    for state in settings(model)[::7]:
        for eager in (True, False):
            blocks = model("magnified", state, eager, 12)
            each = model("step", state, eager)
            assert len(blocks) == round(12 * each["count"] / state["operators"])
            free = 0.0
            for place, block in enumerate(blocks):
                (begin, launched), (runs, done) = block["launch"], block["kernel"]
                assert launched - begin == pytest.approx(each["each"])
                assert done - runs == pytest.approx(each["run"])
                assert runs == pytest.approx(max(launched, free))
                waited = state["machine"] == "cores"
                assert begin == pytest.approx(free if waited else place * each["each"])
                free = done


def test_what_decides_is_said(model: Model) -> None:
    opens = model.value("OPENS")
    gpu = {**opens, "machine": "h100"}
    for changes, words in (
        ({}, "It needs 48 s first: paid after 26,967 steps. At 1,000 it is still behind."),
        ({"steps": 30000}, "At 30,000 it is ahead."),
        ({"changes": "number"}, "after eight PyTorch gives up"),
        ({"changes": "shapes"}, "From the second shape on the code is for any shape."),
        ({"way": "graph"}, "Nothing is gained. A CPU has no CUDA graphs."),
        ({"kernel": 200}, "Only launches are saved: long kernels stay as they are."),
    ):
        assert words in model("inWords", {**opens, **changes})
    captured = model("inWords", {**gpu, "way": "graph", "changes": "shapes"})
    assert "each new one is captured anew" in captured
    assert "never paid. The GPU is busy" in model("inWords", {**gpu, "kernel": 100})
    repeated = model("inWords", {**gpu, "way": "graph", "changes": "number"})
    assert "A graph would repeat the old number" in repeated
    assert model("inTime", 1e-6 * 120) == "120 µs" and model("inTime", 7200) == "2 h"
