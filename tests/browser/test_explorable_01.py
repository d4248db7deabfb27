"""Notebook 01's moving picture: its cache against Python's, and its question."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from playwright.sync_api import Page

from .test_explorables import Model

pytestmark = pytest.mark.browser

N = 16
Product = tuple[int, int, int]


@pytest.fixture(scope="module")
def model(blank: Page) -> Model:
    return Model(blank, "cache_walk")


def walk(order: str, tile: int) -> Iterator[Product]:
    """The products (i, j, k) of A[i, j] += B[i, k] * C[k, j]."""
    every = range(N)
    if order == "element":
        yield from product(every, every, every)
    elif order == "column":
        yield from ((i, j, k) for j in every for i in every for k in every)
    elif order == "row":
        yield from ((i, j, k) for i in every for k in every for j in every)
    else:
        firsts = range(0, N, tile)
        for corner in product(firsts, firsts, firsts):
            yield from product(*(range(first, min(N, first + tile)) for first in corner))


def touched(products: list[Product], stored: str) -> Iterator[tuple[str, int, int]]:
    """The lines of 8 numbers; a sum goes to A when the next product is of another element."""
    for number, (i, j, k) in enumerate(products):
        yield "B", i, k // 8
        yield ("C", j, k // 8) if stored == "columns" else ("C", k, j // 8)
        if number + 1 == len(products) or products[number + 1][:2] != (i, j):
            yield "A", i, j // 8


def cache(order: str, tile: int = 4, lines: int = 16, stored: str = "rows") -> tuple[int, list]:
    """Lines fetched, and those that the cache holds at the end, the newest first."""
    held: OrderedDict[tuple[str, int, int], None] = OrderedDict()
    fetched = 0
    for line in touched(list(walk(order, tile)), stored):
        if line in held:
            held.move_to_end(line)
            continue
        fetched += 1
        held[line] = None
        if len(held) > lines:
            held.popitem(last=False)
    return fetched, [" ".join(map(str, line)) for line in reversed(held)]


def state(model: Model, **changes: Any) -> dict[str, Any]:
    return {**model.value("OPENS"), **changes}


@pytest.mark.parametrize("stored", ["rows", "columns"])
@pytest.mark.parametrize("order", ["element", "column", "row", "tiles"])
def test_the_lines_are_those_of_a_cache_that_drops_the_oldest(
    model: Model, order: str, stored: str
) -> None:
    tiles = (1, 3, 4, 8, 11, 16) if order == "tiles" else (4,)
    for tile, lines in product(tiles, (4, 16, 24, 64)):
        found = model("fetches", state(model, order=order, tile=tile, lines=lines, stored=stored))
        fetched, held = cache(order, tile, lines, stored)
        assert (found["lines"], found["tray"]) == (fetched, held), (tile, lines)


def test_the_figures_of_the_text(model: Model) -> None:
    for order, lines in (("element", 4384), ("column", 4864), ("row", 576)):
        assert model("fetches", state(model, order=order))["lines"] == lines
    for tile, lines in ((4, 416), (6, 708), (8, 192), (16, 4384)):
        assert model("fetches", state(model, order="tiles", tile=tile))["lines"] == lines
    # Stored by columns, element is the good order and row the bad one.
    for order, lines in (("element", 576), ("row", 4160)):
        assert model("fetches", state(model, order=order, stored="columns"))["lines"] == lines


def test_a_walk_in_part_is_its_beginning(model: Model) -> None:
    opens = state(model)
    assert model("fetches", opens, 0) == {"lines": 0, "last": [], "tray": []}
    first = model("fetches", opens, 1)
    assert [each["matrix"] for each in first["last"]] == ["B", "C"]
    assert first["lines"] == 2 and not any(each["hit"] for each in first["last"])
    second = model("fetches", opens, 2)
    # B's next number lies in the same line, C's in another row.
    assert [each["hit"] for each in second["last"]] == [True, False]
    ends = model("fetches", opens, 4)["last"]
    assert [each["matrix"] for each in ends] == ["B", "C", "A"]
    so_far = [model("fetches", opens, count)["lines"] for count in range(0, 4097, 512)]
    assert so_far == sorted(so_far) and so_far[-1] == 416


def test_time_is_that_of_the_book_s_figures(model: Model) -> None:
    assert model("seconds", 4096, 192) == pytest.approx([32.8e-9, 122.9e-9], rel=1e-3)


def test_the_best_tile_depends_on_the_tray_alone(model: Model) -> None:
    assert model("answer", state(model)) == [8]
    # Whatever was looked at before.
    assert model("answer", state(model, order="row", tile=16, step=0)) == [8]
    assert model("answer", state(model, lines=8)) == [4]
    # All of the matrices have room: no tile fetches a line twice, unless it cuts lines.
    assert model("answer", state(model, lines=64)) == [2, 4, 16]
