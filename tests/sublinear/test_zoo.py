"""Models of many families: the budget is held, the prediction is right, and something is saved.

The whole zoo is `python -m tests.sublinear.zoo`; here are its quick families.
"""

import pytest
import torch
from zoo import FAMILIES, QUICK, Row, peak, rows_of

from sublinear.apply import apply
from sublinear.plan import keep_all
from sublinear.planner import plan
from sublinear.profiling import Roofline, profile


@pytest.mark.parametrize("name", QUICK)
def test_no_plan_exceeds_its_budget(name: str) -> None:
    rows = rows_of(name)
    assert [row.goal for row in rows] == ["lowest", "middle", "1.35"]
    for row in rows:
        assert_right(row)


def assert_right(row: Row) -> None:
    assert row.held, f"{row.goal}: {row.measured} of {row.budget} bytes"
    assert abs(row.error) <= 0.03, f"{row.goal}: {row.error:+.1%}"
    assert abs(row.plain_error) <= 0.03, f"plain: {row.plain_error:+.1%}"


def test_there_are_enough_families() -> None:
    assert len(FAMILIES) >= 25
    assert set(QUICK) <= set(FAMILIES)


def small_densenet() -> torch.nn.Module:
    from torchvision.models import DenseNet

    return DenseNet(8, (6, 12, 8), 16, num_classes=10)


def small_convnext() -> torch.nn.Module:
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    widths = (16, 32, 64)
    stages = [CNBlockConfig(a, b, 4) for a, b in zip(widths, (*widths[1:], None), strict=True)]
    return ConvNeXt(stages, stochastic_depth_prob=0.1, num_classes=10)


SAVING = {
    "densenet": (small_densenet, 100, 20),
    "convnext": (small_convnext, 64, 12),
}


@pytest.mark.parametrize("name", SAVING)
def test_concatenations_and_scaled_branches_are_cut(name: str) -> None:
    from sublinear.profiling import Roofline, profile

    make, size, blocks = SAVING[name]
    card = Roofline("a small card", flops=5e12, bandwidth=300e9, launch=0)
    chain = profile(make(), torch.empty(64, 3, size, size), device=card, options=False)
    assert len(chain) >= blocks
    found = plan(chain, max_overhead=0.35).costs.peak_bytes
    assert found <= 0.5 * keep_all(chain).costs.peak_bytes


def test_a_loop_over_cells_is_cut_at_each_step() -> None:
    from sublinear.profiling import Roofline, profile

    family = FAMILIES["lstm cells"]
    model, inputs = family.make(), family.inputs()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    # Seconds of a stated card: those of this machine are of another moment.
    card = Roofline("a small card", flops=5e12, bandwidth=300e9, launch=0)
    chain = profile(model, inputs, device=card, options=False)
    assert len(chain) >= 32
    planned = apply(model, plan(chain, max_overhead=0.35), inputs)
    saved = peak(planned, family, inputs, optimizer) / peak(model, family, inputs, optimizer)
    assert saved <= 0.5


def test_keeping_chosen_operators_gains_where_the_documentation_says_so() -> None:
    family = FAMILIES["autoencoder"]
    card = Roofline("a small GPU", flops=5e12, bandwidth=240e9)
    chain = profile(family.make(), family.inputs(), device=card)
    menu, without = (plan(chain, max_overhead=0.05, method=name) for name in ("menu", "optimal"))
    assert menu.costs.peak_bytes < 0.95 * without.costs.peak_bytes
    assert menu.costs.seconds <= 1.05 * keep_all(chain).costs.seconds
