"""The three lines for a reader's own model, and the search for the largest batch."""

import sys
import threading

import pytest
import torch
from planner_models import Looks, images

from course import models
from labkit.results import Workload
from labkit.turn import TURN, Busy
from sublinear.chain import Chain
from sublinear.fit import fit
from sublinear.plan import Plan
from sublinear.profiling import profile
from sublinear.searches.simple import keep_all
from sublinear.small_gpu import SmallGpu, Trial, emulate_small_gpu, search_batch, try_batch
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
        and result.memory_ratio < 0.93
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


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 64, 100, 1000])
def test_the_largest_batch_is_found_in_few_probes(limit: int) -> None:
    asked: list[int] = []

    def trial(batch: int) -> Trial:
        asked.append(batch)
        return Trial(batch, batch <= limit, 10 * batch, 16 * batch)

    found = search_batch(trial)
    assert (
        found.best is not None
        and found.best.batch_size == limit
        and found.best.allocated == 10 * limit
    )
    assert len(asked) == len(set(asked)) <= 2 * limit.bit_length() + 1
    assert f"batch {limit}" in str(found) and "measured" in str(found)


def test_no_batch_and_every_batch() -> None:
    nothing = search_batch(lambda batch: Trial(batch, False))
    assert nothing.best is None and "no batch fits" in str(nothing) and len(nothing.trials) == 1
    everything = search_batch(
        lambda batch: Trial(batch, True), start=3, limit=100, source="predicted"
    )
    assert (
        everything.best is not None
        and everything.best.batch_size == 100
        and "predicted" in str(everything)
    )
    with pytest.raises(ValueError, match=r"start=5, limit=3"):
        search_batch(lambda batch: Trial(batch, True), start=5, limit=3)


def make(batch_size: int) -> Workload:
    """A step that runs out of memory above 1 sample."""
    weight = torch.zeros(1000, requires_grad=True)

    def step() -> torch.Tensor:
        if batch_size > 1:
            raise torch.OutOfMemoryError(f"pretends that {batch_size} samples are too many")
        (weight * torch.ones(batch_size, 1000)).sum().backward()
        return torch.zeros(())

    return Workload(step, batch_size)


def test_each_probe_has_a_process_of_its_own() -> None:
    found = search_batch(lambda batch: try_batch(make, batch, None), limit=2)
    assert [(trial.batch_size, trial.fits) for trial in found.trials] == [(1, True), (2, False)]
    assert (
        found.best is not None
        and found.best.allocated is not None
        and found.best.allocated >= 2 * 4000
    )


def test_a_probe_that_is_wrong_otherwise_is_no_answer() -> None:
    def broken(batch_size: int) -> Workload:
        raise RuntimeError("shapes do not fit")

    with pytest.raises(RuntimeError, match="shapes do not fit"):
        try_batch(broken, 1, None)


def test_cards() -> None:
    card = SmallGpu(16)
    assert card.limit_bytes == int(15.5 * 2**30) and "16 GiB, 0.5 GiB of it assumed" in str(card)
    with pytest.raises(ValueError, match=r"gib=0\.25"):
        SmallGpu(0.25)
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="needs a CUDA device"):
            emulate_small_gpu(16)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_an_emulated_card_is_as_small_as_it_says() -> None:
    def fill(batch_size: int) -> Workload:
        def step() -> torch.Tensor:
            return torch.empty(batch_size * 2**28, device="cuda").sum()  # 1 GiB each

        return Workload(step, batch_size)

    found = search_batch(lambda batch: try_batch(fill, batch, SmallGpu(3.0)), limit=4)
    assert found.best is not None and found.best.batch_size == 2


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({"method": "best"}, ValueError, "method='best': choose one of"),
        ({"budget": "6 apples"}, ValueError, "budget='6 apples': a number of bytes is accepted"),
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
    monkeypatch.setattr(sys.modules["sublinear.fit"], "profile", no_profile)
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
        fitted.step_peak,
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
        ({"budget": "50 %"}, None),
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
    fit(models.mlp([4, 4, 4]), torch.ones(2, 4), repeats=1, prove=False, **asked)
    assert given[0] == overhead
