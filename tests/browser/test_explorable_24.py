"""24's moving picture: a softmax in tiles against torch's, and the game against all tiles."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import permutations, product
from typing import Any

import pytest
import torch
from playwright.sync_api import Browser

from course.explorables import RunningSoftmax, alive

from .test_explorables import Model, Moving

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def model(browser: Browser) -> Iterator[Model]:
    page = browser.new_page()
    yield Model(page, "running_softmax")
    page.close()


def row(model: Model, state: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores and values of the visited tiles, in their order."""
    scores = state["level"] + torch.tensor(model.value("SCORES"), dtype=torch.float64)
    scores[29] = state["level"] + state["late"]
    tiles = torch.arange(model.value("LENGTH")).split(state["columns"])
    seen = torch.cat([tiles[tile] for tile in state["order"][: state["seen"]]])
    return scores[seen], torch.tensor(model.value("VALUES"), dtype=torch.float64)[seen]


def states(model: Model) -> Iterator[dict[str, Any]]:
    opens = model.value("OPENS")
    for level, late, columns in product((0, 60, 100), (-4, 4, 8), (1, 4, 32)):
        tiles = 32 // columns
        for order in ([*range(tiles)], [*range(tiles)][::-1]):
            for seen in {1, tiles // 2 or 1, tiles}:
                changed = {"level": level, "late": late, "columns": columns}
                yield {**opens, **changed, "order": order, "seen": seen}


def test_with_all_three_the_result_is_the_softmax_s(model: Model) -> None:
    for state in states(model):
        scores, values = row(model, state)
        exact = (scores.softmax(0) * values).sum().item()
        assert model("truth", state) == pytest.approx(exact, abs=1e-9)
        three = {**state, "keep": "maximum"}
        assert model("result", three) == pytest.approx(exact, abs=1e-5)
        found = model("collected", three)
        assert found["maximum"] == pytest.approx(scores.max().item())
        total = (scores - scores.max()).exp().sum().item()
        assert found["total"] == pytest.approx(total, rel=1e-5)
        assert model("isRight", three) and model("isRight", {**state, "keep": "scores"})


def test_without_the_maximum_large_scores_overflow_as_in_torch(model: Model) -> None:
    for state in states(model):
        scores, values = row(model, state)
        weights = scores.float().exp()
        found = model("collected", {**state, "keep": "sum"})
        if math.isinf(weights.sum().item()):
            # JSON has no inf.
            assert found["total"] in (None, math.inf)
            assert not model("isRight", {**state, "keep": "sum"})
        else:
            assert found["total"] == pytest.approx(weights.sum().item(), rel=1e-5)
            exact = (weights.double() * values).sum() / weights.double().sum()
            assert model("result", {**state, "keep": "sum"}) == pytest.approx(
                exact.item(), abs=1e-4
            )
        assert not model("isRight", {**state, "keep": "output"})


def test_the_order_of_the_tiles_does_not_matter(model: Model) -> None:
    opens = {**model.value("OPENS"), "columns": 8, "seen": 4, "keep": "maximum"}
    found = [model("result", {**opens, "order": order}) for order in permutations(range(4))]
    assert found == pytest.approx([found[0]] * 24, abs=1e-6)


def test_a_late_maximum_shrinks_what_was_collected(model: Model) -> None:
    opens = {**model.value("OPENS"), "seen": 8, "keep": "maximum"}
    scores = torch.tensor(model.value("SCORES"))
    for late in (4, 8):
        (*_, last) = model("collected", {**opens, "late": late})["shrunk"]
        before = scores[:28].max().item()
        assert last["tile"] == 7 and last["factor"] == pytest.approx(
            math.exp(before - late), rel=1e-4
        )
    low = model("collected", {**opens, "late": -4})["shrunk"]
    assert all(0 < each["factor"] < 1 and each["tile"] < 7 for each in low)


def test_the_least_depends_on_the_scores(model: Model) -> None:
    opens = model.value("OPENS")
    assert model("answer", opens) == ["maximum"]
    assert model("answer", {**opens, "level": 0}) == ["sum"]
    assert next(iter(model.value("KEEPS"))) == opens["keep"] == "output"


def counted(rows: int, columns: int) -> tuple[int, int]:
    """Numbers that are moved, and those in fast memory, tile by tile."""
    length, width, moved = 32, 8, 0
    for _ in range(0, length, rows):
        moved += 2 * rows * width
        for _ in range(0, length, columns):
            moved += 2 * columns * width
    queries_and_outputs, keys_and_values = 2 * rows * width, 2 * columns * width
    return moved, queries_and_outputs + keys_and_values + rows * columns + 2 * rows


def test_the_game_is_counted_right(model: Model) -> None:
    assert (model.value("LENGTH"), model.value("WIDTH")) == (32, 8)
    goals, sides = model("goals"), model.value("SIDES")
    fitting, squares = [], []
    for rows, columns in product(sides, sides):
        moved, need = counted(rows, columns)
        state = {**model.value("OPENS"), "rows": rows, "columns": columns}
        assert model("moved", rows) == moved and model("need", rows, columns) == need
        assert model("fits", state) == (need <= model.value("ROOM"))
        if need <= model.value("ROOM"):
            fitting.append(moved)
            squares += [moved] if rows == columns else []
    assert goals == {
        "table": 4 * 32 * 8 + 4 * 32 * 32,
        "square": min(squares),
        "best": min(fitting),
    }
    assert goals["best"] < goals["square"] < goals["table"]
    opens = model.value("OPENS")
    prizes = [
        model("medal", {**opens, "rows": rows, "columns": columns})
        for rows, columns in ((2, 4), (4, 4), (8, 8), (16, 1), (32, 32))
    ]
    assert prizes == ["", "bronze", "silver", "gold", ""]


def test_tiles_are_visited_by_click_and_by_key_and_gold_can_be_won(browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 1000, "height": 900})
    try:
        page.set_content(alive(RunningSoftmax))
        moving = Moving(page, page.locator(".course-explorable"))
        moving.root.get_by_label("tile 3", exact=True).click()
        page.wait_for_timeout(100)
        assert "nobody knows by what to divide" in moving.result()
        moving.root.locator(".xp-keep").first.select_option("maximum")
        page.wait_for_timeout(100)
        assert "as without tiles" in moving.result() and "To beat: 5,120" in moving.result()
        tile = moving.root.get_by_label("tile 3", exact=True)
        moving.press(tile, "ArrowRight")
        label = page.evaluate("document.activeElement.getAttribute('aria-label')")
        assert label == "tile 4"
        moving.press(moving.root.get_by_label("tile 8", exact=True), "Enter")
        assert "Step 2 brought a larger maximum" in moving.result()
        moving.press(moving.root.locator("input.xp-columns"), "Home")
        for _ in range(3):
            moving.press(moving.root.locator("input.xp-rows"), "ArrowRight")
        assert "★ Gold: 1,536 numbers moved" in moving.result()
        moving.press(moving.root.locator("input.xp-rows"), "ArrowRight")
        assert "no room for this tile" in moving.result()
    finally:
        page.close()
