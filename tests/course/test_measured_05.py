"""The race of notebook 05 as areas, without a browser."""

import re

import pytest

from course.measured.areas import as_areas, sides_of
from labkit.racing import RaceResult, RaceRun


def run(arm: str, seed: int, steps: int, pace: float, reached: bool = True) -> RaceRun:
    """``pace``: seconds of a step."""
    looks = ((steps // 2, steps // 2 * pace, 0.3), (steps, steps * pace, 0.47))
    return RaceRun(arm, seed, looks, reached)


def race(*runs: RaceRun) -> RaceResult:
    return RaceResult(runs, 0.46, "accuracy", True)


BASE, LARGE = "baseline", "batch_size=512"
DUEL = race(
    run(BASE, 0, 1000, 0.0004),
    run(LARGE, 0, 200, 0.001),
    run(BASE, 1, 1200, 0.0004),
    run(LARGE, 1, 240, 0.001),
)


def corners(picture: str) -> list[tuple[float, float]]:
    """Of the rectangles."""
    found = re.findall(r'd="M[\d.]+ [\d.]+L([\d.]+) ([\d.]+)L[\d.]+ [\d.]+" class="k-line', picture)
    return [(float(x), float(y)) for x, y in found]


def test_a_side_has_the_means_of_its_runs() -> None:
    base, large = sides_of(DUEL)
    assert (base.name, base.arrived, base.runs) == (BASE, 2, 2)
    assert base.steps == pytest.approx((1000 * 1200) ** 0.5)
    assert base.pace == pytest.approx(0.0004)
    factor = DUEL.speedup(LARGE)[0]
    assert base.seconds / large.seconds == pytest.approx(factor)


def test_the_areas_are_as_the_times() -> None:
    picture = as_areas(DUEL)
    sizes = [
        float(size) for size in re.findall(r'(?:width|height)="([\d.]+)" class="k-band', picture)
    ]
    assert len(sizes) == 2
    (x1, y1), (x2, y2) = corners(picture)
    bottom = float(re.findall(r'L([\d.]+) ([\d.]+)" class="k-line', picture)[0][1])
    ratio = (x1 - 64) * (bottom - y1) / ((x2 - 64) * (bottom - y2))
    assert ratio == pytest.approx(2, rel=0.02)
    assert "1,095 steps of 400 µs: 438 ms" in picture
    assert "219 steps of 1.00 ms: 219 ms" in picture


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("batch_size='512', rate='linear'", "512, rate linear"),
        ("rate='linear'", "rate linear"),
        ("batch_size='512'", "512 samples"),
        (BASE, BASE),
    ],
)
def test_a_side_is_named_by_its_settings(settings: str, words: str) -> None:
    assert f">{words}<" in as_areas(race(run(settings, 0, 200, 0.001)))


def test_a_side_that_never_arrives_has_no_area() -> None:
    lost = race(run(BASE, 0, 1000, 0.0004), run(LARGE, 0, 900, 0.001, reached=False))
    picture = as_areas(lost)
    assert "never arrives, 900 steps" in picture
    assert len(corners(picture)) == 1 and 'stroke-dasharray="6 5"' in picture


def test_how_many_arrive_is_told_where_not_all_do() -> None:
    some = race(run(BASE, 0, 1000, 0.001), run(BASE, 1, 1000, 0.001, reached=False))
    assert "1,000 steps of 1.00 ms: 1.00 s, 1 of 2 arrive" in as_areas(some)


@pytest.mark.parametrize("other", [None, "text", race()])
def test_what_is_no_race_is_drawn_by_the_panel(other: object) -> None:
    assert as_areas(other) == ""
