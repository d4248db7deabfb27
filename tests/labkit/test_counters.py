"""The counters against formulas, known sequences of operators, and torch's own FLOP counter."""

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from labkit import graphs
from labkit.counters import Counters, count


def launches(run: Callable[[], Any]) -> int:
    return count(run).launches


def host_reads(run: Callable[[], Any]) -> int:
    return count(run).host_reads


# --------------------------------------------------------------------------------------------------
# FLOPs


def test_flops_of_a_product() -> None:
    n, k, m = 3, 5, 7
    a, b = torch.ones(n, k, requires_grad=True), torch.ones(k, m, requires_grad=True)
    product = 2 * n * k * m
    assert count(lambda: a @ b).flops == product
    # And one for the gradient of each factor.
    assert count(lambda: (a @ b).sum().backward()).flops == 3 * product


def test_flops_of_a_convolution() -> None:
    conv = nn.Conv2d(3, 8, kernel_size=5, bias=False)
    images = torch.ones(2, 3, 12, 12)
    # Outputs (N, C, H, W), times what each one multiplies and adds.
    forward = 2 * (2 * 8 * 8 * 8) * (3 * 5 * 5)
    assert count(lambda: conv(images)).flops == forward
    # No gradient of the images.
    assert count(lambda: conv(images).sum().backward()).flops == 2 * forward
    images.requires_grad_()
    assert count(lambda: conv(images).sum().backward()).flops == 3 * forward


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_composite_operators_count_alike_in_every_mode(mode: Callable[[], Any]) -> None:
    layer, x = nn.Linear(8, 4), torch.ones(3, 8)
    with mode():
        counters = count(lambda: layer(x).reshape(2, 6))
    assert (counters.flops, counters.launches) == (2 * 3 * 8 * 4, 1)


def test_flops_against_torch() -> None:
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    x = torch.randn(2, 10, 32)
    with FlopCounterMode(display=False) as truth:
        model(x).sum().backward()
    assert count(lambda: model(x).sum().backward()).flops == truth.get_total_flops() > 0


def test_recomputation_costs_one_more_forward() -> None:
    block, x = (
        nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8)),
        torch.ones(4, 8, requires_grad=True),
    )
    forward = count(lambda: block(x)).flops
    plain = count(lambda: block(x).sum().backward())
    lean = count(
        lambda: checkpoint(block, x, use_reentrant=False, early_stop=False).sum().backward()
    )
    assert (plain.flops, lean.flops) == (3 * forward, 4 * forward)
    assert lean.saved_bytes < plain.saved_bytes


# --------------------------------------------------------------------------------------------------
# launches


def test_only_what_computes_is_a_launch() -> None:
    x = torch.ones(4, 6)
    assert launches(lambda: torch.relu(x * 2 + 1)) == 3
    assert launches(lambda: x.view(2, 12).t()[0].unsqueeze(0).expand(5, 2).detach()) == 0
    assert launches(lambda: torch.empty(3).resize_(5)) == 0
    assert launches(lambda: torch.empty_like(x)) == 0
    assert launches(lambda: torch.zeros(3)) == 1
    assert launches(lambda: x.t().contiguous()) == 1
    # A copy, because the transpose cannot be flattened in place.
    assert launches(lambda: x.t().reshape(-1)) == 1
    assert launches(lambda: x.reshape(-1)) == 0
    assert launches(lambda: x.to(torch.float64)) == 1
    assert launches(lambda: x.to(torch.float32)) == 0
    assert launches(lambda: x.sum().item()) == 1


def test_backward_launches() -> None:
    x, weight = torch.ones(4, 6), torch.ones(6, 2, requires_grad=True)
    # mm, sum; the gradient of the loss (ones), of the weight (mm)
    assert launches(lambda: (x @ weight).sum().backward()) == 4
    # ... and a second time the addition to the gradient that is there
    assert launches(lambda: (x @ weight).sum().backward()) == 5


def test_dropout_launches() -> None:
    x = torch.ones(4, 6)
    assert launches(lambda: F.dropout(x, 0.5, training=False)) == 0
    # On a CPU: draw, scale, multiply.
    assert launches(lambda: F.dropout(x, 0.5, training=True)) == 3


@pytest.mark.parametrize("tensors", [2, 5])
def test_foreach_against_a_loop(tensors: int) -> None:
    parameters = [torch.ones(3, requires_grad=True) for _ in range(tensors)]
    for parameter in parameters:
        parameter.grad = torch.ones(3)
    loop, fused = (torch.optim.SGD(parameters, 0.1, foreach=foreach) for foreach in (False, True))
    assert launches(loop.step) == tensors
    assert launches(fused.step) == 1


# --------------------------------------------------------------------------------------------------
# host reads


def test_host_reads() -> None:
    x, mask, where = torch.ones(6), torch.ones(6) > 0, torch.tensor([0, 2])
    assert host_reads(lambda: x * 2) == 0
    assert host_reads(lambda: [x.sum().item() for _ in range(3)]) == 3
    assert host_reads(lambda: float(x[0]) + int(x[1])) == 2
    assert host_reads(lambda: bool((x > 0).any())) == 1
    assert host_reads(lambda: x.nonzero()) == 1
    assert host_reads(lambda: x.unique()) == 1
    assert host_reads(lambda: torch.equal(x, x)) == 1
    assert host_reads(lambda: x[mask]) == 1
    assert host_reads(lambda: x.masked_select(mask)) == 1
    assert host_reads(lambda: x[where]) == 0
    assert host_reads(lambda: torch.where(mask, x, 0)) == 0
    assert host_reads(lambda: x.repeat_interleave(torch.tensor([1] * 6))) == 1
    assert host_reads(lambda: x.repeat_interleave(torch.tensor([1] * 6), output_size=6)) == 0


def test_copies_from_a_device_are_host_reads() -> None:
    # A CUDA device without one.
    with FakeTensorMode():
        there, here = torch.ones(4, device="cuda"), torch.ones(4)
        assert host_reads(lambda: there.cpu()) == 1
        assert host_reads(lambda: there.to("cpu", torch.float64)) == 1
        assert host_reads(lambda: here.copy_(there)) == 1
        assert host_reads(lambda: here.copy_(there, non_blocking=True)) == 0
        assert host_reads(lambda: torch.ops.aten.copy(here, there)) == 1
        assert host_reads(lambda: torch.ops.aten.copy(there, here)) == 0
        assert host_reads(lambda: there.to("cpu", non_blocking=True)) == 0
        assert host_reads(lambda: there.double()) == 0
    # The other way nothing is waited for.
    here, away = torch.ones(4), torch.ones(4, device="meta")
    assert (
        host_reads(lambda: here.double())
        == host_reads(lambda: away.copy_(here))
        == host_reads(lambda: here.to(away))
        == 0
    )


# --------------------------------------------------------------------------------------------------
# the function


def training() -> tuple[Callable[[], torch.Tensor], nn.Module]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters())
    inputs, targets = torch.randn(32, 8), torch.randint(4, (32,))

    def step() -> torch.Tensor:
        loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, model


def test_counts_repeat_exactly() -> None:
    first, second = training(), training()
    # The second step finds the optimizer's state: it launches less.
    for _ in range(2):
        assert count(*first) == count(*second)


def test_the_step_runs_once_and_trains_as_always() -> None:
    plain, reference = training()
    plain()
    plain()
    state = torch.get_rng_state()
    counted, model = training()
    counted()
    counters = count(counted, model)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(
        torch.equal(a, b) for a, b in zip(reference.parameters(), model.parameters(), strict=True)
    )
    assert counters.parameter_bytes == (8 * 16 + 16 + 16 * 4 + 4) * 4
    # Saved: the inputs, the ReLU's output, the noise, the input of the last layer;
    # log-probabilities and targets, and the total weight, a single number that the loss divides by.
    assert counters.saved_bytes == 4 * 32 * (8 + 16 + 16 + 16 + 4) + 8 * 32 + 4


def test_errors_come_through_and_nothing_stays() -> None:
    def broken() -> None:
        raise ZeroDivisionError

    before = torch._C._len_torch_dispatch_stack()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            count(broken)
    assert torch._C._len_torch_dispatch_stack() == before
    step, _ = training()
    assert count(step).launches > 0


@pytest.mark.parametrize(
    ("step", "model", "named"), [(3, None, "step=3"), (print, "net", "model='net'")]
)
def test_bad_arguments(step: Any, model: Any, named: str) -> None:
    with pytest.raises(TypeError, match=named):
        count(step, model)


def test_counters_are_a_record_with_a_table() -> None:
    counters = Counters(
        flops=1_234_567, launches=12, saved_bytes=2**20, host_reads=0, parameter_bytes=2048
    )
    assert str(counters).splitlines() == [
        "FLOPs               1,234,567",
        "launches                   12",
        "saved for backward   1.00 MiB",
        "host reads                  0",
        "parameters           2.00 KiB",
    ]
    assert "parameters" not in str(Counters(1, 2, 3, 4))
    with pytest.raises(FrozenInstanceError):
        counters.flops = 1  # type: ignore[misc]


def test_each_watch_counts_the_replays_inside(monkeypatch):
    class Graph:
        def replay(self):
            pass

    replay = Graph.replay
    monkeypatch.setattr(graphs, "kinds_of_graphs", lambda: [Graph])
    with graphs.watched_replays() as one:
        Graph().replay()
        with graphs.watched_replays() as other:
            Graph().replay()
        Graph().replay()
    Graph().replay()
    assert (one.count, other.count) == (3, 1)
    assert Graph.replay is replay
