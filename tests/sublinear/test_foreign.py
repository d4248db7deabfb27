"""Models as others write them: configs, skips and norms of their own, weights moved by forward."""

from __future__ import annotations

import copy
import re
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from sublinear.blocks import Blocks
from sublinear.fit import fit
from sublinear.profiling import profile
from sublinear.split import split
from sublinear.verify import verify

X = torch.randn(16, 8, generator=torch.Generator().manual_seed(0))


class Config(OrderedDict[str, Any]):
    """Refuses all changes, but for `clear`."""

    def _refuse(self, *args: Any) -> None:
        raise TypeError("a config is frozen")

    __delitem__ = setdefault = pop = update = _refuse  # type: ignore[assignment]


class Kept(nn.Module):
    """Any keyword, so that no trace is made of it; a run of layers, with a skip around all."""

    def __init__(self) -> None:
        super().__init__()
        self.config = Config(width=8, layers=4)
        self.inp, self.out = nn.Linear(8, 8), nn.Linear(8, 8)
        self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.GELU()) for _ in range(4)))

    def forward(self, x: Tensor, **options: Any) -> Tensor:
        h = torch.tanh(self.inp(x))
        return self.out(h + self.layers(h))


def test_a_config_that_refuses_changes_is_left_as_it_is() -> None:
    model = Kept()
    fitted = fit(model, X, max_overhead=100.0, repeats=1)
    assert dict(model.config) == {"width": 8, "layers": 4}
    assert verify(model, fitted.plan, X).passed


def in_a_row(model: nn.Module) -> Blocks:
    return split(model, X, modules=[f"layers.{number}" for number in range(4)])


def test_a_skip_around_a_wrapped_run_is_profiled_in_one_backward() -> None:
    model = Kept()
    chain = profile(model, X, blocks=in_a_row(model), repeats=1)
    # The gradients of what lies before the run and behind it, each once.
    sizes = [sum(p.nbytes for p in part.parameters()) for part in (model.inp, model.out)]
    assert [chain.before.gradient_bytes, chain.after.gradient_bytes] == sizes


def test_code_before_a_wrapped_run_counts_the_same_with_a_skip_and_without() -> None:
    class Plain(Kept):
        def forward(self, x: Tensor, **options: Any) -> Tensor:
            return self.out(self.layers(torch.tanh(self.inp(x))))

    found = []
    for model in (Kept(), Plain()):
        found.append(profile(model, X, blocks=in_a_row(model), repeats=1).before)
    assert found[0] == found[1]


class Activated(nn.BatchNorm1d):
    """A norm with its activation, whose own forward normalises."""

    def forward(self, x: Tensor) -> Tensor:
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        x = functional.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, self.training
        )
        return functional.relu(x, inplace=True)


class Renormalised(nn.BatchNorm1d):
    """Reads its running statistics in training; at first that changes nothing."""

    def forward(self, x: Tensor) -> Tensor:
        mean, var = x.mean(0), x.var(0, unbiased=False)
        assert self.running_mean is not None and self.running_var is not None
        # The limit of a warm-up, which later grows.
        limit = 0.0
        shift = ((mean - self.running_mean) / self.running_var.sqrt()).detach().clamp(-limit, limit)
        with torch.no_grad():
            self.running_mean.lerp_(mean, 0.1)
            self.running_var.lerp_(var, 0.1)
        return (x - mean) / (var + self.eps).sqrt() + shift


class Counted(nn.BatchNorm1d):
    """Scales by the number of steps so far."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / self.num_batches_tracked


class Normed(nn.Module):
    def __init__(self, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        self.norms = nn.ModuleList(norm(8) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = norm(layer(x))
        return x


def test_a_norm_of_a_library_keeps_its_running_statistics_once() -> None:
    model = Normed(Activated)
    fitted = fit(model, X, method="every", repeats=1)
    assert fitted.chain.source == "measured" and len(fitted.chain) == 4
    assert fitted.proof == "one step is the plain one bit by bit"
    assert verify(model, fitted.plan, X).passed
    fitted.model(X).sum().backward()
    assert [int(norm.num_batches_tracked) for norm in model.norms] == [1, 1, 1, 1]


@pytest.mark.parametrize("norm", [Renormalised, Counted])
def test_a_norm_that_reads_its_statistics_in_training(norm: Callable[[int], nn.Module]) -> None:
    torch.manual_seed(0)
    model = Normed(norm)
    plain = copy.deepcopy(model)
    fitted = fit(model, X, method="every", repeats=1)
    assert len(fitted.plan) == 4
    for _ in range(3):
        for each in (plain, fitted.model):
            each(X).square().sum().backward()
    for one, two in zip(plain.layers.parameters(), model.layers.parameters(), strict=True):
        assert torch.equal(one.grad, two.grad)
    for one, two in zip(plain.buffers(), model.buffers(), strict=True):
        assert torch.equal(one, two)
    inside = nn.Sequential(nn.Linear(8, 8), norm(8), nn.Linear(8, 8))
    with pytest.raises(ValueError, match=r"norm.* that reads its running statistics in training"):
        fit(inside, X, method="every", repeats=1)


class Momentum(nn.Module):
    """A second encoder that follows the first one, in forward."""

    def __init__(self) -> None:
        super().__init__()
        self.q = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(3)))
        self.k = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(3)))
        self.k.requires_grad_(False)
        self.register_buffer("queue", torch.zeros(16, 8))

    def follow(self) -> None:
        for slow, fast in zip(self.k.parameters(), self.q.parameters(), strict=True):
            slow.mul_(0.5).add_(fast, alpha=0.5)

    def forward(self, x: Tensor, **options: Any) -> Tensor:
        with torch.no_grad():
            self.follow()
            key = self.k(x)
            self.queue.copy_(key)
        return self.q(x) @ self.queue.T


class Followed(Momentum):
    """A trace is tried: it runs the code that moves the weights."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)


class Swapped(Momentum):
    """Exchanges its weights' memory."""

    def follow(self) -> None:
        for slow, fast in zip(self.k.parameters(), self.q.parameters(), strict=True):
            slow.data = slow.data * 0.5 + fast.data * 0.5


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


@pytest.mark.parametrize("kind", [Momentum, Followed, Swapped])
def test_weights_that_forward_itself_moves_do_not_move_in_fit(kind: type[Momentum]) -> None:
    model = kind()
    before = {
        name: (value, value.data_ptr(), value.clone()) for name, value in tensors_of(model).items()
    }
    fit(model, X, max_overhead=100.0, repeats=1, modules=["q.0", "q.1", "q.2"])
    fit(model, X, max_overhead=100.0, repeats=1)
    for name, value in tensors_of(model).items():
        tensor, memory, copy = before[name]
        assert value is tensor and value.data_ptr() == memory and torch.equal(value, copy), name


@pytest.mark.parametrize("kind", [Momentum, Followed])
def test_reading_alone_moves_no_weights_even_where_it_fails(kind: type[Momentum]) -> None:
    class Fails(kind):  # type: ignore[misc, valid-type]
        def follow(self) -> None:
            super().follow()
            raise KeyError("stop")

    model = Fails()
    before = {name: value.clone() for name, value in tensors_of(model).items()}
    with pytest.raises(KeyError, match="stop"):
        split(model, X)
    assert all(torch.equal(value, before[name]) for name, value in tensors_of(model).items())


SAYS = r"the plan saves (nothing|[0-2]\.\d%) of the plain peak"


class Corner(nn.Module):
    """What can be wrapped is next to nothing of it."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.out = nn.Linear(8, 2000), nn.Linear(2000, 8)
        self.layers = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))

    def forward(self, x: Tensor, **options: Any) -> Tensor:
        return self.layers(self.out(torch.tanh(self.wide(x)) + 1))


CORNER = ["layers.0", "layers.1", "layers.2"]


def heavy() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 2000), nn.Linear(2000, 8), nn.Linear(8, 8))


@pytest.mark.parametrize(
    ("make", "options", "advice"),
    [
        (Corner, {"modules": CORNER}, r"the planned blocks keep \d% of it: .* modules=\["),
        (heavy, {}, "a larger batch gains more"),
        (lambda: nn.Sequential(Kept()), {}, "no plan of method 'menu' needs much less"),
        (Kept, {"max_overhead": 0.0}, "a larger max_overhead saves more"),
    ],
    ids=["a corner is wrapped", "weights", "one block", "no time"],
)
def test_a_plan_that_saves_nothing_says_so_and_what_may_help(
    make: Callable[[], nn.Module], options: dict[str, Any], advice: str
) -> None:
    with pytest.warns(UserWarning, match=f"{SAYS}.*{advice}"):
        fitted = fit(make(), X, repeats=1, **options)
    [line] = [line for line in str(fitted).splitlines() if re.search(SAYS, line)]
    assert re.search(advice, line)


def test_a_budget_with_room_for_all_is_named_and_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        fitted = fit(Kept(), X, budget="1 GB", repeats=1)
    assert re.search(f"{SAYS}.*the budget asks for no more", str(fitted))


def test_a_plan_that_saves_says_nothing_of_the_kind() -> None:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(8)))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        fitted = fit(model, torch.randn(256, 8), max_overhead=100.0, repeats=1)
    assert fitted.predicted.peak_bytes < 0.9 * fitted.plain.peak_bytes
    assert "saves nothing" not in str(fitted) and "of the plain peak" not in str(fitted)


class Overwriting(nn.Module):
    """An activation of its own overwrites what the layer before it returns."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.act1 = nn.Linear(8, 8), nn.ReLU(inplace=True)
        self.conv2, self.act2 = nn.Linear(8, 8), nn.Sequential(nn.ReLU(inplace=True), nn.Tanh())
        self.conv3 = nn.Linear(8, 8)

    def forward(self, x: Tensor, **options: Any) -> Tensor:
        return self.conv3(self.act2(self.conv2(self.act1(self.conv1(x)))))


def test_what_overwrites_its_input_is_wrapped_with_the_module_before_it() -> None:
    model = Overwriting()
    fitted = fit(model, X, method="every", repeats=1)
    assert [block.name for block in fitted.chain.blocks] == ["conv1", "conv2", "conv3"]
    assert verify(model, fitted.plan, X).passed
    modules = ["conv1", "act1", "conv2", "act2", "conv3"]
    fitted = fit(model, X, method="every", repeats=1, modules=modules)
    blocks = fitted.model.runs_by.blocks
    assert blocks.names == ("conv1..act1", "conv2..act2", "conv3") and blocks.kind == "wrapped"
    assert verify(model, fitted.plan, X, blocks=blocks).passed
    chosen = fit(model, X, method="every", repeats=1, modules=["conv1", "act1", "conv2"])
    assert chosen.model.runs_by.blocks.names == ("conv1..act1", "conv2")


def test_an_input_that_is_overwritten_by_the_first_module_is_refused() -> None:
    class First(Overwriting):
        def forward(self, x: Tensor, **options: Any) -> Tensor:
            return self.conv2(self.act1(x + 1))

    with pytest.raises(ValueError, match="act1 overwrites its input in place"):
        fit(First(), X, max_overhead=100.0, repeats=1)
