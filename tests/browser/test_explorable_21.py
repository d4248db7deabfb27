"""Notebook 21's moving picture: its norms against torch's, its requests and its question."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from playwright.sync_api import Browser, Page
from torch import Tensor, nn
from torch.nn import functional as F

from .test_explorables import Model, Moving

pytestmark = pytest.mark.browser

CHANNELS, SIDE, GROUP = 8, 4, 4


def batch(x: Tensor, kept: Tensor) -> Tensor:
    return nn.BatchNorm2d(CHANNELS).double()(x)


def batch_eval(x: Tensor, kept: Tensor) -> Tensor:
    over = (0, 2, 3)
    return F.batch_norm(x, kept.mean(over), kept.var(over, correction=0))


def channels_last(norm: nn.Module, x: Tensor) -> Tensor:
    """A norm over the channels of each pixel."""
    return norm.double()(x.movedim(1, -1)).movedim(-1, 1)


# Torch's layers, by the names of the picture; x is (N, C, H, W), `kept` the batch without a spot.
NORMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "batch": batch,
    "eval": batch_eval,
    "layer": lambda x, kept: nn.GroupNorm(1, CHANNELS).double()(x),
    "group": lambda x, kept: nn.GroupNorm(CHANNELS // GROUP, CHANNELS).double()(x),
    "instance": lambda x, kept: nn.InstanceNorm2d(CHANNELS).double()(x),
    "position": lambda x, kept: channels_last(nn.LayerNorm(CHANNELS), x),
    "rms": lambda x, kept: channels_last(nn.RMSNorm(CHANNELS, eps=1e-5), x),
}


@pytest.fixture(scope="module")
def model(blank: Page) -> Model:
    return Model(blank, "whose_mean")


def state(**changes: Any) -> dict[str, Any]:
    return {"norm": "layer", "images": 4, "place": 2, "bright": 0, "request": "free"} | changes


def shaped(values: list[float]) -> Tensor:
    """Numbers of the picture as images: (N, C, H, W)."""
    return torch.tensor(values, dtype=torch.float64).view(-1, CHANNELS, SIDE, SIDE)


@pytest.mark.parametrize("norm", NORMS)
def test_the_norms_are_those_of_torch(model: Model, norm: str) -> None:
    for images, bright, place in product((1, 2, 4, 8), (0, 0.5, 4), (2, 7)):
        now = state(norm=norm, images=images, bright=bright, place=place)
        x, kept = (shaped(model("inputs", each)) for each in (now, now | {"bright": 0}))
        # The spot: four pixels of one channel.
        assert (x - kept).count_nonzero() == (4 if bright else 0)
        wanted, before = (NORMS[norm](each, kept).detach() for each in (x, kept))
        torch.testing.assert_close(shaped(model("outputs", now)), wanted)
        torch.testing.assert_close(shaped(model("changes", now)), (wanted - before).abs())


def test_who_shares_a_mean_is_who_moves_it(model: Model) -> None:
    """By torch's gradient: a spot's output depends on the cells that share a mean with it."""
    for norm, images in product(set(NORMS) - {"eval"}, (1, 3, 8)):
        now = state(norm=norm, images=images)
        x = shaped(model("inputs", now)).requires_grad_()
        spot = model("spot", now)
        # Of the weights 1, 2, 3 ... no sum of gradients vanishes.
        weights = torch.arange(1.0, 1 + len(spot), dtype=torch.float64)
        (NORMS[norm](x, x.detach()).flatten()[spot] * weights).sum().backward()
        assert x.grad is not None
        moved = x.grad.flatten().abs() > 1e-9
        assert model("mates", now) == moved.nonzero().flatten().tolist()


def test_what_each_norm_lets_through(model: Model) -> None:
    """The figures of the picture at four images: all that change, and those in other images."""
    found = {}
    for norm in NORMS:
        reached = model("reached", state(norm=norm, bright=4))
        found[norm] = len(reached["changed"]), len(reached["others"])
    assert found == {
        "batch": (64, 48),
        "eval": (4, 0),
        "layer": (128, 0),
        "group": (64, 0),
        "instance": (16, 0),
        "position": (32, 0),
        "rms": (32, 0),
    }
    assert model("reached", state())["changed"] == []


def test_the_question_has_one_answer_at_first(model: Model) -> None:
    assert model.value("OPENS") == state()
    assert model("answer", state()) == ["batch"]
    assert model("answer", state(images=1)) == ["none"]


def test_each_request_can_be_met_and_missed(model: Model) -> None:
    own_image = {"layer", "group", "instance", "position", "rms"}
    wanted = {
        "quiet": own_image,
        "bright": {"batch", "eval", "rms"},
        "even": {"instance"},
        "alone": {"position", "rms"},
        "kept": {"eval"},
    }
    for images in (1, 4):
        for request, norms in wanted.items():
            met = {
                norm for norm in NORMS if model("meets", request, state(norm=norm, images=images))
            }
            assert met == norms, request


def test_the_spot_moves_and_requests_are_counted(browser: Browser) -> None:
    from course.explorables import WhoseMean, alive

    page = browser.new_page(viewport={"width": 1000, "height": 900})
    page.set_content(f"<body>{alive(WhoseMean)}</body>")
    moving = Moving(page, page.locator(".course-explorable"))
    grip = moving.root.locator(".xp-grip")
    try:
        moving.press(grip, "ArrowDown")
        assert grip.get_attribute("aria-valuetext") == "image 2, channel 3"
        moving.press(grip, "ArrowRight")
        assert grip.get_attribute("aria-valuetext") == "image 2, channel 4"
        bright = moving.slider("bright")
        moving.press(bright, "End")
        assert "128 outputs, all in its own image." in moving.result()
        moving.root.locator(".xp-menu.xp-norm").select_option("batch")
        page.wait_for_timeout(50)
        assert "also in images 1, 3 and 4." in moving.result()
        menu = moving.root.locator(".xp-menu.xp-request")
        menu.select_option("quiet")
        page.wait_for_timeout(50)
        assert "Batch norm ✗ does not. 0 of 5 requests met." in moving.result()
        moving.root.locator(".xp-menu.xp-norm").select_option("layer")
        page.wait_for_timeout(50)
        assert "Layer norm ✓ does it. 1 of 5 requests met." in moving.result()
    finally:
        page.close()


def test_a_bet_and_the_requests_are_about_several_images(browser: Browser) -> None:
    from course.explorables import WhoseMean, alive

    page = browser.new_page(viewport={"width": 1000, "height": 900}, reduced_motion="reduce")
    page.set_content(f"<body>{alive(WhoseMean)}</body>")
    moving = Moving(page, page.locator(".course-explorable"))
    try:
        # Alone an image shares no mean: the question stays what it was.
        moving.press(moving.slider("images"), "Home")
        [right] = [node for node in moving.wagers() if node.inner_text() == "batch norm"]
        moving.press(right, "Enter")
        assert "Your bet, batch norm, is right." in moving.result()
        menu = moving.root.locator(".xp-menu.xp-request")
        for request in ("quiet", "bright", "even", "alone", "kept"):
            menu.select_option(request)
            page.wait_for_timeout(50)
            assert "✗ does not. 0 of 5 requests met." in moving.result()
        moving.press(moving.slider("images"), "Home")
        assert "✗ does not, asked of two images." in moving.result()
    finally:
        page.close()
