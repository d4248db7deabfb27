"""Schedule curves against formulas worked out by hand, and against a training loop; nothing of the
reader's moves.
"""

import math
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler

from labkit.restore.generators import rng_state
from labkit.schedule import plot_schedule, schedule_curve


def make_optimizer(kind: str = "SGD", lrs: tuple[float, ...] = (0.1,)) -> torch.optim.Optimizer:
    groups = [{"params": [torch.nn.Parameter(torch.ones(2))], "lr": lr} for lr in lrs]
    if kind == "SGD":
        return torch.optim.SGD(groups, lr=0.1, momentum=0.9)
    return getattr(torch.optim, kind)(groups, lr=0.1)


def cosine(start: float, end: float, part: float) -> float:
    return end + (start - end) / 2 * (1 + math.cos(math.pi * part))


def linear(start: float, end: float, part: float) -> float:
    return start + (end - start) * part


def one_cycle(i: int, shape: Callable[[float, float, float], float]) -> tuple[float, float]:
    """Peak 0.5 at step 29 of 100, from 0.5 / 25 down to 0.5 / 25 / 1e4; momentum the other way,
    0.95 to 0.85.
    """
    if i <= 29:
        return shape(0.02, 0.5, i / 29), shape(0.95, 0.85, i / 29)
    return shape(0.5, 2e-6, (i - 29) / 70), shape(0.85, 0.95, (i - 29) / 70)


SCHEDULERS: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "one cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.5, total_steps=60),
    "three phases": lambda o: lr_scheduler.OneCycleLR(o, 0.5, total_steps=60, three_phase=True),
    "cyclic": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.3, step_size_up=7, mode="triangular2"),
    "cyclic with a function": lambda o: lr_scheduler.CyclicLR(
        o, 0.01, 0.3, step_size_up=7, scale_fn=lambda x: 0.9**x
    ),
    "lambda": lambda o: lr_scheduler.LambdaLR(o, lambda i: 0.95**i),
    "multiplicative": lambda o: lr_scheduler.MultiplicativeLR(o, lambda i: 0.95),
    "steps": lambda o: lr_scheduler.MultiStepLR(o, [10, 30]),
    "cosine restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 10, 2),
    "polynomial": lambda o: lr_scheduler.PolynomialLR(o, 40, 2.0),
    "chained": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(o, 0.1, 5), lr_scheduler.ExponentialLR(o, 0.9)]
    ),
    "sequence": lambda o: lr_scheduler.SequentialLR(
        o,
        [lr_scheduler.LinearLR(o, 0.1, total_iters=10), lr_scheduler.CosineAnnealingLR(o, 30)],
        [10],
    ),
}


def frozen(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return id(value), value.tolist()
    if isinstance(value, dict):
        return [(frozen(key), frozen(entry)) for key, entry in value.items()]
    if isinstance(value, (list, tuple)):
        return [frozen(entry) for entry in value]
    return (
        id(value)
        if callable(value)
        else frozen(vars(value))
        if hasattr(value, "_schedulers")
        else repr(value)
    )


def everything(scheduler: Any, optimizer: torch.optim.Optimizer) -> list[Any]:
    attributes = [
        (name, frozen(value)) for name, value in vars(scheduler).items() if name != "optimizer"
    ]
    nested = [
        frozen(vars(inner) | {"optimizer": None}) for inner in getattr(scheduler, "_schedulers", [])
    ]
    rng = rng_state()
    generators = [repr(rng["python"]), repr(rng["numpy"]), rng["torch"].tolist()]
    own = {name: id(value) for name, value in vars(optimizer).items()}
    return [
        attributes,
        nested,
        own,
        frozen(optimizer.state),
        frozen(optimizer.param_groups),
        generators,
    ]


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
@pytest.mark.parametrize("stepped", [0, 4])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_curve_is_what_training_gets_and_changes_nothing(
    name: str, stepped: int, kind: str
) -> None:
    optimizer = make_optimizer(kind, lrs=(0.1, 0.02))
    scheduler = SCHEDULERS[name](optimizer)

    def train(steps: int) -> list[tuple[list[float], list[float]]]:
        used = []
        for _ in range(steps):
            groups = optimizer.param_groups
            used.append(
                (
                    [group["lr"] for group in groups],
                    [group["momentum"] if kind == "SGD" else group["betas"][0] for group in groups],
                )
            )
            optimizer.param_groups[0]["params"][0].grad = torch.ones(2)
            optimizer.step()
            scheduler.step()
        return used

    train(stepped)
    before = everything(scheduler, optimizer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        curve = schedule_curve(scheduler, 40)
        again = schedule_curve(scheduler, 40)
    assert everything(scheduler, optimizer) == before
    lrs, momenta = zip(*train(40), strict=True)
    assert curve.lrs.tolist() == list(lrs) == again.lrs.tolist()
    assert curve.momenta is not None and curve.momenta.tolist() == list(momenta)


@pytest.mark.parametrize(("strategy", "shape"), [("cos", cosine), ("linear", linear)])
@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
def test_one_cycle_against_the_formula(
    strategy: str, shape: Callable[[float, float, float], float], kind: str
) -> None:
    scheduler = lr_scheduler.OneCycleLR(
        make_optimizer(kind), 0.5, total_steps=100, anneal_strategy=strategy
    )
    curve = schedule_curve(scheduler, 100)
    lrs, momenta = zip(*(one_cycle(i, shape) for i in range(100)), strict=True)
    np.testing.assert_allclose(curve.lrs[:, 0], lrs, rtol=1e-12)
    np.testing.assert_allclose(curve.momenta[:, 0], momenta, rtol=1e-12)
    assert [tuple(phase) for phase in curve.phases] == [("warm-up", 0, 29), ("annealing", 29, 99)]


@pytest.mark.parametrize("strategy", ["cos", "linear"])
@pytest.mark.parametrize("cycle_momentum", [True, False])
def test_three_phases(strategy: str, cycle_momentum: bool) -> None:
    options = {
        "total_steps": 100,
        "pct_start": 0.4,
        "three_phase": True,
        "anneal_strategy": strategy,
    }
    scheduler = lr_scheduler.OneCycleLR(
        make_optimizer(), 0.5, cycle_momentum=cycle_momentum, **options
    )
    phases = schedule_curve(scheduler, 100).phases
    assert [tuple(phase) for phase in phases] == [
        ("warm-up", 0, 39),
        ("annealing", 39, 78),
        ("annihilation", 78, 99),
    ]
    for _ in range(50):
        scheduler.optimizer.step()
        scheduler.step()
    # What is left of it rises nowhere.
    assert schedule_curve(scheduler, 50).phases == ()


def test_triangles_against_the_formula() -> None:
    curve = schedule_curve(
        lr_scheduler.CyclicLR(make_optimizer(), 0.1, 0.5, step_size_up=4, step_size_down=8), 30
    )
    wave = [(i % 12) / 4 if i % 12 <= 4 else (12 - i % 12) / 8 for i in range(30)]
    np.testing.assert_allclose(curve.lrs[:, 0], 0.1 + 0.4 * np.array(wave), rtol=1e-12)
    np.testing.assert_allclose(curve.momenta[:, 0], 0.9 - 0.1 * np.array(wave), rtol=1e-12)
    assert curve.phases == ()


def test_lambda_against_the_formula() -> None:
    scheduler = lr_scheduler.LambdaLR(
        make_optimizer(lrs=(0.1, 0.4)), [lambda i: 0.5**i, lambda i: 1 / (1 + i)]
    )
    expected = [[0.1 * 0.5**i, 0.4 / (1 + i)] for i in range(20)]
    np.testing.assert_allclose(schedule_curve(scheduler, 20).lrs, expected, rtol=1e-12)


def test_warm_up_plateau_and_decay_in_sequence() -> None:
    optimizer = make_optimizer()
    parts = [
        lr_scheduler.LinearLR(optimizer, 0.1, total_iters=10),
        lr_scheduler.ConstantLR(optimizer, 1.0),
        lr_scheduler.CosineAnnealingLR(optimizer, 30),
    ]
    curve = schedule_curve(lr_scheduler.SequentialLR(optimizer, parts, [10, 20]), 51)
    expected = (
        [0.01 + 0.009 * i for i in range(10)]
        + [0.1] * 10
        + [cosine(0.1, 0.0, i / 30) for i in range(31)]
    )
    np.testing.assert_allclose(curve.lrs[:, 0], expected, atol=1e-15)
    assert [tuple(phase) for phase in curve.phases] == [
        ("warm-up", 0, 10),
        ("constant", 10, 20),
        ("annealing", 20, 50),
    ]


@pytest.mark.parametrize(
    "factor",
    [
        lambda i: 1.0,
        lambda i: 0.9**i,
        lambda i: 1 + i,
        lambda i: 1 + math.sin(i),
        lambda i: 1 - abs(i - 20) / 20,
        lambda i: 0,
    ],
    ids=["constant", "falling", "rising", "wave", "triangle that ends where it began", "zero"],
)
def test_other_shapes_have_no_phases(factor: Callable[[int], float]) -> None:
    assert schedule_curve(lr_scheduler.LambdaLR(make_optimizer(), factor), 41).phases == ()


def test_optimizers_without_momentum() -> None:
    curve = schedule_curve(lr_scheduler.ExponentialLR(make_optimizer("Adagrad"), 0.9), 5)
    assert curve.momenta is None
    mixed = make_optimizer(lrs=(0.1, 0.2))
    del mixed.param_groups[1]["momentum"]
    momenta = schedule_curve(lr_scheduler.ExponentialLR(mixed, 0.9), 5).momenta
    assert momenta is not None and (momenta[:, 0] == 0.9).all() and np.isnan(momenta[:, 1]).all()


def test_rates_held_in_tensors() -> None:
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.ones(1))], lr=torch.tensor(0.1))
    held = optimizer.param_groups[0]["lr"]
    curve = schedule_curve(lr_scheduler.ExponentialLR(optimizer, 0.5), 4)
    np.testing.assert_allclose(curve.lrs[:, 0], [0.1, 0.05, 0.025, 0.0125], rtol=1e-6)
    assert optimizer.param_groups[0]["lr"] is held and held.item() == pytest.approx(0.1)


def test_parameters_are_not_copied() -> None:
    optimizer = make_optimizer("Adam")
    optimizer.param_groups[0]["params"][0].grad = torch.ones(2)
    optimizer.step()

    class Refuses(torch.Tensor):
        def __deepcopy__(self, memo: dict[int, Any]) -> Any:
            raise AssertionError("a parameter or its state was copied")

    weight = optimizer.param_groups[0]["params"][0]
    optimizer.param_groups[0]["params"][0] = weight.detach().as_subclass(Refuses)
    optimizer.state[weight]["exp_avg"] = optimizer.state[weight]["exp_avg"].as_subclass(Refuses)
    assert schedule_curve(lr_scheduler.ExponentialLR(optimizer, 0.5), 3).lrs.shape == (3, 1)


def test_a_scheduler_that_clears_the_optimizer_clears_a_stand_in() -> None:
    class Restarts(lr_scheduler.ExponentialLR):
        def step(self, epoch: int | None = None) -> None:
            self.optimizer.state.clear()
            super().step(epoch)

    optimizer = make_optimizer("Adam")
    scheduler = Restarts(optimizer, 0.9)
    optimizer.param_groups[0]["params"][0].grad = torch.ones(2)
    optimizer.step()
    schedule_curve(scheduler, 5)
    assert len(optimizer.state) == 1


def test_random_schedules_leave_the_generators_alone() -> None:
    torch.manual_seed(0)
    scheduler = lr_scheduler.LambdaLR(
        make_optimizer(), lambda i: random.random() + np.random.rand() + torch.rand(()).item()
    )
    before = everything(scheduler, scheduler.optimizer)
    assert len(set(schedule_curve(scheduler, 20).lrs[:, 0])) == 20
    assert everything(scheduler, scheduler.optimizer) == before


def test_no_warning_where_the_reader_replaced_step() -> None:
    optimizer = make_optimizer()
    scheduler = lr_scheduler.ExponentialLR(optimizer, 0.5)
    optimizer.step = lambda: None  # type: ignore[method-assign,assignment]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        schedule_curve(scheduler, 5)
    untouched = lr_scheduler.ExponentialLR(make_optimizer(), 0.5)
    schedule_curve(untouched, 5)
    # The reader's own slip is still told.
    with pytest.warns(UserWarning, match="before `optimizer.step"):
        untouched.step()


def test_a_scheduler_that_ends_early() -> None:
    scheduler = lr_scheduler.OneCycleLR(make_optimizer(), 0.5, total_steps=10)
    before = everything(scheduler, scheduler.optimizer)
    with pytest.raises(
        ValueError, match=r"OneCycleLR ends after 11 of 30 steps: Tried to step 11 times"
    ):
        schedule_curve(scheduler, 30)
    assert everything(scheduler, scheduler.optimizer) == before
    assert schedule_curve(scheduler, 10).lrs.shape == (10, 1)


@pytest.mark.parametrize("steps", [0, -1, 2.5, True, None])
def test_steps_out_of_range(steps: Any) -> None:
    with pytest.raises(ValueError, match=f"steps={steps!r}"):
        schedule_curve(lr_scheduler.ExponentialLR(make_optimizer(), 0.5), steps)


def test_a_scheduler_that_waits_for_a_metric() -> None:
    scheduler = lr_scheduler.ReduceLROnPlateau(make_optimizer())
    with pytest.raises(ValueError, match=r"ReduceLROnPlateau ends after 1 of 10 .*'metrics'"):
        schedule_curve(scheduler, 10)


def test_something_that_is_no_scheduler() -> None:
    with pytest.raises(TypeError, match=r"expected a scheduler .* got SGD"):
        schedule_curve(make_optimizer(), 10)


# --------------------------------------------------------------------------------------------------
# the figure


@pytest.mark.parametrize("dark", [False, True])
def test_figure_of_one_cycle_names_its_phases(dark: bool) -> None:
    scheduler = lr_scheduler.OneCycleLR(make_optimizer(), 0.5, total_steps=100)
    rate, momentum = plot_schedule(scheduler, 100, dark=dark).axes
    assert (rate.get_title(), momentum.get_title()) == ("Learning rate", "Momentum")
    for axis, expected in ((rate, 0.5), (momentum, 0.95)):
        (line,) = axis.lines
        assert len(line.get_ydata()) == 100 and max(line.get_ydata()) == pytest.approx(expected)
        assert [text.get_text() for text in axis.texts] == ["warm-up", "annealing"]
        assert [(patch.get_x(), patch.get_x() + patch.get_width()) for patch in axis.patches] == [
            (0, 29),
            (29, 99),
        ]


def test_figure_shows_groups_that_differ() -> None:
    rate, momentum = plot_schedule(
        lr_scheduler.ExponentialLR(make_optimizer(lrs=(0.1, 0.2)), 0.9), 30
    ).axes
    assert [text.get_text() for text in rate.get_legend().get_texts()] == ["group 0", "group 1"]
    assert len(rate.lines) == 2 and len(momentum.lines) == 1 and momentum.get_legend() is None


@pytest.mark.parametrize("kind", ["Adagrad", "RMSprop"])
def test_figure_without_momentum(kind: str) -> None:
    (axis,) = plot_schedule(lr_scheduler.StepLR(make_optimizer(kind), 5), 30).axes
    assert axis.get_title() == "Learning rate" and not axis.texts
