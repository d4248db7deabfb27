"""The curves of a race in notebook 18, without a browser."""

import math
import re

import pytest

import labkit
from course.measured.curves import curves
from labkit.racing import RaceResult, RaceRun


def run(arm: str, seed: int, values: list[float], reached: bool = False) -> RaceRun:
    curve = tuple((step, 0.01 * step, value) for step, value in enumerate(values, 1))
    return RaceRun(arm, seed, curve, reached)


def falling(arm: str, seed: int, steps: int) -> RaceRun:
    values = [3.3 - (0.8 + 1e-9) * step / steps for step in range(1, steps + 1)]
    return run(arm, seed, values, reached=True)


def race(*runs: RaceRun, target: float = 2.5, higher: bool = False) -> RaceResult:
    return RaceResult(runs, target, "loss", higher)


EXPLODES = [3.1, 40.0, 7e5, math.nan]
DUEL = race(
    run("baseline", 0, EXPLODES),
    run("baseline", 1, [3.2, math.inf]),
    falling("max_norm=1.0", 0, 40),
    falling("max_norm=1.0", 1, 50),
)


def count(picture: str, kind: str) -> int:
    return len(re.findall(rf'class="[^"]*\bk-{kind}\b', picture))


def test_every_run_is_there_and_each_explosion_is_marked_with_its_step() -> None:
    picture = curves(DUEL)
    assert count(picture, "thin") == 4
    assert count(picture, "exploded") == 2
    assert count(picture, "never") == 0
    assert "2 explode (steps 2–4)" in picture
    assert "exploded: steps 2–4" in picture
    assert "2 arrive (steps 40–50)" in picture
    assert "loss after each step, 2 seeds" in picture
    assert "target 2.5" in picture


def test_a_run_that_never_arrives_is_crossed_and_ways_to_end_are_counted() -> None:
    result = race(
        falling("baseline", 0, 40),
        run("baseline", 1, EXPLODES),
        run("baseline", 2, EXPLODES),
        run("max_norm=0.01", 0, [3.3] * 60),
    )
    picture = curves(result)
    assert count(picture, "exploded") == 2
    assert count(picture, "never") == 1
    assert "1 arrives, 2 explode" in picture
    assert "1 never arrives" in picture


def test_what_is_beyond_the_chart_stays_in_the_picture() -> None:
    picture = curves(race(run("baseline", 0, EXPLODES), falling("clipped", 0, 40)))
    height = float(re.search(r'viewBox="0 0 640 (\d+)"', picture)[1])
    places = [
        tuple(map(float, pair))
        for d in re.findall(r' d="([^"]*)"', picture)
        for pair in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", d)
    ]
    assert len(places) > 40
    assert all(0 <= x <= 640 and 0 <= y <= height for x, y in places)


def ends(picture: str) -> list[float]:
    """How far to the right each curve ends."""
    lines = re.findall(r'd="M([^"]+)" class="k-line k-thin', picture)
    return [float(line.split("L")[-1].split()[0]) for line in lines]


def test_where_runs_explode_the_first_steps_have_more_room() -> None:
    long, short = falling("clipped", 0, 40), falling("clipped", 1, 4)
    even = ends(curves(race(falling("baseline", 0, 2), long, short)))
    early = ends(curves(race(run("baseline", 0, [3.1, math.nan]), long, short)))
    for first, last, near in (even, early):
        assert first < near < last
    assert even[2] - 60 < 0.15 * (even[1] - 60)
    assert early[2] - 60 > 0.3 * (early[1] - 60)


def test_the_scale_ends_at_the_largest_value() -> None:
    picture = curves(race(run("baseline", 0, [3.3, 3.0, 2.5]), run("clipped", 0, [3.3, 2.4])))
    assert ">3<" in picture and ">5<" not in picture


def test_a_race_in_which_all_explode_at_once_is_drawn() -> None:
    picture = curves(race(run("baseline", 0, [3.1, math.nan]), run("clipped", 0, [3.0, math.inf])))
    assert count(picture, "exploded") == 2
    assert "exploded: step 2" in picture


@pytest.mark.parametrize(
    "result",
    [
        None,
        race(),
        race(run("baseline", 0, [math.nan])),
        race(run("baseline", 0, [0.4, 0.6]), higher=True, target=0.5),
        race(run("baseline", 0, [0.4, -0.6])),
        race(run("baseline", 0, [0.4, 0.6]), target=-1.0),
        race(run("baseline", 0, [])),
    ],
    ids=["none", "no runs", "no number", "accuracy", "negative", "negative target", "no points"],
)
def test_what_it_does_not_draw(result: object) -> None:
    assert curves(result) == ""


def test_a_comparison_is_not_drawn() -> None:
    assert curves(labkit.compare(lambda: None, lambda: None, seconds=0.05)) == ""
