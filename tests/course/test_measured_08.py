"""Steps to the goal and their cost in a race of notebook 08, without a browser."""

import math
import re

import pytest

from course.measured.paces import cost, in_steps, paces, steps
from labkit.racing import RaceResult, RaceRun


def run(arm: str, seed: int, values: list[float], pace: float, *, reached: bool) -> RaceRun:
    """A look after each ten steps, each step of so many seconds."""
    points = ((10 * n, 10 * n * pace, value) for n, value in enumerate(values, 1))
    return RaceRun(arm, seed, tuple(points), reached)


QUICK = (
    run("quick", 0, [3.0, 2.2], 0.004, reached=True),
    run("quick", 1, [3.1, 2.6, 2.1], 0.004, reached=True),
    run("quick", 2, [3.0, 2.2], 0.004, reached=True),
)
SLOW = tuple(run("slow", seed, [3.2, 3.1, 2.9, 2.8], 0.001, reached=False) for seed in range(3))
LOST = tuple(run("lost", seed, [3.2, math.nan], 0.001, reached=False) for seed in range(3))


def result(*runs: RaceRun) -> RaceResult:
    return RaceResult(runs, 2.25, "loss", False)


def bars(picture: str) -> list[float]:
    """Widths of the bars."""
    found = re.findall(r'<rect [^>]*width="([\d.]+)"[^>]*class="k-fill', picture)
    found += re.findall(r'<rect [^>]*class="k-fill[^>]*width="([\d.]+)"', picture)
    assert found, picture[:1500]
    return list(map(float, found))


def test_steps_and_their_cost() -> None:
    assert (steps(QUICK), steps(SLOW), steps(())) == (20, math.inf, math.inf)
    assert [in_steps(runs) for runs in (QUICK, SLOW, LOST, ())] == [
        "20 steps",
        "never",
        "explodes",
        "has not begun",
    ]
    # Of the step alone where the goal is not reached.
    assert cost(QUICK) == "4 ms per step, 0.08 s"
    assert cost(SLOW) == "1 ms per step"
    assert cost(()) == ""
    # One of two has not arrived: neither has the side.
    assert in_steps((QUICK[0], SLOW[0])) == "never"


def test_a_bar_for_each_side_and_a_curve_for_each_run() -> None:
    picture = paces(result(*SLOW, *QUICK))
    assert "steps to a loss of 2.25" in picture
    assert "slow: never" in picture and "quick: 20 steps" in picture
    assert "1 ms per step" in picture and "4 ms per step, 0.08 s" in picture
    slow, quick = bars(picture)
    assert quick / slow == pytest.approx(20 / 40, abs=0.01)
    # The baseline is wide and lies below.
    looks = re.findall(r'class="k-line (k-thin|k-wide)', picture)
    assert looks == 3 * ["k-wide"] + 3 * ["k-thin"]
    assert "medians of 3 seeds" in picture and "loss, looked at every 10 steps" in picture


def test_a_rule_has_the_colour_of_the_moving_picture() -> None:
    hues = {}
    for arm in ("rule='SGD', rate='best'", "rule='Adam'", "baseline", "rule='AdamW'"):
        picture = paces(result(run(arm, 0, [3.0, 2.2], 0.004, reached=True)))
        (hues[arm],) = set(re.findall(r'class="k-fill k-(\w+)"', picture))
    # Blue is momentum, which SGD has here; orange is Adam.
    assert list(hues.values()) == ["candidate", "arm3", "arm5", "arm5"]


def test_steps_times_their_cost_are_the_seconds() -> None:
    """Where the medians are of different runs, too."""
    runs = (
        run("quick", 0, [3.0, 2.2], 0.010, reached=True),
        run("quick", 1, [3.1, 2.6, 2.1], 0.004, reached=True),
        run("quick", 2, [3.1, 2.6, 2.4, 2.1], 0.001, reached=True),
    )
    assert (in_steps(runs), cost(runs)) == ("30 steps", "4 ms per step, 0.12 s")
    uneven = (*runs[:2], run("quick", 2, [3.1, 2.6, 2.4, 2.1], 0.005, reached=True))
    assert (in_steps(uneven), cost(uneven)) == ("30 steps", "5 ms per step, 0.15 s")


def test_curves_stay_in_the_picture_and_explosions_are_marked() -> None:
    far = run("far", 0, [1e9, 3.0], 0.001, reached=False)
    picture = paces(result(far, *LOST))
    assert "lost: explodes" in picture and "exploded: step 20" in picture
    height = float(re.search(r'viewBox="0 0 640 (\d+)"', picture)[1])
    places = re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", picture)
    assert places
    assert all(0 <= float(x) <= 640 and 0 <= float(y) <= height for x, y in places)


@pytest.mark.parametrize(
    "given",
    [
        None,
        result(),
        RaceResult(QUICK, 0.5, "accuracy", True),
        result(run("a", 0, [-1.0], 1, reached=True)),
        result(RaceRun("a", 0, (), False)),
    ],
    ids=["none", "no runs", "accuracy", "negative", "no points"],
)
def test_what_it_does_not_draw(given: object) -> None:
    assert paces(given) == ""
