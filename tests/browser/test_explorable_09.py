"""Notebook 09's moving picture: addresses, lines and runs against torch's own strides."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, product
from typing import Any

import pytest
import torch
from playwright.sync_api import Browser, Page

from course.explorables import WindowOnMemory, alive

from .test_explorables import Model, Moving

pytestmark = pytest.mark.browser

FORMATS = {"first": torch.contiguous_format, "last": torch.channels_last}
SIZES = {"window": 3, "pixel": 1, "mean": 16}


@pytest.fixture(scope="module")
def model(blank: Page) -> Model:
    return Model(blank, "window_on_memory")


def states(model: Model) -> Iterator[dict[str, Any]]:
    opens = model.value("OPENS")
    # Corners, edges, a place inside, one where the window would leave the image.
    for values in product(FORMATS, (1, 2, 16, 64), SIZES, (0, 15, 102, 240, 255)):
        names = ("layout", "channels", "operation", "place")
        yield opens | dict(zip(names, values, strict=True))


def read(state: dict[str, Any]) -> list[int]:
    """Where torch has the numbers that an operation reads, each by its own address."""
    shape = (1, state["channels"], 16, 16)
    image = torch.arange(state["channels"] * 256.0).as_strided(
        shape, torch.empty(shape).to(memory_format=FORMATS[state["layout"]]).stride()
    )
    size = SIZES[state["operation"]]
    row, column = (min(16 - size, each) for each in divmod(state["place"], 16))
    part = image[0, :, row : row + size, column : column + size]
    if state["operation"] == "mean":
        part = part[state["place"] * state["channels"] // 256]
    return sorted(int(each) for each in part.flatten())


def test_it_touches_what_torch_stores_there(model: Model) -> None:
    for state in states(model):
        found, numbers = model("touched", state), read(state)
        assert found["numbers"] == numbers, state
        assert found["lines"] == sorted({number // 16 for number in numbers})
        assert found["runs"] == 1 + sum(b != a + 1 for a, b in pairwise(numbers))
        assert found["used"] == pytest.approx(len(numbers) / 16 / len(found["lines"]))


def test_the_figures_of_the_text(model: Model) -> None:
    opens = model.value("OPENS")
    window = [model("touched", {**opens, "layout": layout}) for layout in FORMATS]
    assert [(found["runs"], len(found["lines"])) for found in window] == [(48, 48), (3, 9)]
    assert [found["used"] for found in window] == [0.1875, 1]
    assert model("both", {**opens, "operation": "mean"}) == [16, 256]


def test_only_the_mean_of_a_channel_fetches_more_with_channels_last(model: Model) -> None:
    opens = model.value("OPENS")
    for channels in model.value("CHANNELS"):
        more = []
        for operation in SIZES:
            state = {**opens, "channels": channels, "operation": operation}
            first, last = (
                len({number // 16 for number in read({**state, "layout": layout})})
                for layout in FORMATS
            )
            more += [operation] if last > first else []
        assert model("answer", {**opens, "channels": channels}) == (more or ["none"])
        assert more == ([] if channels == 1 else ["mean"])


def test_arrows_move_the_window_along_rows_and_columns(browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 1000, "height": 800})
    try:
        page.set_content(alive(WindowOnMemory))
        moving = Moving(page, page.locator(".course-explorable"))
        grip = moving.root.locator(".xp-grip")
        assert grip.get_attribute("aria-valuetext") == "row 7, column 7"
        for key, place in (
            ("ArrowDown", "row 8, column 7"),
            ("ArrowLeft", "row 8, column 6"),
            ("ArrowUp", "row 7, column 6"),
            ("Home", "row 1, column 1"),
            # Above the first row there is none.
            ("ArrowUp", "row 1, column 1"),
            ("End", "row 16, column 16"),
            ("ArrowDown", "row 16, column 16"),
        ):
            moving.press(grip, key)
            assert grip.get_attribute("aria-valuetext") == place, key
        moving.root.locator(".xp-operation").select_option("mean")
        page.wait_for_function("() => document.querySelector('.xp-grip').hidden")
    finally:
        page.close()
