"""What notebook 21 draws of its races: who changes whom, in the reader's own networks."""

import math
import re
from statistics import fmean

import pytest
import torch
from torch import nn

import labkit
from course.measured.neighbours import LOOKS, Neighbours, accuracy, rounded
from labkit import Workload, seed_all
from labkit.racing import RaceResult, RaceRun

NORMS = {
    "no norm": nn.Identity,
    "batch norm": lambda: nn.BatchNorm2d(8),
    "group norm": lambda: nn.GroupNorm(2, 8),
}


def make_net(norm: str) -> nn.Sequential:
    head = nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), NORMS[norm](), *head)


def training(neighbours: Neighbours, norm: str, *, forgotten: bool = False) -> Workload:
    """Images of one class, told by their first bias: some steps, then all are right."""
    net, images = make_net(norm), torch.randn(6, 3, 8, 8)
    labels = torch.zeros(6)

    def step() -> None:
        with torch.no_grad():
            net[-1].bias[0] += 1

    look = neighbours.beside(net, images, labels, forgotten, "standardized", norm)
    return Workload(step, evaluate=look)


def raced(neighbours: Neighbours, *norms: str, target: float = 0.9) -> RaceResult:
    names = ["baseline", *(f"norm='{norm}'" for norm in norms[1:])]
    pairs = zip(names, norms, strict=True)
    sides = {name: lambda norm=norm: training(neighbours, norm) for name, norm in pairs}
    return labkit.race(sides, target=target, steps=8, seeds=2, metric="share that is right")


@pytest.mark.parametrize(("norm", "rows"), [("no norm", 1), ("batch norm", 4), ("group norm", 1)])
def test_a_spot_reaches_whom_the_norm_lets_it_reach(norm: str, rows: int) -> None:
    seed_all(0)
    neighbours = Neighbours()
    net = make_net(norm)
    kept = {name: value.clone() for name, value in net.state_dict().items()}
    look = neighbours.beside(net, torch.randn(6, 3, 8, 8), torch.zeros(6), False, norm)
    assert 0 <= look() <= 1
    changed = [any(row) for row in neighbours.latest.changed]
    assert changed == [image < rows for image in range(4)]
    # A look moves no averages, and the network trains on.
    assert net.training
    assert all(torch.equal(value, kept[name]) for name, value in net.state_dict().items())


def test_the_metric_is_a_mean_of_the_last_looks() -> None:
    seed_all(0)
    net, images, labels = make_net("no norm"), torch.randn(6, 3, 8, 8), torch.zeros(6)
    look = Neighbours().beside(net, images, labels, False, "no norm")
    shares = []
    for bias in (-100.0, -100.0, 100.0, 100.0, 100.0, -100.0):
        net[-1].bias.data[0] = bias
        shares.append(float(bias > 0))
        assert look() == pytest.approx(fmean(shares[-LOOKS:]))


def test_one_by_one_without_eval_is_another_network() -> None:
    """An image alone, standardized by itself: its channels' means are 0, whatever it shows."""
    seed_all(0)
    net = nn.Sequential(nn.Identity(), nn.BatchNorm2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    bright = torch.arange(2).repeat(50)
    images = torch.randn(100, 2, 4, 4) + 3 * nn.functional.one_hot(bright, 2)[:, :, None, None]
    for _ in range(60):
        net(images)
    assert accuracy(net, images, bright, forgotten=False) == 1
    assert accuracy(net, images, bright, forgotten=True) < 0.9
    assert net.training


def test_a_race_is_drawn_with_the_words_of_its_settings() -> None:
    seed_all(0)
    neighbours = Neighbours()
    picture = neighbours(raced(neighbours, "group norm", "batch norm"))
    assert "outputs that change" in picture and "target 0.9" in picture
    assert re.search(r"group norm: 2 of 2 arrive, .* ms per step; batch norm: ", picture)
    said = "group norm: a spot changes 0 other images; batch norm: a spot changes 3 other images"
    assert said in picture
    # One square each, and one in the legend.
    assert picture.count('class="k-fill k-arm5"') == 8 + 4 * 8 + 1


def test_sides_with_the_same_metrics_are_told_apart() -> None:
    """Where nothing is learned, both are blind."""
    neighbours = Neighbours()
    for norm in ("no norm", "batch norm"):
        look = neighbours.beside(
            make_net(norm), torch.randn(4, 3, 8, 8), torch.full((4,), 10), False, norm
        )
        look()
    runs = [RaceRun(arm, 0, ((1, 0.1, 0.0),), False) for arm in ("baseline", "norm='batch norm'")]
    picture = neighbours(RaceResult(tuple(runs), 0.5, "share that is right", True))
    assert "no norm: 0 of 1 arrive" in picture and "batch norm: 0 of 1 arrive" in picture


def test_runs_that_were_not_noted_are_drawn_without_squares() -> None:
    runs = [RaceRun(arm, 0, ((1, 0.1, 0.3),), True) for arm in ("baseline", "norm='yours'")]
    picture = Neighbours()(RaceResult(tuple(runs), 0.2, "share that is right", True))
    assert "yours: 1 of 1 arrive" in picture and "k-fill k-arm5" not in picture


def test_nothing_is_drawn_of_another_result() -> None:
    neighbours = Neighbours()
    run = RaceRun("baseline", 0, ((1, 0.1, math.nan),), False)
    assert neighbours("no race") == ""
    assert neighbours(RaceResult((run,), 0.2, "loss", False)) == ""
    assert neighbours(RaceResult((run,), 0.2, "share that is right", True)) == ""


@pytest.mark.parametrize(("value", "words"), [(6401.2, "6,401"), (-0.161, "-0.16"), (1, "1.00")])
def test_numbers_have_few_digits(value: float, words: str) -> None:
    assert rounded(value) == words
