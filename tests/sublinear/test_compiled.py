"""torch.compile around a planned model: the same training, the same peak, in one graph."""

import pytest
import torch
from torch import nn

from labkit.memory import StorageTracker
from sublinear.apply import apply
from sublinear.fit import fit
from sublinear.nodes import Checkpoint
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


MODELS = {
    "sequential": (convnet, lambda: torch.randn(4, 3, 16, 16)),
}


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


@pytest.mark.parametrize("name", MODELS)
def test_one_graph_with_the_same_gradients_and_peak(name: str) -> None:
    make, inputs = MODELS[name]
    torch.manual_seed(0)
    model, x = make(), inputs()
    found = fit(model, x, method="single-level", repeats=1)
    assert found.plan.depth == 1
    planned = found.model
    compiled = torch.compile(planned, fullgraph=True, backend="aot_eager")

    buffers = {name: value.clone() for name, value in model.named_buffers()}
    step(planned, x)
    wanted = [parameter.grad for parameter in model.parameters()]
    after = {name: value.clone() for name, value in model.named_buffers()}
    model.load_state_dict(buffers, strict=False)
    model.zero_grad()
    step(compiled, x)
    for parameter, gradient in zip(model.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)
    for name, value in model.named_buffers():
        torch.testing.assert_close(value, after[name])

    model.zero_grad()
    alone = peak(planned, x, model)
    model.zero_grad()
    assert peak(compiled, x, model) <= 1.03 * alone


def test_nested_plans_run_as_they_are() -> None:
    model, x = convnet(), torch.randn(4, 3, 16, 16)
    blocks = split(model, x)
    nodes = Plan.from_json({"method": "by hand", "nodes": [[0, [1, 2], 3], 4, 5]}).nodes
    assert isinstance(nodes[0], Checkpoint)
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
    with pytest.raises(torch._dynamo.exc.Unsupported, match="plans of one level"):
        torch.compile(planned, backend="aot_eager", fullgraph=True)(x)
