"""Results as HTML: whole, nothing unescaped, and no scripts; and the blocks that they are of."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
import torch

from labkit import show
from labkit.counters import count
from labkit.racing import RaceResult, RaceRun
from labkit.results import Comparison, Measurement
from labkit.show import Markup
from labkit.sweep import Sweep

EVIL = "<script>alert('x')</script> & \"quotes\""


class Reader(HTMLParser):
    """The text of some HTML, its tags, and whether every tag is closed where it should be."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.widths: list[float] = []
        self.words = ""
        self.feed(source)
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.tags.append(tag)
        found = re.search(r"width:([\d.]+)%", dict(attributes).get("style") or "")
        if found:
            self.widths.append(float(found[1]))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words += f"{data} "


def side(label: str, seconds: float, **others: Any) -> Measurement:
    times = tuple(seconds * (1 + 0.001 * (number % 3)) for number in range(30))
    return Measurement(label, times=times, **others)


def comparison(ratio: float = 2.0, **settings: Any) -> Comparison:
    before = {"amp": False, "size": 8} | settings
    return Comparison(
        side("baseline", 0.01, settings=before, peak_bytes=2**20, samples=8),
        side(
            "amp=True", 0.01 / ratio, settings=before | {"amp": True}, peak_bytes=2**19, samples=8
        ),
        seconds=1.5,
    )


RACE = RaceResult(
    (
        RaceRun("sgd", 0, ((1, 0.5, 0.2), (2, 1.0, 0.9)), True),
        RaceRun(EVIL, 0, ((1, 0.25, 0.2), (2, 0.5, 0.9)), True),
        RaceRun("late", 0, ((1, 0.5, 0.2), (2, 1.0, 0.3)), False, "out of memory"),
    ),
    0.8,
    "accuracy",
    True,
)


@pytest.mark.parametrize(
    "result",
    [
        comparison(),
        replace(comparison(), candidate=side(EVIL, 0.01, settings={"amp": EVIL})),
        Comparison(side("baseline", 0.01), Measurement("candidate", error="out of memory")),
        Comparison(Measurement("a"), Measurement("b"), stopped=True),
        Sweep("size", (comparison(size=8), comparison(0.5, size=EVIL))),
        Sweep("size"),
        RACE,
        RaceResult((), 0.8, "accuracy", True, stopped=True),
        side(EVIL, 0.01),
        Measurement("nothing"),
        count(lambda: torch.ones(2, 2) @ torch.ones(2, 2)),
    ],
)
def test_every_result_is_whole_html_without_scripts(result: Any) -> None:
    read = Reader(result._repr_html_())
    assert read.words.strip()
    assert not {"script", "img", "link"} & set(read.tags)
    assert all(0 <= width <= 100 for width in read.widths)
    assert " arm" not in read.words


def test_what_stands_behind_a_result_is_folded() -> None:
    result = comparison()
    folded = result._repr_html_().split("<details>")[1]
    words = Reader(f"<details>{folded.removesuffix('</div>')}").words
    assert words.startswith("How sure?")
    for line in result.details:
        assert line in words
    for cell in (cell for row in result.rows for cell in row):
        assert cell in words
    before = Reader(result._repr_html_().split("<details>")[0] + "</div>").words
    assert before.count("2.00×") == 1 and "interval" not in before


def test_blocks_escape_all_but_markup() -> None:
    assert EVIL not in show.table([[EVIL, EVIL], [EVIL, EVIL]])
    assert show.element("p", EVIL, title=EVIL).count("<") == 2
    assert show.join([Markup("<b>x</b>"), "<"], " < ") == "<b>x</b> &lt; &lt;"
    assert show.table([]) == ""


def test_a_result_is_a_plain_text() -> None:
    """What marimo shows is of that very type."""
    page = show.result(show.sentence("1 < 2"))
    assert type(page) is str and "1 &lt; 2" in page
