"""20's picture of a result: memory batch by batch, or time, beside what the lamps saw."""

import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from course.measured.lamps import Batch, Lamps, batches, growth, name
from labkit import Lab, Workload
from labkit.memory_timeline import Timeline

MODES = {"grad": torch.enable_grad, "no_grad": torch.no_grad}
ITEM = {"total": "+= loss.item()"}
RIGHT = ITEM | {"autograd": "no_grad", "layers": "eval()"}


def make_workload(total: str, autograd: str, layers: str) -> Workload:
    block = [nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU()]
    net = nn.Sequential(*block, nn.Dropout(0.5), nn.Linear(32, 4)).train(layers == "train()")
    parts = torch.randn(4, 256, 32)

    def step() -> float:
        losses: float | torch.Tensor = 0.0
        with MODES[autograd]():
            for part in parts:
                loss = F.mse_loss(net(part), torch.ones(256, 4))
                losses += loss.item() if total == "+= loss.item()" else loss
        return torch.as_tensor(losses).item() / 4

    return Workload(step)


@pytest.fixture
def lamps() -> Lamps:
    return Lamps(batches=4)


@pytest.fixture
def lab(lamps: Lamps) -> Lab:
    return Lab(
        lamps.watch(make_workload),
        total=["+= loss", "+= loss.item()"],
        autograd=list(MODES),
        layers=["train()", "eval()"],
    )


def test_memory_is_drawn_batch_by_batch_beside_the_lamps(lab: Lab, lamps: Lamps) -> None:
    result = lab.timeline(**RIGHT)
    drawn = lamps(result)
    assert drawn.count("✗") == drawn.count("✓") == 4
    for side in result.arms:
        assert f"peak {side.peak_text}" in drawn
    assert "+= loss, grad, train()" in drawn and "+= loss.item(), no_grad, eval()" in drawn
    for fault in ("keeps", "grows", "then", "batch norm moved"):
        assert fault in drawn
    for lamp in ("little memory", "steady memory", "same answer twice", "nothing learned"):
        assert lamp in drawn


def test_bars_grow_where_a_total_holds_every_graph(lab: Lab) -> None:
    result = lab.timeline(**ITEM)
    grows, steady = (batches(side, 4) for side in result.arms)
    rise = growth(grows)
    assert [each.begin - grows[0].begin for each in grows] == pytest.approx(
        [0, rise, 2 * rise, 3 * rise], rel=0.1
    )
    assert growth(steady) == 0
    assert steady[1].begin == pytest.approx(grows[1].begin, rel=0.02)


def test_a_layer_that_is_not_trained_moves_nothing(lab: Lab, lamps: Lamps) -> None:
    for settings in (ITEM, RIGHT):
        chosen = lab.settings(settings)
        lab.make_workload(**chosen)
        habits, evaluates = lamps.habits(chosen), "layers" in settings
        assert (habits.moved == 0) is evaluates
        assert (habits.answers[0] == habits.answers[1]) is evaluates
        assert (habits.kept == 0) is ("autograd" in settings)


def test_looking_leaves_random_numbers_alone(lamps: Lamps) -> None:
    watched, settings = lamps.watch(make_workload), {"total": "+= loss", "autograd": "grad"}
    answers = []
    for make in (make_workload, watched):
        torch.manual_seed(1)
        answers.append(make(**settings, layers="train()").step())
    assert answers[0] == answers[1]


def test_time_has_a_bar_and_the_lamps_of_each_side(lab: Lab, lamps: Lamps) -> None:
    result = lab.run(**RIGHT, seconds=0.2)
    drawn = lamps(result)
    assert drawn.count("time of 4 batches") == 2
    assert drawn.count("✗") == drawn.count("✓") == 4
    widths = re.findall(
        r'<rect[^>]*?width="([\d.]+)"[^>]*?class="k-fill k-(?:baseline|candid)', drawn
    )
    longest = max(result.step_times)
    shares = [seconds / longest for seconds in result.step_times]
    assert [float(width) / 252 for width in widths] == pytest.approx(shares, abs=0.01)


def test_other_results_have_no_picture(lab: Lab, lamps: Lamps) -> None:
    assert lamps(None) == ""
    assert lamps(lab.sweep("total", seconds=0.1)) == ""


def test_a_step_may_have_a_few_operators_of_its_own() -> None:
    """Which shift the cuts between its batches."""
    batch = (2, 5, 8, 2)
    side = Timeline("", alive=(*batch, *batch, *batch, *batch, 2, 2), before=2)
    assert batches(side, 4) == [Batch(2, 8)] * 4
    assert growth(batches(side, 4)) == 0


def test_what_the_reader_built_has_its_name() -> None:
    assert name({"autograd": "yours"}) == "your validation_loss"
