"""20's moving picture: its model against Python's. `course new` begins a lab with this file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from .test_explorables import Model

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def model(browser: Browser) -> Iterator[Model]:
    page = browser.new_page()
    yield Model(page, "validation_without_grad")
    page.close()


@pytest.mark.parametrize("fixed", [0, 1, 20])
def test_a_step_takes_its_calls_and_its_work(model: Model, fixed: int) -> None:
    for rows in model.value("ROWS"):
        state = {**model.value("OPENS"), "rows": rows, "fixed": fixed}
        parts = model("account", state)
        assert parts["calls"] == pytest.approx(fixed * 64 / rows)
        assert parts["work"] == pytest.approx(64 * state["work"])
