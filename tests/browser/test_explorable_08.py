"""Notebook 08's moving picture: three optimizers against torch's, and its question."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from playwright.sync_api import Browser, Page

from .test_explorables import Model, Moving

pytestmark = pytest.mark.browser

STEPS, GOAL = 300, 0.5
MAKE: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "momentum": lambda given, lr: torch.optim.SGD(given, lr=lr, momentum=0.9),
    "adam": torch.optim.Adam,
}


@pytest.fixture(scope="module")
def model(blank: Page) -> Model:
    return Model(blank, "turn_the_ravine")


def state(**changes: Any) -> dict[str, Any]:
    return {"angle": 0, "steep": 300, "size": 1, "rate": 0, "clock": STEPS} | changes


def turn(angle: float) -> torch.Tensor:
    radians = torch.tensor(math.radians(angle), dtype=torch.float64)
    c, s = radians.cos(), radians.sin()
    return torch.stack([torch.stack([c, -s]), torch.stack([s, c])])


def walk(rule: str, rate: float, *, angle: float, steep: float, size: float) -> torch.Tensor:
    """Weights before the first step and after each one, by torch: (301, 2)."""
    curvature = torch.tensor([1 / steep, 1], dtype=torch.float64) * size
    form = turn(angle) @ curvature.diag() @ turn(angle).T
    weights = (turn(angle) @ torch.tensor([-8, 2.5], dtype=torch.float64)).requires_grad_()
    optimizer = MAKE[rule]([weights], lr=rate)
    places = [weights.detach().clone()]
    for _ in range(STEPS):
        optimizer.zero_grad()
        (weights @ form @ weights / 2).backward()
        optimizer.step()
        places.append(weights.detach().clone())
    return torch.stack(places)


def arrival(places: torch.Tensor) -> float:
    """The first step from which on all places lie in the goal."""
    near = places.norm(dim=1) <= GOAL
    return next((step for step in range(STEPS + 1) if near[step:].all()), math.inf)


@pytest.mark.parametrize("rule", MAKE)
def test_steps_are_those_of_torch(model: Model, rule: str) -> None:
    arrived = set()
    for angle, steep, size in product((0, 17, 45), (10, 300), (0.1, 1)):
        for rate in (0.03, 0.3, 1.5):
            ravine = {"angle": angle, "steep": steep, "size": size}
            # A mean of squares that is large for good: rounding aside, both are the same.
            expected = walk(rule, rate, **ravine)
            found = model("walk", rule, rate, state(**ravine))
            assert torch.tensor(found, dtype=torch.float64).allclose(expected[: len(found)])
            assert model("arrival", found) == pytest.approx(arrival(expected))
            arrived.add(arrival(expected) < math.inf)
    assert arrived == {True, False}


def test_a_walk_that_is_lost_ends(model: Model) -> None:
    places = model("walk", "sgd", 3, state())
    assert len(places) < 50 and math.hypot(*places[-1]) > 1e4
    assert model("arrival", places) == math.inf


@pytest.mark.parametrize(("rule", "angle"), [*product(MAKE, (0, 30))])
def test_the_best_rate_is_the_best_of_161(model: Model, rule: str, angle: int) -> None:
    rates = model.value("RATES")
    assert (len(rates), rates[0], rates[-1]) == (161, pytest.approx(1e-6), pytest.approx(1e4))
    now = state(angle=angle, steep=100)
    found = {rate: model("arrival", model("walk", rule, rate, now)) for rate in rates}
    best = model("tuned", rule, now)
    assert found[best] == min(found.values()) == model("needed", rule, now) < math.inf


def test_turning_changes_adam_only(model: Model) -> None:
    """The figures of the notebook's text."""
    needed = {
        (rule, angle): model("needed", rule, state(angle=angle))
        for rule, angle in product(MAKE, (0, 10, 20, 45))
    }
    assert {each for (rule, _), each in needed.items() if rule == "sgd"} == {math.inf}
    assert {each for (rule, _), each in needed.items() if rule == "momentum"} == {40}
    assert [needed["adam", angle] for angle in (0, 10, 20, 45)] == [38, 37, 64, 109]
    # In a ravine that is hardly one all arrive, turned or not.
    assert all(model("needed", r, state(angle=a, steep=30)) < 50 for r in MAKE for a in (0, 45))


def test_only_adam_keeps_its_rate_where_the_loss_is_larger(model: Model) -> None:
    for rule in MAKE:
        small, large = (model("tuned", rule, state(size=size)) for size in (1, 100))
        ratio = 1 if rule == "adam" else 100
        assert small / large == pytest.approx(ratio)


def test_the_question_has_one_answer_at_first(model: Model) -> None:
    opens = model.value("OPENS")
    assert opens == state()
    assert model("answer", opens) == ["adam"]
    assert model("answer", state(steep=30)) == ["none"]


def test_the_ravine_turns_with_its_start_and_keeps_what_was_seen(browser: Browser) -> None:
    from course.explorables import TurnTheRavine, alive

    page = browser.new_page(viewport={"width": 1000, "height": 900})
    page.set_content(f"<body>{alive(TurnTheRavine)}</body>")
    moving = Moving(page, page.locator(".course-explorable"))
    grip = moving.root.locator(".xp-grip")
    try:
        dots = moving.root.locator("svg circle")
        before = dots.count()
        for _ in range(3):
            moving.press(grip, "ArrowRight")
        assert moving.result().startswith("At 3°: SGD never, momentum 40 steps, Adam ")
        # Three for each angle.
        assert dots.count() == before + 9
        moving.press(grip, "End")
        assert "Adam 109 steps. At 0°: Adam 38 steps. Adam scales weight by weight" in (
            moving.result()
        )
        # Half of the way back, with the mouse.
        box = moving.root.locator("svg").bounding_box()
        at = grip.bounding_box()
        assert box and at
        page.mouse.move(at["x"] + at["width"] / 2, at["y"] + at["height"] / 2)
        page.mouse.down()
        page.mouse.move(box["x"] + 40, box["y"] + 0.45 * box["height"], steps=4)
        page.mouse.up()
        turned = int(grip.get_attribute("aria-valuenow") or -1)
        assert 5 < turned < 40
    finally:
        page.close()
