"""Notebook 05's moving picture: its steps, times and best batch against Python's, its question."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest
from playwright.sync_api import Page

from .test_explorables import Model

pytestmark = pytest.mark.browser

LAG = {"linear": 0.0, "root": 0.15, "stays": 0.5}
FIXED, NOISE = (10, 230, 920, 3000), (100, 1050, 10_500)
NO_WALL = 2**17


@pytest.fixture(scope="module")
def model(blank: Page) -> Model:
    return Model(blank, "area_of_training")


def area(batch: float, fixed: float, noise: float, rate: str = "linear") -> float:
    """Milliseconds to the target."""
    steps = 68 * (1 + noise / batch) * max(1.0, (batch / 64) ** LAG[rate])
    return steps * 0.00125 * (fixed + batch)


def state(model: Model, **changes: Any) -> dict[str, Any]:
    return {**model.value("OPENS"), **changes}


def test_the_area_is_steps_times_the_time_of_a_step(model: Model) -> None:
    batches = model.value("BATCHES")
    assert batches[0] == 8 and batches[-1] == 65536 and {64, 512, 4096} <= set(batches)
    for batch, rate in product(batches[::4], LAG):
        now = state(model, batch=batch, rate=rate)
        assert model("area", now) == pytest.approx(area(batch, 230, 1050, rate))
        assert model("area", now) == pytest.approx(model("stepsOf", now) * model("stepTime", now))


def test_the_figures_are_those_of_the_recorded_race(model: Model) -> None:
    """Median steps and milliseconds of a step, Intel Xeon, two cores."""
    recorded = {
        (64, "linear"): (1128, 0.370),
        (512, "linear"): (222, 1.05),
        (512, "stays"): (642, 1.05),
        (512, "root"): (300, 1.05),
        (4096, "linear"): (84, 5.40),
    }
    for (batch, rate), (steps, pace) in recorded.items():
        now = state(model, batch=batch, rate=rate)
        assert model("stepsOf", now) == pytest.approx(steps, rel=0.1)
        assert model("stepTime", now) == pytest.approx(pace, rel=0.15)


def test_the_best_batch_is_the_root_of_fixed_cost_and_noise(model: Model) -> None:
    for fixed, noise in product(FIXED, NOISE):
        found = model("best", state(model, fixed=fixed, noise=noise))
        assert found == pytest.approx(math.sqrt(fixed * noise), rel=0.02)
    assert model.value("BEFORE") == pytest.approx(math.sqrt(230 * 1050), rel=0.01)


@pytest.mark.parametrize("rate", LAG)
def test_no_batch_that_fits_has_a_smaller_area_than_the_best(model: Model, rate: str) -> None:
    for wall, fixed in product((256, NO_WALL), FIXED):
        found = model("best", state(model, rate=rate, wall=wall, fixed=fixed))
        least = min(area(8 * 1.03**i, fixed, 1050, rate) for i in range(305) if 8 * 1.03**i <= wall)
        assert found <= wall
        assert area(found, fixed, 1050, rate) <= 1.001 * least


def test_four_times_the_fixed_cost_wants_twice_the_batch(model: Model) -> None:
    for fixed, noise in product(FIXED, NOISE):
        assert model("answer", state(model, fixed=fixed, noise=noise)) == [2]
    # What memory does not hold cannot grow.
    assert model("answer", state(model, wall=256)) == [1]


def test_the_way_leads_to_the_best_batch(model: Model) -> None:
    best = math.sqrt(230 * 1050)
    for batch in model.value("BATCHES"):
        if abs(math.log(batch / best)) > 0.13:
            assert model("way", state(model, batch=batch)) == (batch < best) - (batch > best)
    assert model("way", state(model, batch=model.value("BEFORE"))) == 0
