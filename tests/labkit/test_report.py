"""Results as HTML: the figures of the text, one sentence, nothing unescaped, and no scripts."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
import torch
from labkit.report import sweep_sentence

from labkit import show
from labkit.counters import count
from labkit.memory import MemoryMeter
from labkit.racing import RaceResult, RaceRun
from labkit.results import Comparison, Measurement
from labkit.show import Bar, Markup, Ratio
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
        MemoryMeter("cpu"),
        count(lambda: torch.ones(2, 2) @ torch.ones(2, 2)),
    ],
)
def test_every_result_is_whole_html_without_scripts(result: Any) -> None:
    read = Reader(result._repr_html_())
    assert read.words.strip()
    assert not {"script", "img", "link"} & set(read.tags)
    assert all(0 <= width <= 100 for width in read.widths)
    assert " arm" not in read.words


def test_a_comparison_has_its_sentence_and_the_figures_of_its_text() -> None:
    result = comparison()
    words = Reader(result._repr_html_()).words
    assert (
        "The candidate is 2.00 times as fast as the baseline "
        "(95 % interval 1.98 to 2.02; 30 pairs, one build)."
    ) in words
    assert words.count("faster") == 1
    for figure in ("10.0 ms", "5.00 ms", "1.60 k samples/s", "512 KiB", "amp=True", "size=8"):
        assert figure in words
    for line in str(result).splitlines()[1:6]:
        for cell in re.split(r"  +", line):
            assert cell in words


def test_other_amounts_in_a_step_are_compared_by_their_throughput() -> None:
    larger = replace(comparison(), candidate=side("size=16", 0.01, samples=16))
    words = Reader(larger._repr_html_()).words
    assert "for the same number of samples" in words
    assert "longer is better" in words
    assert "Time of a step" not in words


def test_a_side_that_ended_is_said_in_words() -> None:
    failed = Comparison(side("baseline", 0.01), Measurement("candidate", error="out of memory"))
    words = Reader(failed._repr_html_()).words
    assert "The candidate ended by out of memory" in words
    assert "nan" not in words


def test_a_sweep_is_a_sequence_with_one_line_a_value() -> None:
    results = (comparison(size=8), comparison(0.5, size=64), comparison(2.5, size=256))
    sweep = Sweep("size", results)
    assert len(sweep) == 3
    assert list(sweep) == list(results)
    assert sweep[1] is results[1]
    assert sweep[1:] == Sweep("size", results[1:])
    assert sweep.values == (8, 64, 256)
    words = Reader(sweep._repr_html_()).words
    assert "Sweep of size: faster at 8, 256; slower at 64." in words
    assert "0.500x" in words
    assert str(results[2]) in str(sweep)


def test_a_race_tells_who_was_faster_and_who_did_not_arrive() -> None:
    words = Reader(RACE._repr_html_()).words
    assert "is 2.00 times as fast as sgd" in words
    assert "late reached it in 0 of 1 seeds, sgd in 1 of 1" in words
    assert "0 of 1 seeds (out of memory)" in words
    assert "0 of 1 against 1 of 1 seeds" in words
    assert "nan" not in words and "inf" not in words.replace("interval", "")


def test_a_race_in_which_some_arrived_counts_them() -> None:
    """A factor of infinity would say nothing."""
    runs = []
    for name, times in (("sgd", (1.0, math.inf)), ("adam", (1.0, 1.0))):
        for seed, seconds in enumerate(times):
            reached = seconds < math.inf
            runs.append(RaceRun(name, seed, ((10, 1.0, 0.5),), reached))
    race = RaceResult(tuple(runs), 0.5, "accuracy", True)
    for words in (Reader(race._repr_html_()).words, str(race)):
        assert "adam reached it in 2 of 2 seeds, sgd in 1 of 2: unclear" in words.replace("  ", " ")
        assert "infx" not in words


def test_too_few_pairs_have_no_interval() -> None:
    one, other = comparison(size=8).arms
    few = Comparison(replace(one, times=one.times[:2]), replace(other, times=other.times[:2]))
    assert math.isnan(few.interval[0])
    words = Reader(few._repr_html_()).words + Reader(Sweep("size", (few,))._repr_html_()).words
    assert "2.000x" in words and "nan" not in words


def test_a_direction_is_said_where_pairs_are_too_few_for_more() -> None:
    few = comparison(0.14, size=8)
    few = Comparison(*(replace(side, times=side.times[:3]) for side in few.arms))
    words = Reader(few._repr_html_()).words
    assert "slower, size unclear" in words
    assert "too few pairs for an interval (3 pairs, one build)." in words
    assert "It is slower in all 3 pairs; by how much is not clear yet." in words
    sweep = Sweep("size", (few, comparison(size=16)))
    assert sweep_sentence(sweep) == "slower, size unclear at 8; faster at 16"
    assert "slower, size unclear" in Reader(sweep._repr_html_()).words
    four = Comparison(*(replace(side, times=side.times[:5]) for side in comparison(1.0).arms))
    assert "So few pairs decide nothing" in Reader(four._repr_html_()).words


def test_a_meter_shows_its_peak() -> None:
    with MemoryMeter("cpu") as memory:
        torch.ones(256, 1024)
    words = Reader(memory._repr_html_()).words
    assert "the block held 1.00 MiB on cpu" in words
    assert "peak 1.00 MiB" in repr(memory)


def test_bars_are_to_scale() -> None:
    rows = [Bar("a", 1.0, "one"), Bar("b", 4.0, "four", (3.0, 5.0)), Bar("c", math.inf, "never")]
    assert Reader(show.bars("title", rows)).widths == [20.0, 80.0, 40.0]


def test_a_ratio_lies_as_far_from_1_as_its_inverse() -> None:
    rows = [Ratio("a", 2.0, (2.0, 2.0), ""), Ratio("b", 0.5, (0.5, 0.5), "")]
    low, high = show.ratio_scale(rows)
    assert low == pytest.approx(-high)
    places = re.findall(r'labkit-dot" style="left:([\d.]+)%', show.ratios("title", rows))
    assert sum(map(float, places)) == pytest.approx(100)


def test_blocks_escape_all_but_markup() -> None:
    assert EVIL not in show.table([[EVIL, EVIL], [EVIL, EVIL]])
    assert show.element("p", EVIL, title=EVIL).count("<") == 2
    assert show.join([Markup("<b>x</b>"), "<"], " < ") == "<b>x</b> &lt; &lt;"
    assert show.table([]) == ""
