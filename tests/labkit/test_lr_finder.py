"""The learning-rate range test: what it tries, what its rules read,
and that nothing remembers it.
"""

import math
import random
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import lr_scheduler

from labkit.lr_finder import CHECK_EVERY, LRFindResult, lr_find, lr_find_figure
from labkit.restore.generators import rng_state
from tests.labkit.kept import Kept

LRS = np.geomspace(1e-6, 10, 100)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


class Net(nn.Module):
    """Whatever holds state: BatchNorm, dropout, tied frozen weights, a buffer that is rebound,
    values, containers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 4)
        )
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.head = nn.Linear(4, 4)
        # tied.
        self.head.weight = self.frozen.weight
        self.register_buffer("seen", torch.zeros(()))
        # Four entries in one place.
        self.register_buffer("scale", torch.ones(1).expand(4), persistent=False)
        self.calls, self.hidden, self.window = (
            0,
            (torch.zeros(2), torch.zeros(2)),
            deque([0.0], maxlen=3),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.seen = self.seen + len(x)
        self.last = x.detach()
        self.hidden[0].add_(1)
        self.window.append(float(self.calls))
        return self.head(self.frozen(self.body(x))) * self.scale


def make_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, fail: BaseException | None = None
) -> Callable[[], Any]:
    """A step on fresh random data, using every generator,
    that raises ``fail`` in its seventh call.
    """
    calls = 0

    def step() -> torch.Tensor:
        nonlocal calls
        calls += 1
        x = torch.randn(16, 4) + random.random() + np.random.rand()
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), x)
        loss.backward()
        if fail is not None and calls == 7:
            raise fail
        optimizer.step()
        return loss

    return step


def frozen(value: Any) -> Any:
    """Something to compare bit for bit: tensors by type, shape, bytes and identity."""
    if isinstance(value, torch.Tensor):
        data = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        return id(value), str(value.dtype), tuple(value.shape), value.requires_grad, data
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, dict):
        return [(frozen(key), frozen(entry)) for key, entry in value.items()]
    if isinstance(value, (list, tuple, deque)):
        return [frozen(entry) for entry in value]
    if isinstance(value, torch.Generator):
        return value.get_state().numpy().tobytes()
    return repr(value)


def everything(model: nn.Module, optimizer: torch.optim.Optimizer, *others: Any) -> list[Any]:
    modules = [
        (
            name,
            module.training,
            sorted(vars(module)),
            frozen(module._parameters),
            frozen(module._buffers),
        )
        for name, module in model.named_modules()
    ]
    grads = [frozen(parameter.grad) for parameter in model.parameters()]
    states = [
        frozen(other if isinstance(other, torch.Generator) else other.state_dict())
        for other in others
    ]
    rng = rng_state()
    generators = [repr(rng["python"]), frozen(rng["numpy"]), rng["torch"].numpy().tobytes()]
    return [
        modules,
        frozen([vars(model).get(name) for name in ("calls", "hidden", "window")]),
        grads,
        frozen(optimizer.state),
        frozen(optimizer.param_groups),
        states,
        generators,
    ]


OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "Adam": lambda p: torch.optim.Adam(p, lr=1e-3),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-3, amsgrad=True, foreach=True),
    "tensor lr": lambda p: torch.optim.Adam(p, lr=torch.tensor(1e-3)),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, centered=True),
}
ENDINGS: dict[str, BaseException | None] = {
    "completes": None,
    "exception": RuntimeError("out of luck"),
    "interrupt": KeyboardInterrupt(),
}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("trained", [0, 3], ids=["fresh", "trained"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_everything_is_bit_identical_afterwards(name: str, trained: int, ending: str) -> None:
    model = Net()
    optimizer = OPTIMIZERS[name]([p for p in model.parameters() if p.requires_grad])
    step = make_step(model, optimizer)
    for _ in range(trained):
        # Leaves gradients behind: the step zeroes them first.
        step()
    model.body[1].eval()
    model.last = torch.zeros(1)
    before = everything(model, optimizer)
    fail = ENDINGS[ending]
    if fail is None:
        result = lr_find(make_step(model, optimizer), model, optimizer, max_lr=0.1, steps=20)
        assert len(result.losses) == 20 and result.losses[0] != result.losses[-1]
    else:
        with pytest.raises(type(fail)) as raised:
            lr_find(make_step(model, optimizer, fail), model, optimizer, steps=20)
        assert raised.value is fail
    assert everything(model, optimizer) == before
    if not trained:
        assert not optimizer.state and all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_keep_their_place_and_values(set_to_none: bool) -> None:
    model, x = nn.Linear(3, 1), torch.randn(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(x).sum().backward()
    before = everything(model, optimizer)

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=set_to_none)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    lr_find(step, model, optimizer, max_lr=0.1)
    assert everything(model, optimizer) == before


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_goes_on_as_if_it_had_not_run(name: str) -> None:
    def train(search: bool) -> list[Any]:
        torch.manual_seed(1)
        random.seed(1)
        np.random.seed(1)
        model = Net()
        optimizer = OPTIMIZERS[name]([p for p in model.parameters() if p.requires_grad])
        step = make_step(model, optimizer)
        losses = [step().item() for _ in range(3)]
        if search:
            lr_find(step, model, optimizer)
        losses += [step().item() for _ in range(5)]
        return [
            losses,
            [p.tolist() for p in model.parameters()],
            [b.tolist() for b in model.buffers()],
        ]

    assert train(search=True) == train(search=False)


def test_a_step_may_rearrange_model_and_optimizer() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = everything(model, optimizer)
    groups = optimizer.param_groups
    calls = 0

    def step() -> float:
        nonlocal calls
        calls += 1
        if calls == 12:
            model[0].weight.data = torch.ones(5)
            model[0].bias.requires_grad_(False)
            model[0].weight.grad = torch.ones(5)
            model[0].note = "new"
            model.half().eval()
            model[1].register_buffer("extra", torch.ones(1))
            optimizer.add_param_group({"params": [torch.zeros(1, requires_grad=True)], "lr": 3.0})
            optimizer.param_groups[0]["momentum"] = 0.5
            raise RuntimeError("half way")
        return 1.0

    with pytest.raises(RuntimeError, match="half way"):
        lr_find(step, model, optimizer)
    assert everything(model, optimizer) == before
    assert optimizer.param_groups is groups and len(groups) == 1


def test_nested_state_and_parameters_outside_the_model() -> None:
    model, temperature = nn.Linear(3, 1), nn.Parameter(torch.tensor(2.0))
    optimizer = torch.optim.LBFGS([*model.parameters(), temperature], lr=0.1, max_iter=3)
    x = torch.randn(8, 3)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (model(x) * temperature - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    before = everything(model, optimizer), frozen(temperature), frozen(temperature.grad)
    assert before[0][3]
    lr_find(lambda: optimizer.step(closure), model, optimizer, max_lr=1.0, steps=12)
    assert (everything(model, optimizer), frozen(temperature), frozen(temperature.grad)) == before


def test_sparse_gradients_and_state_survive() -> None:
    model = nn.Embedding(6, 2, sparse=True)
    optimizer = torch.optim.SparseAdam(model.parameters(), lr=0.1)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(torch.tensor([1, 4])).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    step()
    weight, grad, state = (
        model.weight.detach().clone(),
        model.weight.grad.to_dense(),
        optimizer.state_dict()["state"][0],
    )
    average = state["exp_avg"].clone()
    lr_find(step, model, optimizer, steps=10)
    assert torch.equal(model.weight, weight) and torch.equal(model.weight.grad.to_dense(), grad)
    assert model.weight.grad.is_sparse and torch.equal(
        optimizer.state_dict()["state"][0]["exp_avg"], average
    )


SCHEDULERS: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.5, total_steps=200),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.3, step_size_up=5),
    # Begins at zero
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda i: i / 10),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda i: 0.9),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, 0.1, total_iters=4), lr_scheduler.ExponentialLR(o, 0.9)], [4]
    ),
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=1),
}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("name", SCHEDULERS)
def test_scheduler_that_the_step_drives(name: str, ending: str) -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = SCHEDULERS[name](optimizer)
    inner, rates = make_step(model, optimizer, ENDINGS[ending]), Kept()

    def step() -> torch.Tensor:
        rates.put(optimizer.param_groups[0]["lr"])
        loss = inner()
        scheduler.step(*([loss.detach()] if name == "ReduceLROnPlateau" else []))
        return loss

    before = everything(model, optimizer, scheduler)
    if ending == "completes":
        # The scheduler is found in the step.
        lr_find(step, model, optimizer, max_lr=1e-2, steps=15)
        # ours, whatever the scheduler sets after each step.
        assert rates.entries() == pytest.approx(np.geomspace(1e-6, 1e-2, 15))
    else:
        with pytest.raises((RuntimeError, KeyboardInterrupt)):
            lr_find(step, model, optimizer)
    assert everything(model, optimizer, scheduler) == before


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("moment", ["after unscale_", "after update", "never"])
def test_gradient_scaler(warm: bool, moment: str) -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
    calls = 0

    def step() -> torch.Tensor:
        nonlocal calls
        calls += 1
        loss = model(torch.ones(2, 4)).square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        if calls == 20 and moment == "after unscale_":
            raise KeyboardInterrupt
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        if calls == 20 and moment == "after update":
            raise KeyboardInterrupt
        optimizer.zero_grad()
        return loss

    if warm:
        step()
    calls = 0
    before = everything(model, optimizer, scaler), frozen(vars(scaler))
    if moment == "never":
        assert len(lr_find(step, model, optimizer, max_lr=0.1).losses) == 100
    else:
        with pytest.raises(KeyboardInterrupt):
            lr_find(step, model, optimizer, max_lr=0.1)
    assert (everything(model, optimizer, scaler), frozen(vars(scaler))) == before
    # Torch refuses to unscale twice: an interrupted step must be forgotten.
    step()


def test_generators_and_plain_objects_in_also() -> None:
    class Average:
        def __init__(self) -> None:
            self.values, self.total, self.mean = [1.0], 1.0, torch.ones(2)

        def state_dict(self) -> dict[str, Any]:
            return vars(self)

    model, average, generator = nn.Linear(1, 1), Average(), torch.Generator().manual_seed(3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> torch.Tensor:
        loss = torch.rand((), generator=generator)
        average.values.append(loss.item())
        average.total += 1
        average.mean = average.mean + 1
        return loss

    before = everything(model, optimizer, average, generator)
    lr_find(step, model, optimizer, also=(average, generator))
    assert everything(model, optimizer, average, generator) == before


def test_gradient_accumulation() -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(32, 4), torch.randn(32, 1)

    def whole() -> torch.Tensor:
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    def accumulated() -> torch.Tensor:
        total = torch.zeros(())
        for part, target in zip(x.chunk(4), y.chunk(4), strict=True):
            loss = F.mse_loss(model(part), target) / 4
            loss.backward()
            total += loss.detach()
        optimizer.step()
        optimizer.zero_grad()
        return total

    one, four = (lr_find(step, model, optimizer, max_lr=0.5) for step in (whole, accumulated))
    assert four.losses == pytest.approx(one.losses, rel=1e-4)
    assert four.suggestion == pytest.approx(one.suggestion, rel=0.01)


# --------------------------------------------------------------------------------------------------
# the sweep


def scripted(
    loss: Callable[[float, int], Any], groups: int = 1
) -> tuple[Callable[[], Any], nn.Module, Any, Kept]:
    """A step whose loss is a function of the learning rate and the number of the step, and the
    rates that it saw.
    """
    model = nn.ParameterList([nn.Parameter(torch.zeros(1)) for _ in range(groups)])
    optimizer = torch.optim.SGD(
        [{"params": [p], "lr": 0.1 / 4**i} for i, p in enumerate(model)], lr=0.1
    )
    seen = Kept()

    def step() -> Any:
        rates = [float(group["lr"]) for group in optimizer.param_groups]
        seen.put(rates)
        return loss(rates[0], seen.qsize() - 1)

    return step, model, optimizer, seen


def run(loss: Callable[[float, int], Any], **options: Any) -> LRFindResult:
    step, model, optimizer, _ = scripted(loss)
    return lr_find(step, model, optimizer, **options)


def valley(lr: float, i: int = 0) -> float:
    """A smooth curve: a drop of 1.5 that is steepest at lr = 0.01, and a blow-up that begins near
    1.
    """
    return (
        2.3
        - 1.5 / (1 + math.exp(-3 * (math.log10(lr) + 2)))
        + math.exp(min(6.0, 5 * math.log10(lr)))
    )


def test_rates_grow_exponentially_and_groups_keep_their_ratio() -> None:
    step, model, optimizer, seen = scripted(lambda lr, i: 1.0, groups=3)
    result = lr_find(step, model, optimizer, min_lr=1e-4, max_lr=1.0, steps=41)
    rates = np.array(seen.entries())
    assert rates.shape == (41, 3) and result.lrs == tuple(rates[:, 0])
    np.testing.assert_allclose(rates[1:] / rates[:-1], 10**0.1)
    np.testing.assert_allclose(rates[[0, -1], 0], [1e-4, 1.0])
    np.testing.assert_allclose(rates / rates[:, :1], [[1, 1 / 4, 1 / 16]] * 41)
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.025, 0.00625]


def test_rates_that_are_all_zero_are_swept_alike() -> None:
    step, model, optimizer, seen = scripted(lambda lr, i: 1.0, groups=2)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    lr_find(step, model, optimizer)
    np.testing.assert_allclose(seen.entries(), np.stack([LRS, LRS], 1))
    assert [group["lr"] for group in optimizer.param_groups] == [0.0, 0.0]


def test_a_tensor_rate_is_filled_in_place() -> None:
    model, rate = nn.Linear(1, 1), torch.tensor(0.25)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    held, seen = optimizer.param_groups[0]["lr"], Kept()

    def step() -> float:
        assert optimizer.param_groups[0]["lr"] is held
        seen.put(held.item())
        return 1.0

    lr_find(step, model, optimizer)
    np.testing.assert_allclose(seen.entries(), LRS, rtol=1e-6)
    assert optimizer.param_groups[0]["lr"] is held and held.item() == 0.25


@pytest.mark.parametrize(
    "wrap",
    [
        float,
        np.float32,
        lambda x: torch.tensor(x),
        lambda x: torch.tensor([[x]], requires_grad=True),
        lambda x: torch.tensor(x).bfloat16(),
    ],
    ids=["float", "numpy", "tensor", "1x1 with gradient", "bfloat16"],
)
def test_kinds_of_loss(wrap: Callable[[float], Any]) -> None:
    result = run(lambda lr, i: wrap(valley(lr)), max_lr=0.5)
    assert result.losses == pytest.approx([valley(lr) for lr in result.lrs], rel=1e-2)
    assert result.diverged_at is None


def test_double_losses_keep_their_precision() -> None:
    result = run(lambda lr, i: torch.tensor(1.0 + i * 1e-12, dtype=torch.float64))
    assert result.losses == tuple(1.0 + i * 1e-12 for i in range(100))


def test_a_step_may_return_the_same_tensor_again() -> None:
    loss = torch.zeros(())

    def fill(lr: float, i: int) -> torch.Tensor:
        return loss.fill_(float(-i))

    assert run(fill).losses == tuple(-float(i) for i in range(100))


def test_losses_are_looked_at_in_a_few_transfers(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []
    for name in ("tolist", "item", "__float__", "cpu", "numpy", "__bool__"):
        original = getattr(torch.Tensor, name)

        def look(self: torch.Tensor, *args: Any, name: str = name, original: Any = original) -> Any:
            looks.append(name)
            return original(self, *args)

        monkeypatch.setattr(torch.Tensor, name, look)
    run(lambda lr, i: torch.ones(()), steps=200)
    assert looks == ["tolist"] * (200 // CHECK_EVERY + 1)


def test_divergence_ends_the_test() -> None:
    result = run(lambda lr, i: 2.0 if i < 40 else 2.0 * 1.5 ** (i - 39))
    # 2 * 1.5**4 is the first beyond four times the best.
    assert result.diverged_at == pytest.approx(LRS[43])
    assert len(result.losses) == 46 and result.lrs == tuple(LRS[:46])
    steps = Kept()
    run(lambda lr, i: steps.put(i) or (2.0 if i < 40 else 100.0))
    assert 43 <= steps.qsize() <= 43 + CHECK_EVERY


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_ends_the_test(bad: float) -> None:
    result = run(lambda lr, i: bad if i >= 57 else valley(lr))
    assert result.diverged_at == pytest.approx(LRS[57]) and len(result.losses) == 57
    assert all(map(math.isfinite, result.losses + result.smoothed))


def test_divergence_right_after_the_start() -> None:
    result = run(lambda lr, i: 1.0 if i < 2 else math.nan)
    assert (
        result.losses == (1.0, 1.0)
        and set(result.suggestions.values()) == {None}
        and result.suggestion is None
    )
    assert "no suggestion" in str(result)


@pytest.mark.parametrize("shift", [-10.0, -2.3, -1.0])
def test_negative_losses_do_not_count_as_divergence(shift: float) -> None:
    base, shifted = (
        run(lambda lr, i: valley(lr), max_lr=0.3),
        run(lambda lr, i: valley(lr) + shift, max_lr=0.3),
    )
    assert shifted.diverged_at is None and shifted.suggestions == pytest.approx(base.suggestions)


# --------------------------------------------------------------------------------------------------
# the rules


def test_rules_on_a_smooth_curve() -> None:
    result = run(lambda lr, i: valley(lr))
    truth = np.array([valley(lr) for lr in LRS])
    assert result.suggestions["steepest"] == pytest.approx(0.01, rel=0.2)
    assert result.suggestions["minimum_over_10"] == pytest.approx(
        LRS[truth.argmin()] / 10, rel=0.25
    )
    # The loss falls clearly from here to there.
    begin, end = 10**-3.3, LRS[truth.argmin()]
    assert result.suggestions["valley"] == pytest.approx(begin ** (1 / 3) * end ** (2 / 3), rel=0.6)
    # The window straddles the steepest.
    assert result.suggestions["slide"] == pytest.approx(0.01 / math.sqrt(10), rel=0.3)
    found = sorted(lr for lr in result.suggestions.values() if lr is not None)
    assert result.interval == (found[0], found[-1]) and found[0] <= result.suggestion <= found[-1]
    assert result.suggestion == pytest.approx(math.sqrt(found[1] * found[2]))


@pytest.mark.parametrize("curvature", [0.1, 1.0, 30.0])
def test_steepest_point_of_a_quadratic_is_known(curvature: float) -> None:
    """On h w^2 / 2 with lr = exp(c t) the loss follows exp(-2 h lr / c), which is steepest in
    log(lr) at c / (2 h).
    """
    weight = nn.ParameterList([nn.Parameter(torch.tensor(1.0, dtype=torch.float64))])
    optimizer = torch.optim.SGD(weight.parameters(), lr=1.0)

    def step() -> torch.Tensor:
        loss = curvature * weight[0].square() / 2
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    result = lr_find(
        step, weight, optimizer, min_lr=1e-5 / curvature, max_lr=100 / curvature, steps=200
    )
    growth = math.log(1e7) / 199
    assert result.suggestions["steepest"] == pytest.approx(growth / (2 * curvature), rel=0.2)
    # Where gradient descent turns unstable.
    assert result.diverged_at is not None and result.diverged_at > 2 / curvature
    assert weight[0].item() == 1.0


@pytest.mark.parametrize("height", [2.0, 10.0, 1000.0, -1.0])
@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("place", [1, 2, 5, 12, 25])
def test_an_early_spike_leaves_no_trace(place: int, width: int, height: float) -> None:
    clean = run(lambda lr, i: valley(lr))
    spiked = run(lambda lr, i: valley(lr) + height * (place <= i < place + width))
    assert spiked.diverged_at == clean.diverged_at
    for rule, lr in clean.suggestions.items():
        assert 1 / 1.1 < spiked.suggestions[rule] / lr < 1.1, rule


@pytest.mark.parametrize("width", [3, 5, 8])
@pytest.mark.parametrize("place", [10, 15, 20])
def test_a_wide_hump_moves_the_rules_little(place: int, width: int) -> None:
    clean = run(lambda lr, i: valley(lr))
    humped = run(lambda lr, i: valley(lr) + 4.0 * (place <= i < place + width))
    for rule, lr in clean.suggestions.items():
        assert 1 / 2.5 < humped.suggestions[rule] / lr < 2.5, rule


def test_a_spike_at_the_very_start_only_shifts_the_first_loss() -> None:
    clean, spiked = run(lambda lr, i: valley(lr)), run(lambda lr, i: 50.0 if i == 0 else valley(lr))
    assert spiked.suggestions == pytest.approx(clean.suggestions, rel=0.1)


def test_noise_moves_the_rules_less_than_a_factor_of_two_and_a_half() -> None:
    noise = np.random.default_rng(0).normal(size=(20, 100)) * 0.1
    clean = run(lambda lr, i: valley(lr))
    for row in noise:
        noisy = run(lambda lr, i, row=row: valley(lr) + row[i])
        for rule, lr in clean.suggestions.items():
            assert 1 / 2.5 < noisy.suggestions[rule] / lr < 2.5, rule


@pytest.mark.parametrize("steps", [30, 100, 400])
def test_rules_do_not_depend_on_the_number_of_steps(steps: int) -> None:
    base, other = run(lambda lr, i: valley(lr)), run(lambda lr, i: valley(lr), steps=steps)
    for rule, lr in base.suggestions.items():
        assert 1 / 1.8 < other.suggestions[rule] / lr < 1.8, rule


@pytest.mark.parametrize(
    "loss",
    [
        lambda lr, i: 1.0,
        lambda lr, i: 2.0 + 0.1 * math.sin(17.0 * i * i),
        lambda lr, i: 1.0 + lr,
        lambda lr, i: 1.0 + 0.01 * i,
    ],
    ids=["constant", "noise", "rising", "creeping up"],
)
def test_no_rule_speaks_where_nothing_falls(loss: Callable[[float, int], float]) -> None:
    result = run(loss)
    assert set(result.suggestions.values()) == {None}
    assert result.interval is None and result.suggestion is None
    assert "no suggestion" in str(result)


def test_pure_noise_is_seldom_read_as_a_fall() -> None:
    rows = np.random.default_rng(1).normal(size=(100, 100))
    readings = [run(lambda lr, i, row=row: 2.3 + 0.1 * row[i]).suggestion for row in rows]
    assert sum(lr is not None for lr in readings) <= 3


def test_a_minimum_beyond_max_lr_is_not_guessed() -> None:
    result = run(lambda lr, i: valley(lr), max_lr=0.02)
    assert result.suggestions["minimum_over_10"] is None
    assert result.suggestions["steepest"] == pytest.approx(0.01, rel=0.5)


def test_a_second_fall_after_the_valley_is_not_read() -> None:
    clean = run(lambda lr, i: valley(lr))
    again = run(lambda lr, i: valley(lr) if lr < 1 else 2.3 if lr < 3 else 0.5)
    assert again.suggestions == pytest.approx(clean.suggestions, rel=0.35)


def test_rules_far_apart_name_no_learning_rate() -> None:
    suggestions = {"steepest": 1e-4, "minimum_over_10": 2e-3, "valley": 1e-3, "slide": None}
    result = LRFindResult((1e-6, 1.0), (2.0, 1.0), (2.0, 1.0), suggestions, None)
    assert result.suggestion is None and result.interval == (1e-4, 2e-3)
    assert "no agreement" in str(result) and "factor of 20.0" in str(result)
    close = LRFindResult(
        (1e-6, 1.0), (2.0, 1.0), (2.0, 1.0), suggestions | {"steepest": 5e-4}, None
    )
    assert close.suggestion == pytest.approx(1e-3) and "lr = 1.0e-03" in str(close)


def test_text_table_names_every_rule() -> None:
    text = str(run(lambda lr, i: valley(lr)))
    for rule in ("steepest", "minimum_over_10", "valley", "slide"):
        assert rule in text
    assert (
        "diverged at" in text
        and len(text.splitlines()) == 6
        and max(map(len, text.splitlines())) <= 80
    )


def test_a_real_network_gets_a_rate_that_trains_it() -> None:
    x = torch.randn(256, 10)
    y = (x @ torch.randn(10, 3)).argmax(1)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step() -> torch.Tensor:
        chosen = torch.randint(len(x), (64,))
        loss = F.cross_entropy(model(x[chosen]), y[chosen])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    lr = lr_find(step, model, optimizer).suggestion
    # Adam's usual range on a small network.
    assert lr is not None and 1e-3 < lr < 0.1
    optimizer.param_groups[0]["lr"] = lr
    first = step().item()
    for _ in range(60):
        last = step().item()
    assert last < first / 2


# --------------------------------------------------------------------------------------------------
# bad input


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"min_lr": 0.0}, "min_lr=0.0"),
        ({"min_lr": -1.0}, "min_lr=-1.0"),
        ({"min_lr": 1.0, "max_lr": 1.0}, "max_lr=1.0"),
        ({"min_lr": 1.0, "max_lr": 0.1}, "max_lr=0.1"),
        ({"max_lr": math.inf}, "max_lr=inf"),
        ({"min_lr": math.nan}, "min_lr=nan"),
        ({"steps": 9}, "steps=9"),
        ({"steps": 20.0}, "steps=20.0"),
        ({"steps": True}, "steps=True"),
    ],
)
def test_settings_out_of_range(options: dict[str, Any], words: str) -> None:
    step, model, optimizer, seen = scripted(lambda lr, i: 1.0)
    with pytest.raises(ValueError, match=words):
        lr_find(step, model, optimizer, **options)
    assert seen.empty() and optimizer.param_groups[0]["lr"] == 0.1


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (None, "None"),
        (torch.ones(3), r"tensor\(\[1., 1., 1.\]\)"),
        (torch.ones(()) * 1j, "1.j"),
        ("2.3", "'2.3'"),
        (math.nan, "nan at the first step"),
        (torch.tensor(math.inf), "inf at the first step"),
    ],
    ids=["None", "vector", "complex", "text", "nan", "inf"],
)
def test_a_step_without_a_usable_loss(loss: Any, words: str) -> None:
    model = Net()
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.1)
    inner = make_step(model, optimizer)

    def step() -> Any:
        inner()
        return loss

    before = everything(model, optimizer)
    with pytest.raises(ValueError, match=words):
        lr_find(step, model, optimizer)
    assert everything(model, optimizer) == before


def test_arguments_of_the_wrong_kind() -> None:
    step, model, optimizer, _ = scripted(lambda lr, i: 1.0)
    with pytest.raises(TypeError, match="got function, SGD, ParameterList"):
        lr_find(step, optimizer, model)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="got NoneType, ParameterList, SGD"):
        lr_find(None, model, optimizer)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="cannot preserve 3"):
        lr_find(step, model, optimizer, also=[3])


def test_an_uninitialized_model_is_refused_before_anything_runs() -> None:
    model = nn.LazyLinear(3)
    step, _, optimizer, seen = scripted(lambda lr, i: 1.0)
    with pytest.raises(ValueError, match="uninitialized parameter"):
        lr_find(step, model, optimizer)
    assert seen.empty()


# --------------------------------------------------------------------------------------------------
# the figure


@pytest.mark.parametrize("dark", [False, True])
def test_figure_shows_curve_rules_and_interval(dark: bool) -> None:
    result = run(lambda lr, i: valley(lr))
    (axis,) = lr_find_figure(result, dark=dark).axes
    assert axis.get_xscale() == "log" and axis.get_xlabel() == "learning rate"
    texts = [text.get_text() for text in axis.get_legend().get_texts()]
    assert [text.split(":")[0] for text in texts] == [
        "loss of each step",
        "smoothed",
        *result.suggestions,
        "span of the rules",
        "suggestion",
    ]
    marks = {line.get_label().split(":")[0]: line.get_xdata()[0] for line in axis.lines[2:6]}
    assert marks == pytest.approx(result.suggestions)
    (span,) = axis.patches
    assert (span.get_x(), span.get_x() + span.get_width()) == pytest.approx(result.interval)
    # The blow-up does not flatten the curve.
    assert axis.get_ylim()[1] < 2 * max(result.smoothed)


@pytest.mark.parametrize(
    "loss", [lambda lr, i: 1.0, lambda lr, i: 1.0 if i < 2 else math.nan], ids=["flat", "two steps"]
)
def test_figure_without_suggestion(loss: Callable[[float, int], float]) -> None:
    (axis,) = lr_find_figure(run(loss)).axes
    assert axis.get_title() == "Learning-rate range test: no suggestion"
    assert len(axis.lines) == 2 and not axis.patches


@pytest.fixture
def cuda() -> Iterator[torch.device]:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    yield torch.device("cuda")
    torch.cuda.synchronize()


@pytest.mark.cuda
def test_cuda_model_and_generator_are_bit_identical_afterwards(cuda: torch.device) -> None:
    model = Net().to(cuda)
    optimizer = torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad], lr=1e-3, fused=True
    )
    scaler = torch.amp.GradScaler("cuda")

    def step() -> torch.Tensor:
        x = torch.randn(16, 4, device=cuda)
        with torch.autocast("cuda", torch.float16):
            loss = F.mse_loss(model(x).float(), x)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        return loss

    for _ in range(2):
        step()
    before = everything(model, optimizer, scaler), torch.cuda.get_rng_state().tolist()
    result = lr_find(step, model, optimizer, also=[scaler])
    assert len(result.losses) >= 10
    assert (everything(model, optimizer, scaler), torch.cuda.get_rng_state().tolist()) == before
