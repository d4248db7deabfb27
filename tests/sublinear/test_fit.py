"""The three lines for a reader's own model, and the search for the largest batch."""

import sys
import threading

import pytest
import torch
from planner_models import Looks, images

from course import models
from labkit.turn import TURN, Busy
from sublinear.chain import Chain
from sublinear.fit import fit
from sublinear.plan import Plan, keep_all
from sublinear.profiling import profile
from sublinear.verify import verify


def test_a_batch_is_fitted_into_a_budget() -> None:
    torch.manual_seed(0)
    model, x = models.convnet(8), images(16, 32)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    plain = fit(model, x, max_overhead=10.0, method="none", repeats=1).predicted.peak_bytes
    fitted = fit(model, x, budget=int(0.9 * plain), repeats=1)
    assert (
        fitted.predicted.peak_bytes <= 0.9 * plain == pytest.approx(0.9 * fitted.plain.peak_bytes)
    )
    report = str(fitted)
    assert "predicted (measured blocks)" in report and str(fitted.plan) in report
    result = fitted.measure(seconds=0.3)
    assert (
        result.peak_bytes <= 0.9 * plain * 1.02
        and abs(result.peak_error) < 0.05
        and result.comparison.memory_ratio < 0.93
    )
    assert "(predicted" in str(result)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert verify(model, fitted.plan, x).passed


def test_with_an_optimizer_and_a_loss() -> None:
    model, x = models.mlp([32] * 6 + [4]), torch.randn(256, 32)
    target = torch.randint(0, 4, (256,))
    optimizer = torch.optim.AdamW(model.parameters())
    fitted = fit(
        model,
        x,
        max_overhead=0.5,
        loss=lambda output: torch.nn.functional.cross_entropy(output, target),
        optimizer=optimizer,
        repeats=1,
    )
    result = fitted.measure(seconds=0.3)
    assert abs(result.peak_error) < 0.1, result
    assert not optimizer.state


def test_a_model_with_control_flow_is_captured() -> None:
    fitted = fit(Looks(), torch.randn(64, 5), max_overhead=1.0, repeats=1)
    assert fitted.kind == "captured" and not fitted.note


def test_a_budget_below_the_floor() -> None:
    with pytest.raises(
        ValueError, match=r"floor of method 'menu' is .* set by the \w+ of block \d+ \('"
    ):
        fit(models.convnet(4), images(4, 16), budget=10, repeats=1)


# ------------------------------------------------------------------------------------ largest batch


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({"method": "best"}, ValueError, "method='best': choose one of"),
        ({"budget": "6 apples"}, ValueError, "budget='6 apples': a number of bytes is accepted"),
        ({"repeats": 0}, ValueError, "repeats=0: a whole number from 1"),
        ({"budget": [6]}, TypeError, r"budget=\[6\]: use a number"),
        ({"budget": 10**9, "max_overhead": 0.2}, ValueError, "give one of them"),
    ],
)
def test_a_request_is_checked_before_the_profile(
    asked: dict[str, object],
    error: type[Exception],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_profile(*_: object, **__: object) -> None:
        raise AssertionError("profiled first")

    # The module, which the function of the same name hides.
    monkeypatch.setattr(sys.modules["sublinear.fit"], "profiled", no_profile)
    with pytest.raises(error, match=message):
        fit(models.mlp([4, 4]), torch.ones(2, 4), **asked)


# ------------------------------------------------------------------------- one measures at a time


def test_nothing_is_measured_beside_another_measurement() -> None:
    model, x = models.mlp([4, 4, 4]), torch.ones(2, 4)
    fitted = fit(model, x, max_overhead=100.0, repeats=1)
    measures = (
        lambda: profile(model, x, repeats=1),
        lambda: fit(model, x, max_overhead=100.0, repeats=1),
        lambda: verify(model, fitted.plan, x),
        lambda: fitted.measure(seconds=0.01),
        lambda: fitted.peak_of(fitted.model),
    )
    other = threading.Thread()
    TURN.take(other)
    try:
        for measure in measures:
            with pytest.raises(Busy, match="another measurement is running"):
                measure()
    finally:
        TURN.give_back_to(0, other)
    assert verify(model, fitted.plan, x).passed and TURN.holder is None


def test_the_profile_and_the_measurement_run_on_as_many_threads() -> None:
    threads = set()

    class Loss:
        def __call__(self, y: torch.Tensor) -> torch.Tensor:
            threads.add(torch.get_num_threads())
            return y.mean()

        __module__ = "torch"

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        fitted = fit(
            models.mlp([4, 4, 4]), torch.ones(2, 4), loss=Loss(), max_overhead=100.0, repeats=1
        )
        fitted.measure(seconds=0.01)
    finally:
        torch.set_num_threads(before)
    assert threads == {3}


@pytest.mark.parametrize(
    ("asked", "overhead"),
    [
        ({}, 0.3),
        ({"max_overhead": 0.1}, 0.1),
        ({"budget": "100 %"}, None),
        ({"method": "every"}, None),
    ],
)
def test_where_nothing_is_asked_for_a_plan_may_take_30_percent_longer(
    monkeypatch: pytest.MonkeyPatch, asked: dict[str, object], overhead: float | None
) -> None:
    given = []

    def find(chain: Chain, **limits: object) -> Plan:
        given.append(limits.get("max_overhead"))
        return keep_all(chain)

    monkeypatch.setattr(sys.modules["sublinear.fit"], "find", find)
    fit(models.mlp([4, 4, 4]), torch.ones(2, 4), repeats=1, **asked)
    assert given[0] == overhead


@pytest.mark.parametrize("wrong", ["gpt2", torch.nn.Linear, None])
def test_what_is_no_model_is_named(wrong: object) -> None:
    with pytest.raises(TypeError, match=r"is not an nn\.Module"):
        fit(wrong, torch.ones(2, 4))  # type: ignore[arg-type]
