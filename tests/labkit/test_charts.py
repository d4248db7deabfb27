"""The pictures of results, by their XML: what is drawn, where, and in which words."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import pytest

from labkit import charts, plots, show
from labkit.charts import strips, svg
from labkit.charts.plot import Box
from labkit.memory_timeline import MemoryComparison, Timeline
from labkit.results import Comparison, Measurement, RaceResult, RaceRun
from labkit.sweep import Sweep

EVIL = "<script>alert('x')</script> & \"quotes\""


def compared(ratio: float = 2.0, pairs: int = 30, **settings: Any) -> Comparison:
    times = tuple(0.01 * (1 + 0.001 * (number % 3)) for number in range(pairs))
    before = {"amp": False} | settings
    return Comparison(
        Measurement("baseline", before, times, samples=8),
        Measurement("amp=True", before | {"amp": True}, tuple(t / ratio for t in times), samples=8),
    )


def trained(arm: str, seed: int, *metric: float, reached: bool = True) -> RaceRun:
    curve = tuple((10 * n, 0.5 * n, value) for n, value in enumerate(metric, 1))
    return RaceRun(arm, seed, curve, reached)


RUNS = (
    trained("sgd", 0, 2.0, 1.0, 0.4),
    trained("sgd", 1, 2.1, 1.1, 0.4),
    trained("adam", 0, 1.5, 0.4),
    # One that explodes, one that ends as no number, one that never arrives, one without a step.
    trained("adam", 1, 2.0, 1e6, 1e30, reached=False),
    trained("adam", 2, 1.9, math.nan, reached=False),
    trained("sgd", 2, 2.0, 1.9, 1.8, reached=False),
    trained("adam", 3, reached=False),
)
RACE = RaceResult(RUNS, 0.5, "loss", False)


def timeline(label: str, scale: int) -> Timeline:
    alive = tuple(scale * size for size in (2, 3, 5, 4, 3, 2))
    parts = ((0, "forward"), (3, "backward"), (5, "optimizer"))
    return Timeline(label, {"keep": scale}, alive, parts, 2 * scale, max(alive))


MEMORY = MemoryComparison(timeline("baseline", 2**20), timeline("keep", 2**18))
SWEEP = Sweep("size", tuple(compared(ratio, size=2**n) for n, ratio in enumerate((0.5, 1.0, 2.0))))
ENDED = Comparison(compared().baseline, Measurement("x", error="out of memory"))


def drawn(result: Any, **options: Any) -> Any:
    return result.picture(**options)


def swept(results: Any, control: str, **options: Any) -> Any:
    return Sweep(control, tuple(results)).picture(**options)


class Picture:
    """A picture that was read: its elements, by their classes."""

    def __init__(self, source: str) -> None:
        self.root = ET.fromstring(source)
        self.height = float(self.root.attrib["viewBox"].split()[3])

    def of(self, kind: str) -> list[ET.Element]:
        return [each for each in self.root.iter() if kind in each.get("class", "").split()]

    @property
    def texts(self) -> list[str]:
        return list(self.words())

    def words(self) -> Iterator[str]:
        """The texts, without what a pointer shows."""
        for each in self.root.iter():
            if each.tag.endswith("}text"):
                spans = [span for span in each if span.tag.endswith("}tspan")]
                yield (each.text or "") + "".join(span.text or "" for span in spans)

    def extents(self) -> Iterator[tuple[float, float]]:
        """Where each text begins and ends in a narrow place, where its letters are large."""
        elements = [each for each in self.root.iter() if each.tag.endswith("}text")]
        for each, words in zip(elements, self.texts, strict=True):
            wide, x = 10.9 * len(words), float(each.attrib["x"])
            part = {"start": 0.0, "middle": 0.5, "end": 1.0}[each.get("text-anchor", "start")]
            if "transform" not in each.attrib:
                yield x - part * wide, x + (1 - part) * wide

    def points(self) -> Iterator[tuple[float, float]]:
        """All corners of lines, areas and texts."""
        for each in self.root.iter():
            numbers = [float(each.get(name, 0)) for name in ("x", "y", "width", "height")]
            yield numbers[0], numbers[1]
            yield numbers[0] + numbers[2], numbers[1] + numbers[3]
            for x, y in re.findall(r"[ML]([-\d.]+) ([-\d.]+)", each.get("d", "")):
                yield float(x), float(y)


def dots(picture: Picture, kind: str = "k-dots") -> int:
    return sum(each.attrib["d"].count("M") for each in picture.of(kind))


EVERY = {
    "comparison": lambda: drawn(compared(), guess=3.0),
    "with recorded": lambda: drawn(
        compared(), recorded=[("other", compared(9.0)), ("ended", ENDED)], guess=0.001
    ),
    "few pairs": lambda: drawn(compared(0.14, 2)),
    "no pairs": lambda: drawn(compared(pairs=0)),
    "ended": lambda: drawn(ENDED),
    "sweep": lambda: swept(SWEEP, "size", recorded=[("other", SWEEP)]),
    "sweep of words": lambda: swept([compared(act=f"a long value {n}") for n in range(6)], "act"),
    "no sweep": lambda: swept((), "size"),
    "sweep that ended": lambda: swept(
        [replace(ENDED, candidate=replace(ENDED.candidate, settings={"size": 1}))], "size"
    ),
    "race": lambda: drawn(RACE, recorded=[("other", RACE)]),
    "no run": lambda: drawn(RaceResult((), 0.5, "loss", False)),
    "first run": lambda: drawn(RaceResult((), 0.5, "loss", False), going=RUNS[0]),
    "memory": lambda: drawn(MEMORY),
    "no memory": lambda: drawn(MemoryComparison(Timeline("a"), Timeline("b"))),
}


@pytest.mark.parametrize("name", EVERY)
def test_every_picture_is_whole_and_keeps_within_its_frame(name: str) -> None:
    source = EVERY[name]()
    picture = Picture(source)
    assert picture.root.get("role") == "img" and picture.root.get("aria-label")
    for x, y in picture.points():
        assert -1 <= x <= 641 and -1 <= y <= picture.height + 1, (x, y)
    for left, right in picture.extents():
        assert left >= -2 and right <= 650, (left, right)
    assert not re.search(r"\b(nan|inf)\b", re.sub("<style>.*?</style>", "", source))
    assert "<script" not in source and "href" not in source


def test_each_dot_is_a_pair_and_the_band_is_the_interval() -> None:
    result = compared()
    picture = Picture(drawn(result))
    assert dots(picture) == result.pairs == 30
    [band] = picture.of("k-band")
    [middle] = picture.of("k-middle")
    at = float(re.findall(r"M([\d.]+)", middle.attrib["d"])[0])
    left, width = float(band.attrib["x"]), float(band.attrib["width"])
    assert left < at < left + width
    assert picture.root.get("aria-label") == result.sentence
    assert any("10.0 ms" in text for text in picture.texts)
    assert "baseline amp=False" in " ".join(picture.texts)


def test_where_there_is_no_interval_none_is_drawn() -> None:
    result = compared(2.0, 1)
    assert math.isnan(result.interval[0])
    picture = Picture(drawn(result))
    assert dots(picture) == 1 and not picture.of("k-band") and not picture.of("k-floor")
    assert dots(Picture(drawn(compared(pairs=0)))) == 0


def test_of_very_many_pairs_every_so_many_are_dots() -> None:
    picture = Picture(drawn(compared(pairs=2500)))
    assert dots(picture) == 834 and "dots: one of 3 pairs of blocks" in picture.texts


def test_an_outlier_flattens_nothing() -> None:
    times = (*compared(1.1, 40).candidate.times[:-1], 1e-9)
    result = compared(1.1, 40)
    result = replace(result, candidate=replace(result.candidate, times=times))
    texts = Picture(drawn(result)).texts
    assert "1.2×" in texts and "1000×" not in texts


def test_bars_are_to_scale_and_memory_has_its_own() -> None:
    result = compared(4.0)
    times = Picture(drawn(result)).of("k-fill")
    assert len(times) == 2
    bars = Picture(drawn(result.with_peaks((2**20, None), (2**19, None))))
    one, small, other, half = (float(bar.attrib["width"]) for bar in bars.of("k-fill"))
    assert one / other == pytest.approx(4, rel=0.01) and small / half == pytest.approx(2, rel=0.01)
    assert any("10.0 ms · 1.00 MiB" in text for text in bars.texts)


def test_a_picture_keeps_its_height_from_the_first_pair_on() -> None:
    heights = set()
    for result in (compared(pairs=0), compared(pairs=1), compared(), ENDED):
        for peaks in ((None, None), (2**20, None)):
            shown = result.with_peaks(peaks, peaks)
            heights.add(Picture(drawn(shown, guess=2.0)).height)
    assert len(heights) == 1
    before = drawn(RaceResult((), 0.5, "loss", False))
    assert Picture(before).height == Picture(drawn(RACE)).height


def test_the_guess_and_recorded_machines_are_named() -> None:
    picture = Picture(drawn(compared(), recorded=[("h200", compared(3.0))], guess=1.5))
    assert "your bet 1.50×" in picture.texts and {"h200", "3.00× faster"} <= set(picture.texts)
    assert {"ended", "ended by out of memory"} <= set(Picture(EVERY["with recorded"]()).texts)


def test_a_long_name_is_cut_and_its_end_is_shown_by_a_pointer() -> None:
    name = "a machine with a name that has no room, 2026-11-20, at batch_size=512"
    picture = Picture(drawn(compared(), recorded=[(name, compared(1.2))]))
    [shown] = [text for text in picture.texts if text.startswith("a machine")]
    assert shown.endswith("…")
    titles = [each.text for each in picture.root.iter() if each.tag.endswith("}title")]
    assert any(name in (title or "") for title in titles)


def test_a_direction_colours_what_is_not_clear_yet() -> None:
    few = compared(0.14, 3)
    assert few.verdict == "unclear" and few.direction == "slower"
    assert Picture(drawn(few)).of("k-slower")


def test_a_race_draws_every_run_and_marks_how_each_ends() -> None:
    picture = Picture(drawn(RACE))
    lines = [each for each in picture.of("k-line") if "k-cross" not in each.get("class", "")]
    # A run without a step has a mark alone.
    assert len(lines) == sum(1 for run in RUNS if run.curve)
    assert dots(picture) == sum(run.reached for run in RUNS)
    assert len(picture.of("k-cross")) == sum(not run.reached for run in RUNS)
    assert len(picture.of("k-beyond")) == 2
    assert "1 of 4 arrived" in picture.texts
    assert any("2 of 3 in 1.50 s" in text for text in picture.texts)


def test_one_that_explodes_does_not_flatten_the_others() -> None:
    ticks = [
        float(text)
        for text in Picture(drawn(RACE)).texts
        if text[:1].isdigit() and text.replace(".", "").isdigit()
    ]
    assert max(ticks) <= 4


def test_a_scale_holds_curves_that_begin_far_from_one_that_begins_near() -> None:
    near = [trained("whitened", seed, 0.53, 0.5) for seed in range(5)]
    far = [trained("plain", seed, 2.0, 1.0, 0.5) for seed in range(5)]
    picture = Picture(drawn(RaceResult((*near, *far), 0.5, "loss", False)))
    assert not picture.of("k-beyond") and "2" in picture.texts


def test_names_on_a_scale_of_ratios_have_room_on_a_narrow_screen_too() -> None:
    letter = 20.0  # of a phone's, in the picture's units
    for low, high in product(strips.RUNGS, repeat=2):
        box = Box(svg.EDGE, 0, svg.WIDTH - svg.EDGE, 10, (-math.log(low), math.log(high)))
        names = re.findall(r'x="([\d.]+)"[^>]*>([\d.]+×)<', "".join(strips._ticks(box, ("", ""))))
        places = sorted((float(x), len(name)) for x, name in names)
        assert len(places) >= 2
        for (x, wide), (other, its) in pairwise(places):
            assert other - x > letter * (wide + its) / 2, (low, high, names)


def test_a_long_curve_is_thinned_and_keeps_its_end() -> None:
    run = trained("sgd", 0, *(2 - 0.001 * n for n in range(1500)))
    source = drawn(RaceResult((run,), 0.5, "loss", False))
    [line] = Picture(source).of("k-line")
    assert 60 <= line.attrib["d"].count("L") <= 120
    end = Picture(source).of("k-end")[0].attrib["d"].removeprefix("M").removesuffix("h0")
    assert line.attrib["d"].endswith(end)


def test_target_and_metric_stand_there_before_the_first_run() -> None:
    picture = Picture(drawn(RaceResult((), 0.5, "test loss", False)))
    assert "test loss" in picture.texts and "target 0.5" in picture.texts
    going = Picture(drawn(RaceResult((), 0.5, "test loss", False), going=RUNS[0]))
    assert len(going.of("k-line")) == 1 and "sgd" in going.texts


def test_the_memory_of_both_sides_is_on_one_scale_with_its_peaks_and_parts() -> None:
    picture = Picture(drawn(MEMORY))
    assert picture.texts.count("5.00 MiB") >= 2 and "1.25 MiB" in picture.texts
    for part in ("forward", "backward", "optimizer"):
        assert picture.texts.count(part) == 2
    assert dots(picture, "k-end") == 2
    left, right = (each.attrib["d"] for each in picture.of("k-dots"))
    peaks = [float(re.findall(r" ([\d.]+)h", d)[0]) for d in (left, right)]
    assert peaks[0] < peaks[1]


def test_a_sweep_has_a_strip_for_each_value_with_its_throughputs() -> None:
    picture = Picture(swept(SWEEP, "size", recorded=[("h200", SWEEP[:2])]))
    assert len(picture.of("k-band")) == len(picture.of("k-middle")) == len(SWEEP) == 3
    assert len(picture.of("k-field")) == 3
    for verdict, count in (("k-slower", 2), ("k-same", 2), ("k-faster", 2)):
        assert len(picture.of(verdict)) == count
    assert "4 799 → 1.6 k samples/s" in picture.texts and "2.00× faster" in picture.texts
    assert any("size" in text for text in picture.texts) and "h200" in picture.texts
    # A value that it has not is left out; its legend is a stroke and a name.
    assert len(picture.of("k-recorded")) == 2 + 2
    assert picture.root.get("aria-label") == SWEEP.sentence


def test_a_value_that_ended_says_so_and_has_no_mark() -> None:
    picture = Picture(EVERY["sweep that ended"]())
    assert "ended by out of memory" in picture.texts
    assert not picture.of("k-middle") and not picture.of("k-band")


def test_bars_begin_at_0_and_unknown_values_have_none() -> None:
    rows = [
        show.Bar("a", 1.0, "one", was=5.0),
        show.Bar("b", 4.0, "four", (3.0, 5.0)),
        show.Bar("c", math.inf, "never"),
    ]
    picture = Picture(charts.bars("title", rows))
    one, four = (float(bar.attrib["width"]) for bar in picture.of("k-fill"))
    [was] = (float(bar.attrib["width"]) for bar in picture.of("k-floor"))
    whole = float(picture.of("k-field")[0].attrib["width"])
    assert (one, four, was) == (whole / 5, pytest.approx(whole * 0.8, abs=0.1), whole)
    assert len(picture.of("k-whisker")) == 3 and "never" in picture.texts


def test_a_ratio_lies_as_far_from_1_as_its_inverse() -> None:
    rows = [show.Ratio("a", 2.0, (2.0, 2.0), ""), show.Ratio("b", 0.5, (0.5, 0.5), "")]
    lines = Picture(charts.ratios("title", rows)).of("k-middle")
    places = [float(re.findall(r"M([\d.]+)", line.attrib["d"])[0]) for line in lines]
    assert sum(places) == pytest.approx(640, abs=0.2) and places[0] > 320


def test_texts_are_escaped() -> None:
    evil = compared(amp=EVIL)
    evil = replace(evil, candidate=replace(evil.candidate, settings={"amp": EVIL, EVIL: 1}))
    run = trained(EVIL, 0, 2.0, 1.0)
    for source in (
        drawn(evil, recorded=[(EVIL, evil)]),
        swept([compared(size=EVIL)], "size", recorded=[(EVIL, [compared(size=EVIL)])]),
        drawn(RaceResult((run,), 0.5, EVIL, False), recorded=[(EVIL, RACE)]),
    ):
        assert "<script" not in source
        assert "alert" in "".join(Picture(source).texts)


def test_a_value_lies_within_its_box() -> None:
    box = Box(10, 20, 110, 220, (0.0, 1.0), (0.0, 4.0))
    assert (box.x(0.5), box.y(1.0)) == (60, 170)
    assert (box.x(7), box.y(-1)) == (110, 220)


def test_a_figure_of_a_notebook_shows_the_picture() -> None:
    figure = plots.sweep_figure(SWEEP, "size")
    assert repr(figure) == SWEEP.sentence
    assert "<svg" in figure._repr_html_()
    for other in (plots.comparison_figure(compared()), plots.race_figure(RACE)):
        assert "<svg" in other._repr_html_()
