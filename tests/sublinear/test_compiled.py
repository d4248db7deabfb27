"""torch.compile around a planned model: it runs as it is, by its plan."""

import pytest
import torch
from torch import nn

from labkit.memory import StorageTracker
from sublinear.apply import apply
from sublinear.nodes import Checkpoint, Keep, kept
from sublinear.plan import Plan
from sublinear.split import split


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def convnet(depth: int = 6) -> nn.Sequential:
    layers: list[nn.Module] = []
    for number in range(depth):
        layers += [nn.Conv2d(8 if number else 3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()]
    return nn.Sequential(*layers)


def step(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    loss = model(x).square().mean()
    loss.backward()
    return loss.detach()


def peak(model: nn.Module, x: torch.Tensor, own: nn.Module) -> int:
    step(model, x)
    own.zero_grad()
    with StorageTracker("cpu") as tracker:
        step(model, x)
    return tracker.peak


def test_nested_plans_run_as_they_are() -> None:
    model, x = convnet(), torch.randn(4, 3, 16, 16)
    blocks = split(model, x)
    inner = Checkpoint(kept(1, 3))
    nodes = (Checkpoint((Keep(0), inner, Keep(3))), *kept(4, 6))
    planned = apply(model, Plan(nodes, "by hand"), blocks=blocks)
    wanted = step(planned, x)
    model.zero_grad()
    compiled = torch.compile(planned, backend="aot_eager")
    alone = peak(planned, x, model)
    model.zero_grad()
    assert step(compiled, x).isfinite() and wanted.isfinite()
    model.zero_grad()
    assert peak(compiled, x, model) == alone
    # What was compiled with another setting would be used again.
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="runs a planned model as it is"):
        torch.compile(planned, backend="aot_eager", fullgraph=True)(x)
