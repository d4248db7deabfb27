"""The race of notebook 02 by the clock, without a browser."""

import math
import re
from itertools import pairwise

import pytest

from course.measured.clock import by_clock
from labkit.racing import RaceResult, RaceRun


def run(arm: str, seed: int, pace: float, values: list[float], reached: bool = True) -> RaceRun:
    """``pace``: milliseconds of a step."""
    curve = tuple((step, pace * step / 1000, value) for step, value in enumerate(values, 1))
    return RaceRun(arm, seed, curve, reached)


def race(*runs: RaceRun, higher: bool = False) -> RaceResult:
    return RaceResult(runs, 0.25, "loss", higher)


DUEL = race(
    run("baseline", 0, 0.2, [0.5, 0.3, 0.24]),
    run("baseline", 1, 0.25, [0.5, 0.3, 0.24]),
    run("batch_size=100", 0, 0.1, [0.5, 0.4, 0.3, 0.27, 0.25]),
    run("batch_size=100", 1, 0.1, [0.5, 0.4, 0.9, math.nan], reached=False),
)


def count(picture: str, kind: str) -> int:
    return len(re.findall(rf'class="[^"]*\bk-{kind}\b', picture))


def test_every_run_is_drawn_by_milliseconds() -> None:
    picture = by_clock(DUEL)
    assert count(picture, "thin") == 4
    assert "2 arrive (0.6–0.75 ms)" in picture
    assert "1 arrives" in picture and "1 explodes" in picture
    assert "loss, 2 seeds" in picture and "target 0.25" in picture
    assert ">0.1 ms<" in picture and ">1 ms<" not in picture


def test_twice_the_pace_is_the_same_way_to_the_right() -> None:
    """The scale of time is one of logarithms."""
    runs = [run(f"pace {pace}", 0, pace, [0.5, 0.24]) for pace in (1, 2, 4)]
    ends = re.findall(r'd="M([\d.]+) [\d.]+h0" class="k-dots k-end', by_clock(race(*runs)))
    first, second, third = map(float, ends[:3])
    assert second - first == pytest.approx(third - second, abs=0.3) and second > first


def test_above_its_least_value_a_loss_that_halves_falls_by_equal_steps() -> None:
    runs = [run("baseline", 0, 0.2, [0.24 + 0.1 / 2**step for step in range(6)])]
    picture = by_clock(race(*runs), least=0.24)
    assert "loss above the least, one seed" in picture
    assert "target: 0.01 above the least" in picture
    (line,) = re.findall(r'd="M([^"]+)" class="k-line k-thin', picture)
    heights = [float(point.split()[1]) for point in line.split("L")]
    falls = [b - a for a, b in pairwise(heights)]
    assert falls[0] > 5 and max(falls) - min(falls) < 0.3
    exact = by_clock(race(run("baseline", 0, 0.2, [0.5, 0.24])), least=0.24)
    assert "1 arrives" in exact


def test_what_explodes_is_drawn_to_the_edge_of_the_chart_and_no_further() -> None:
    grows = [0.5 * 4**step for step in range(12)] + [math.inf]
    falls = run("batch_size=100", 0, 0.2, [0.5, 0.24])
    picture = by_clock(race(run("baseline", 0, 0.2, grows, reached=False), falls))
    # One star is the legend's.
    assert count(picture, "exploded") == 2
    longest, _ = re.findall(r'd="M([^"]+)" class="k-line k-thin', picture)
    heights = [float(point.split()[1]) for point in longest.split("L")]
    assert len(heights) < len(grows) and heights.count(min(heights)) == 1


def test_of_many_runs_the_one_in_the_middle_is_bold_and_the_others_are_pale() -> None:
    many = [run("baseline", seed, 0.1 * (1 + seed), [0.5, 0.24]) for seed in range(7)]
    few = [run("batch_size=100", seed, 0.1, [0.5, 0.24]) for seed in range(3)]
    picture = by_clock(race(*many, *few))
    assert (count(picture, "pale"), count(picture, "thin"), count(picture, "middle")) == (7, 3, 1)
    assert "the middle one bold" in picture
    assert "the middle one bold" not in by_clock(race(*few))
    alone = by_clock(race(*many))
    bold = re.findall(r'd="M([^"]+)" class="k-line k-middle', alone)
    assert bold == re.findall(r'd="M([^"]+)" class="k-line k-pale', alone)[3:4]


@pytest.mark.parametrize("other", [None, "text", race(*DUEL.runs, higher=True), race()])
def test_what_is_no_race_to_a_small_metric_is_drawn_by_the_panel(other: object) -> None:
    assert by_clock(other) == ""
