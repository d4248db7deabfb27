"""Three steps of the planned and the plain model, bit by bit, for all kinds of models and plans."""

import pytest
import torch
import torchvision
from planner_models import Encoder, Looks, Norms, Recurrent, UNet, images, kept, plans, tokens
from torch import nn
from torchvision.models.resnet import BasicBlock

from course import models
from labkit.restore.generators import rng_state
from labkit.restore.switches import torch_flags
from sublinear.apply import apply
from sublinear.plan import Checkpoint, Plan
from sublinear.split import split
from sublinear.verify import verify


class Noisy(nn.Module):
    """Counts its calls, and adds the count: another result each time, without any random number."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.calls = nn.Linear(4, 4), [0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls[0] += 1
        return torch.tanh(self.linear(x)) * self.calls[0]


MODELS = {
    "mlp": (lambda: models.mlp([6, 8, 8, 8, 8, 2]), lambda: torch.randn(3, 6)),
    "convnet": (lambda: models.convnet(4), lambda: images(4, 16)),
    "resnet": (
        lambda: torchvision.models.ResNet(BasicBlock, [1, 1, 1, 1], 3),
        lambda: images(2, 32),
    ),
    "u-net": (UNet, images),
    "eager attention, dropout, tied embedding": (Encoder, tokens),
    "fused attention": (lambda: Encoder(fused=True), tokens),
    "torch's transformer": (lambda: models.Transformer(11, 16, 2, 3, 8), tokens),
    "norms": (Norms, images),
    "wrapped": (Looks, lambda: torch.randn(3, 5)),
}


@pytest.mark.parametrize("name", MODELS)
def test_bitwise_for_every_plan(name: str) -> None:
    make, inputs = MODELS[name]
    torch.manual_seed(0)
    model, x = make(), inputs()
    blocks = split(model, x)
    for plan in plans(len(blocks)):
        report = verify(model, plan, x, blocks=blocks)
        assert report.passed, f"{plan.method}: {report}"


def test_gru_over_64_steps() -> None:
    model, x = Recurrent(), torch.randn(2, 64, 6)
    blocks = split(model, x)
    for plan in plans(len(blocks)):
        if "/1" not in str(plan):
            assert (report := verify(model, plan, x, blocks=blocks)).passed, report
    with pytest.raises(ValueError, match=r"layers\.0 holds a recurrent layer, which overwrites"):
        apply(model, Plan(kept(0, len(blocks), 1), ""), x)


def test_with_a_loss_and_keywords() -> None:
    model, x, mask = Encoder(), tokens(), torch.rand(3, 8, 1)
    plan = next(plan for plan in plans(20) if plan.method == "halved")

    def loss(output: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(output.flatten(0, 1), tokens().flatten())

    report = verify(model, plan, {"tokens": x, "mask": mask}, loss=loss)
    assert report.passed, report
    assert "the same bit by bit over 3 steps" in str(report)


def test_a_difference_is_reported_not_raised() -> None:
    model = nn.Sequential(nn.Linear(4, 4), Noisy(), nn.Linear(4, 1))
    report = verify(model, Plan((Checkpoint(kept(0, 2)), *kept(2, 3)), ""), torch.randn(2, 4))
    assert not report.passed
    assert "NOT the same" in str(report) and "gradient of 0.weight in step 2: differs by" in str(
        report
    )


def test_everything_is_given_back() -> None:
    torch.manual_seed(3)
    model = models.convnet(4)
    model[0].weight.grad = torch.ones_like(model[0].weight)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    flags, numbers = torch_flags(), rng_state()
    verify(model, Plan((Checkpoint(kept(0, 4)),), ""), images(4, 16))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert (
        torch.equal(model[0].weight.grad, torch.ones_like(model[0].weight))
        and model[4].weight.grad is None
    )
    assert torch_flags() == flags and torch.equal(rng_state()["torch"], numbers["torch"])


def test_forwards_are_counted_against_the_prediction() -> None:
    model = models.mlp([4] * 7)
    plan = Plan((Checkpoint((Checkpoint(kept(0, 2)), *kept(2, 4))), *kept(4, 6)), "")
    report = verify(model, plan, torch.randn(2, 4))
    assert report.passed and report.counted == report.expected == (3, 3, 2, 2, 1, 1)
