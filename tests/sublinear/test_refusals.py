"""What a plan cannot keep right is refused by name, or handled.

Nothing of an attempt stays behind.
"""

import copy
import re

import pytest
import torch
from planner_models import Tied, UNet, images, kept
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from course import models
from labkit.restore.generators import rng_state
from sublinear.apply import apply
from sublinear.equal import nearly_same
from sublinear.fit import fit
from sublinear.plan import Checkpoint, Plan
from sublinear.profiling import profile
from sublinear.profiling.bench import Bench
from sublinear.split import split
from sublinear.verify import verify

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


def linear(count: int = 3) -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(4, 4) for _ in range(count)))


def every(count: int) -> Plan:
    return Plan(tuple(Checkpoint((keep,)) for keep in kept(0, count)), "every")


class Buffered(nn.Linear):
    """Counts its calls in a buffer."""

    def __init__(self) -> None:
        super().__init__(4, 4)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.seen.add_(1)
        return super().forward(x)


class Elsewhere(nn.Linear):
    """Counts its calls in a buffer of another module."""

    def __init__(self, other: nn.Linear) -> None:
        super().__init__(4, 4)
        other.register_buffer("seen", torch.zeros(()))
        # Hidden: it is no part of this one.
        self.others = (other,)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.others[0].seen.add_(1)
        return super().forward(x)


class Attributed(nn.Linear):
    """Counts its calls in an attribute."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls = self.calls + 1
        return super().forward(x)


class Changing(nn.Linear):
    """Other results each time, without a random generator that torch knows."""

    count = [0]  # noqa: RUF012  # shared on purpose

    def forward(self, x: Tensor) -> Tensor:
        self.count[0] += 1
        return super().forward(x) * self.count[0]


class Doubling(nn.Linear):
    """Overwrites its input."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.mul_(2))


# ---------------------------------------------------------------------------------- refused by name


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        (Buffered(), "block 1 changes the buffer 1.seen in forward"),
        (Attributed(4, 4), "block 1 changes Attributed.calls in forward"),
        (Changing(4, 4), "block 1 does not compute the same twice"),
        (Doubling(4, 4), "block 1 overwrites its input in place"),
    ],
    ids=["buffer", "attribute", "non-deterministic", "input"],
)
def test_impure_blocks(odd: nn.Module, words: str) -> None:
    model = nn.Sequential(nn.Linear(4, 4), odd, nn.Linear(4, 4))
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match=re.escape(words)):
        profile(model, X.clone())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_block_that_changes_a_buffer_of_another_one() -> None:
    first = nn.Linear(4, 4)
    model = nn.Sequential(first, Elsewhere(first), nn.Linear(4, 4))
    with pytest.raises(ValueError, match=re.escape("block 1 changes the buffer 0.seen in forward")):
        profile(model, X.clone())
    assert not first.seen.any()


class Own(nn.Module):
    """Normalises by buffers of its own, and counts its forwards."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.steps = nn.ModuleList(linear()), 0
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("var", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        self.steps += 1
        x = nn.functional.batch_norm(self.layers[0](x), self.mean, self.var, training=True)
        return self.layers[2](self.layers[1](x))


def test_buffers_and_attributes_that_forward_changes_are_changed_once() -> None:
    model = Own()
    plain = copy.deepcopy(model)
    planned = apply(model, every(3), X)
    assert model.steps == 0 and torch.equal(model.mean, torch.zeros(4))
    for each in (plain, planned):
        for _ in range(3):
            each(X).sum().backward()
    assert model.steps == plain.steps == 3
    assert torch.equal(model.mean, plain.mean) and torch.equal(model.var, plain.var)


@pytest.mark.parametrize(
    "kind", ["forward_hook", "forward_pre_hook", "full_backward_hook", "full_backward_pre_hook"]
)
def test_hooks(kind: str) -> None:
    model = linear()
    getattr(model[1], f"register_{kind}")(lambda *args: None)
    with pytest.raises(ValueError, match=r"^1 has .*hooks.*would run again"):
        split(model)
    with pytest.raises(ValueError, match=r"^1 has .*hooks"):
        apply(model, every(3))


def test_in_place_on_the_models_input() -> None:
    with pytest.raises(
        ValueError, match=r"^0 overwrites the model's input in place.*inplace=False"
    ):
        split(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 4)))

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            y = x.view(-1, 4)
            y += 1
            return self.last(self.first(y))

    # A plain step changes it once, and so does a planned one.
    one, two = X.clone(), X.clone()
    model = Own()
    planned = apply(model, every(2), X.clone())
    assert torch.equal(model(one), planned(two)) and torch.equal(one, two)
    planned(two).sum().backward()
    assert torch.equal(two, X + 2)


def test_models_that_are_wrapped_or_planned_already() -> None:
    model = linear()
    with pytest.raises(ValueError, match="a plan is applied to it already"):
        apply(apply(model, every(3)), every(3))
    with pytest.raises(ValueError, match=r"^1: a plan is applied"):
        split(nn.Sequential(nn.Linear(4, 4), apply(model, every(3))))
    with pytest.raises(ValueError, match=r"DataParallel: plan the module inside"):
        split(nn.DataParallel(model))
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    with pytest.raises(ValueError, match=r"^1 is a CheckpointWrapper: it checkpoints already"):
        split(nn.Sequential(nn.Linear(4, 4), checkpoint_wrapper(nn.Linear(4, 4))))
    with pytest.raises(ValueError, match="parameters without a shape yet"):
        split(nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 4)))


def test_nothing_to_train() -> None:
    with pytest.raises(ValueError, match=r"evaluation mode.*model\.train\(\)"):
        profile(linear().eval(), X)
    with pytest.raises(ValueError, match="no tensor that needs a gradient"):
        profile(linear().requires_grad_(False), X)


LAYERS = [f"layers.{number}" for number in range(3)]


def test_wrapped_modules_fed_otherwise_than_planned() -> None:
    class Skips(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers, self.skip = nn.ModuleList(linear()), False

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 1e9:
                return x
            for i, layer in enumerate(self.layers):
                x = x if self.skip and i == 2 else layer(x + 1 if self.skip and i == 1 else x)
            return x

    model = Skips()
    planned = apply(model, every(3), blocks=split(model, X, modules=LAYERS))
    model.skip = True
    with pytest.raises(
        RuntimeError, match=r"uses what layers\.0 returns, and not only to feed layers\.1"
    ):
        planned(X)
    assert all("forward" not in vars(module) for module in model.modules())


def test_wrapped_modules_whose_results_are_used_elsewhere() -> None:
    class Collects(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(linear())

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 1e9:
                return x
            seen = []
            for layer in self.layers:
                x = layer(x)
                seen.append(x)
            return x + seen[0]

    model = Collects()
    with pytest.raises(
        ValueError, match=r"uses what layers\.0 returns, and not only to feed layers\.1"
    ):
        split(model, X, modules=LAYERS)
    assert all("forward" not in vars(module) for module in model.modules())


def test_a_hook_that_would_step_while_blocks_are_tried() -> None:
    model, fired = linear(), []
    model[1].weight.register_post_accumulate_grad_hook(fired.append)
    with pytest.raises(ValueError, match=r"parameter 1\.weight has a hook"):
        profile(model, X)
    assert not fired


# ------------------------------------------------------------------------------------------ handled


def test_tied_parameters_and_repeated_modules() -> None:
    model = Tied(4, nn.BatchNorm1d)
    blocks = split(model, X)
    assert len(blocks) == 4
    assert verify(model, every(4), X).passed
    chain = profile(model, X, repeats=1)
    shared = sum(parameter.nbytes for parameter in model.parameters())
    assert sum(block.gradient_bytes for block in chain.blocks) == shared


def test_an_argument_other_than_planned() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(linear())

        def forward(self, x: Tensor, mask: Tensor | None = None, scale: float = 1.0) -> Tensor:
            for layer in self.layers:
                x = layer(x) * scale
            return x if mask is None else x * mask

    model = Masked()
    planned = apply(model, every(3))
    for options in ({}, {"mask": torch.ones(4)}, {"scale": 2.0}, {}):
        assert torch.equal(planned(X, **options), model(X, **options))
    assert min(planned.runs_by.calls) >= 2


def test_in_place_relu_stays_with_the_block_before() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.relu = nn.Linear(4, 4), nn.Linear(4, 4), nn.ReLU(inplace=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.relu(self.b(self.relu(self.a(x))))

    class Positional(Net):
        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.relu(self.b(nn.functional.relu(self.a(x), True)), True)

    for model in (
        Net(),
        Positional(),
        nn.Sequential(nn.Linear(4, 4), nn.ReLU(True), nn.Linear(4, 4), nn.ReLU(True)),
    ):
        assert verify(model, every(2), X).passed


def test_a_module_that_checkpoints_itself() -> None:
    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(lambda value: self.b(self.a(value).tanh()), x, use_reentrant=False)

    model = nn.Sequential(nn.Linear(4, 4), Inner(), nn.Linear(4, 4))
    assert verify(model, Plan((Checkpoint(kept(0, 2)), *kept(2, 3)), ""), X).passed


# -------------------------------------------------------------------------------------- interrupted


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize(
    "make", [lambda: UNet(), lambda: models.convnet(4)], ids=["u-net", "convnet"]
)
def test_an_interrupted_profile_leaves_the_model_untouched(make, error, monkeypatch) -> None:
    model, x = make(), images(2, 16)
    next(model.parameters()).grad = torch.ones_like(next(model.parameters()))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    attributes = [dict(vars(module)) for module in model.modules()]
    begin = rng_state()["torch"].clone()
    calls = iter(range(1000))

    def interrupted(*args):
        if next(calls) == 5:
            raise error("stopped")
        return original(*args)

    original = Bench.tried
    monkeypatch.setattr(Bench, "tried", interrupted)
    with pytest.raises(error, match="stopped"):
        fit(model, x, budget=1 << 30)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [dict(vars(module)) for module in model.modules()] == attributes
    assert torch.equal(rng_state()["torch"], begin)
    grads = [parameter.grad for parameter in model.parameters()]
    assert torch.equal(grads[0], torch.ones_like(grads[0])) and grads[1:] == [None] * len(grads[1:])


def test_an_interrupted_backward_does_not_spoil_the_next_step() -> None:
    class Fails(torch.autograd.Function):
        fail = True

        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            if Fails.fail:
                raise KeyboardInterrupt
            return grad

    class Fragile(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return Fails.apply(super().forward(x))

    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), Fragile(4, 4), nn.Linear(4, 4))
    planned = apply(model, Plan((*kept(0, 1, 1), Checkpoint(kept(1, 2)), *kept(2, 3)), ""))
    with pytest.raises(KeyboardInterrupt):
        planned(X).sum().backward()
    Fails.fail = False
    assert verify(model, planned.runs_by.plan, X).passed
    assert not planned.runs_by.local.again


def test_a_budget_below_the_floor_names_the_block() -> None:
    with pytest.raises(ValueError, match=r"floor.*block \d+ \('.*'\)"):
        fit(models.convnet(4), images(4, 16), budget=1000, repeats=1)


# -------------------------------------------------------------------------- the same up to rounding


@pytest.mark.parametrize("size", [1e-30, 1e-4, 1.0, 1e4])
def test_nearly_the_same_is_told_by_the_largest_value(size: float) -> None:
    value = size * torch.tensor([1.0, -0.5, 0.0])
    assert nearly_same(value, value + 0.005 * size)
    assert not nearly_same(value, -value) and not nearly_same(value, value + 0.05 * size)
    assert not nearly_same(value, torch.zeros(3)) and not nearly_same(torch.zeros(3), value)


def test_rounding_beside_large_gradients_is_nearly_the_same() -> None:
    noise = 1e-7 * torch.tensor([1.0, -1.0])
    large, small = torch.tensor([0.5]), torch.tensor([1e-5])
    assert nearly_same(noise, -noise, [small, large])
    assert not nearly_same(noise, -noise, [small]) and not nearly_same(noise, -noise)
    assert not nearly_same(large, -large, [large])
    assert nearly_same(noise, -noise, [large.to_sparse()])


def test_nearly_the_same_with_what_is_no_number() -> None:
    value = torch.tensor([1.0, torch.nan, torch.inf])
    assert nearly_same(value, value.clone()) and nearly_same(torch.zeros(0), torch.zeros(0))
    assert not nearly_same(value, torch.tensor([-1.0, torch.nan, torch.inf]))
    assert not nearly_same(value, torch.tensor([1.0, torch.nan, -torch.inf]))
