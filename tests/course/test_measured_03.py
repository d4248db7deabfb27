"""The rates and losses of a race in notebook 03, without a browser."""

import math
import re
from itertools import pairwise

import pytest
import torch

import labkit
from course.measured.rates import Rates, round_values, short
from labkit import Workload
from labkit.racing import RaceResult, RaceRun


def training(rates: Rates, *, falls: bool) -> Workload:
    """A loss that reaches the rate's own size; the rate halves at each step, or stays."""
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.8)

    def step() -> None:
        optimizer.param_groups[0]["lr"] *= 0.5 if falls else 1

    noise = iter(torch.rand(100).tolist())

    def loss() -> float:
        return optimizer.param_groups[0]["lr"] + 0.01 * next(noise)

    return Workload(step, evaluate=rates.beside(optimizer, loss))


def raced(rates: Rates, target: float = 0.05) -> RaceResult:
    sides = {
        "baseline": lambda: training(rates, falls=False),
        "halves": lambda: training(rates, falls=True),
    }
    return labkit.race(
        sides, target=target, steps=8, every=2, seeds=2, metric="loss", higher_is_better=False
    )


def paths(picture: str, kind: str) -> list[list[tuple[float, float]]]:
    """The points of the lines of a kind."""
    found = re.findall(rf'<path d="M([^"]+)" class="{kind}"', picture)
    assert found, f"no {kind!r} in {picture[:2000]}"
    return [[tuple(map(float, point.split())) for point in d.split("L")] for d in found]


def test_the_rates_are_those_of_the_runs_that_are_drawn() -> None:
    rates = Rates()
    result = raced(rates)
    for run in result.of("halves"):
        steps = [0, *(step for step, _, _ in run.curve)]
        assert rates.of(run) == [(step, pytest.approx(0.8 * 0.5**step)) for step in steps]
    flat = rates.of(result.of("baseline")[1])
    assert flat == [(step, 0.8) for step in (0, 2, 4, 6, 8)]
    other = RaceRun("halves", 0, ((2, 0.1, 0.5),), reached=False)
    assert rates.of(other) == []


def test_the_metric_is_the_mean_of_the_last_three_looks() -> None:
    values = iter([9.0, 3.0, 6.0, 0.0])
    look = Rates().beside(torch.optim.SGD([torch.zeros(1)], lr=0.1), lambda: next(values))
    assert [look() for _ in range(4)] == [9, 6, 6, 3]


def test_above_each_side_s_rate_below_every_run() -> None:
    rates = Rates()
    picture = rates(raced(rates))
    assert "learning rate" in picture and "loss every 2 steps, 2 seeds" in picture
    assert "2 never arrive" in picture and "2 arrive (step 8)" in picture
    (flat,), (bent,) = paths(picture, "k-line k-slower"), paths(picture, "k-line k-candidate")
    assert len({y for _, y in flat}) == 1 and flat[0][0] < flat[-1][0]
    # Halved at each step, it is a straight line on a scale of logarithms.
    falls = {round(b - a) for (_, a), (_, b) in pairwise(bent)}
    assert len(falls) == 1 and falls.pop() > 5
    losses = paths(picture, "k-line k-thin k-candidate")
    assert len(losses) == 2
    # One chart above the other, with the same steps.
    assert max(y for _, y in flat + bent) < min(y for line in losses for _, y in line)
    assert bent[-1][0] == losses[0][-1][0]


def test_without_a_rate_the_losses_are_drawn() -> None:
    rates = Rates()
    result = raced(rates)
    picture = Rates()(result)
    assert "k-thin" in picture
    assert not re.search(r'class="k-line k-(slower|candidate)"', picture)


def test_a_rate_of_zero_and_a_loss_that_exploded_stay_in_the_picture() -> None:
    rates = Rates()
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    values = iter([2.0, 1e9, math.nan])
    look = rates.beside(optimizer, lambda: next(values))
    curve = []
    for step, rate in ((1, 0.1), (2, 0.0), (3, 0.0)):
        optimizer.param_groups[0]["lr"] = rate
        curve.append((step, 0.01 * step, look()))
    runs = (RaceRun("baseline", 0, tuple(curve), reached=False),)
    picture = rates(RaceResult(runs, 1.0, "loss", False))
    assert "1 explodes (step 3)" in picture
    assert "loss after each step, one seed; higher ones at the edge" in picture
    height = float(re.search(r'viewBox="0 0 640 (\d+)"', picture)[1])
    (line,) = paths(picture, "k-line k-slower")
    assert all(0 <= x <= 640 and 0 <= y <= height for x, y in line)


@pytest.mark.parametrize(
    "result",
    [
        None,
        RaceResult((), 1.0, "loss", False),
        RaceResult((RaceRun("a", 0, ((1, 0.1, 0.4),), False),), 0.5, "accuracy", True),
        RaceResult((RaceRun("a", 0, ((1, 0.1, -0.4),), False),), 0.5, "loss", False),
        RaceResult((RaceRun("a", 0, (), False),), 0.5, "loss", False),
    ],
    ids=["none", "no runs", "accuracy", "negative", "no points"],
)
def test_what_it_does_not_draw(result: object) -> None:
    assert Rates()(result) == ""


def test_a_side_is_named_by_its_values() -> None:
    assert short("schedule='1cycle', max_lr=0.1") == "1cycle, 0.1"
    assert short("baseline") == "baseline"


def test_round_values() -> None:
    assert round_values(0.004, 1.4) == pytest.approx([0.01, 0.1, 1])
    assert round_values(1.37, 2.7) == pytest.approx([1.4, 1.6, 1.8, 2, 2.5])
    assert 2 <= len(round_values(0.02, 0.04)) <= 5
    assert round_values(2.2, 2.4) == []
