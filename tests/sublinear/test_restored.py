"""What a step trains while a plan is made is put back, also where it lies outside the model."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from sublinear.fit import fit
from sublinear.profiling import profile, restored, training
from sublinear.profiling.profiler import time_step
from sublinear.verify import verify

X = torch.ones(4, 8)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))


class Head(nn.Module):
    """A loss with weights, running statistics and a count of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(8)
        self.weight = nn.Parameter(torch.ones(8, 3))
        self.calls = 0

    def forward(self, y: Tensor) -> Tensor:
        self.calls += 1
        return (self.norm(y) @ self.weight).square().mean()


HEAD = Head()


def itself(head: Head) -> Callable[[Tensor], Tensor]:
    return head


def closed_over(head: Head) -> Callable[[Tensor], Tensor]:
    return lambda y: 2 * head(y)


def in_a_list(head: Head) -> Callable[[Tensor], Tensor]:
    heads = [head]
    return lambda y: sum(each(y) for each in heads)


def by_a_global_name(head: Head) -> Callable[[Tensor], Tensor]:
    return lambda y: HEAD(y)


def seen(head: Head) -> list[object]:
    """All that a step of ``head`` changes."""
    tensors = [tensor.detach().tolist() for tensor in [*head.parameters(), *head.buffers()]]
    return [tensors, [parameter.grad for parameter in head.parameters()], head.calls]


@pytest.mark.parametrize("steps", [True, False], ids=["with an optimizer", "without"])
@pytest.mark.parametrize("make", [itself, closed_over, in_a_list, by_a_global_name])
def test_a_loss_with_weights_of_its_own_is_put_back(make: Callable, steps: bool) -> None:
    model, head = mlp(), HEAD if make is by_a_global_name else Head()
    before = seen(head)
    loss, optimizer = make(head), None
    if steps:
        optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()])
    profile(model, X, loss=loss, optimizer=optimizer, repeats=1)
    assert seen(head) == before


def test_measuring_and_verifying_leave_the_loss_alone() -> None:
    model, head = mlp(), Head()
    before = seen(head)
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)
    fitted = fit(model, X, loss=head, optimizer=optimizer, max_overhead=100.0, repeats=1)
    assert fitted.measure(seconds=0.02).comparison.pairs
    assert verify(model, fitted.plan, X, loss=head).passed
    assert seen(head) == before


def test_both_models_of_a_verification_meet_the_same_loss() -> None:
    centre = nn.Module()
    centre.register_buffer("mean", torch.zeros(8))

    def loss(y: Tensor) -> Tensor:
        centre.mean.lerp_(y.detach().mean(0), 0.5)
        return (y - centre.mean).square().mean()

    model = mlp()
    plan = fit(model, X, loss=loss, max_overhead=100.0, repeats=1).plan
    assert verify(model, plan, X, loss=loss).passed and not centre.mean.any()


def test_a_second_model_in_the_optimizer_is_put_back() -> None:
    model, second = mlp(), nn.Linear(8, 8)
    weight = second.weight.detach().clone()
    gradient = second.weight.grad = torch.ones(8, 8)
    optimizer = torch.optim.SGD([*model.parameters(), *second.parameters()], lr=0.1)
    # Written out, so that the loss reaches no module.
    table = {"weight": second.weight}

    class Reads:
        __module__ = "torch"
        __slots__ = ()

        def __call__(self, y: Tensor) -> Tensor:
            return (y @ table["weight"]).mean()

    task = training(X, loss=Reads(), optimizer=optimizer)
    with restored(model, task):
        assert second.weight.grad is None
    time_step(model, task, 2)
    assert torch.equal(second.weight, weight)
    assert second.weight.grad is gradient and torch.equal(gradient, torch.ones(8, 8))


def test_gradients_of_the_inputs_are_put_back() -> None:
    x = X.clone().requires_grad_()
    profile(mlp(), x, repeats=1)
    assert x.grad is None


def test_the_optimizer_s_state_keeps_its_type_and_its_place() -> None:
    model = mlp().to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    state = optimizer.state
    for parameter in model.parameters():
        # Optimizers with master weights keep their state in fp32.
        mean = torch.full_like(parameter, 1 / 3, dtype=torch.float32)
        state[parameter] = {"step": torch.tensor(1.0), "exp_avg": mean, "exp_avg_sq": mean.square()}
    first = model[0].weight
    mean = state[first]["exp_avg"]
    with restored(model, training(X, optimizer=optimizer)):
        mean.zero_()
        state[first]["exp_avg"] = torch.zeros(1)
        optimizer.param_groups[0]["lr"] = 1.0
        state.clear()
    assert optimizer.state is state and list(state) == list(model.parameters())
    assert state[first]["exp_avg"] is mean and mean.dtype == torch.float32
    assert torch.equal(mean, torch.full((8, 8), 1 / 3)) and optimizer.param_groups[0]["lr"] == 0.1
