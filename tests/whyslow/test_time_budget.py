"""The order of experiments and their budget: counted in steps, by a clock that only steps move."""

import io
import time

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import whyslow
from tests.whyslow.parts import full, trainer
from whyslow import experiments, session
from whyslow.experiment import ALL, HOST, MODEL, UPDATE, Experiment
from whyslow.findings import Diagnosis, Finding
from whyslow.stacks import BACKWARD, FORWARD, LOADING
from whyslow.stacks import HOST as HOST_WAITS
from whyslow.stacks import UPDATE as UPDATING
from whyslow.watching import MOST

# Seconds on the clock from which on a part of a step is looked at in each step.
LONG = 0.1


class Clock:
    """Seconds that pass in steps alone, and how often; positions of files are not put back."""

    def __init__(self):
        self._microseconds, self._steps = io.BytesIO(), io.BytesIO()

    def __call__(self):
        return self._microseconds.tell() / 1e6

    def passes(self, seconds):
        self._microseconds.seek(round(1e6 * seconds), io.SEEK_CUR)
        # Long enough to be looked at, once or in many steps: the sampler's pauses are real ones.
        time.sleep(1.2 * MOST if seconds >= LONG else seconds / 10)

    def step(self):
        self._steps.seek(1, io.SEEK_CUR)

    @property
    def steps(self):
        return self._steps.tell()


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(time, "perf_counter", made)
    return made


def slow_step(clock, seconds, kind=torch.optim.AdamW, **settings):
    """A step of so many seconds on the clock, most of them in the update, and its batches."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    optimizer = kind(model.parameters(), lr=0.01, **settings)

    def update(*_):
        clock.passes(0.75 * seconds)

    def forward(*_):
        clock.passes(0.25 * seconds)
        clock.step()

    model.register_forward_hook(forward)
    optimizer.register_step_post_hook(update)
    data = [(torch.randn(8, 4), torch.randint(2, (8,))) for _ in range(3)]
    return trainer(model, optimizer, precision=full), data


LOOP = "optimizer loops over parameters"


@pytest.mark.parametrize("seconds", [1.0, 4.0])
def test_the_largest_share_is_tried_first_however_slow_the_step(clock, seconds):
    step, data = slow_step(clock, seconds, foreach=False)
    found = whyslow.diagnose(step, data, seconds=20)
    assert found.phases[UPDATING] > 0.7
    assert LOOP in found.looked_for and LOOP not in found.unmeasured
    assert clock.steps >= 5 and clock() <= 30
    # What was not tried says what would be enough.
    assert all("seconds=" in why for why in found.unmeasured.values() if "time" in why)


@pytest.mark.parametrize("seconds", [5.0, 10.0, 60.0])
def test_where_not_even_one_pair_fits_the_first_line_says_so(clock, seconds):
    step, data = slow_step(clock, seconds, foreach=False)
    found = whyslow.diagnose(step, data, seconds=20)
    assert clock() <= max(30, seconds)
    tried = LOOP in found.looked_for
    assert (LOOP in found.unmeasured) is not tried
    first = str(found).splitlines()[0]
    assert tried or LOOP in first.partition("Not measured:")[2]
    assert tried or "seconds=" in found.unmeasured[LOOP]
    assert tried is (seconds == 5.0)


def test_a_single_pair_is_told_and_is_no_finding(clock):
    step, data = slow_step(clock, 5.0, foreach=False)
    found = whyslow.diagnose(step, data, seconds=20)
    # Two to look, one that warms up, and a pair.
    assert (clock.steps, len(found)) == (5, 0)
    assert any(note.startswith(f"{LOOP}: only tried in one pair") for note in found.notes)


def test_a_short_step_keeps_the_budget_too(clock):
    step, data = slow_step(clock, 0.05, foreach=False)
    found = whyslow.diagnose(step, data, seconds=20)
    assert clock() <= 30 and LOOP in found.looked_for
    assert "memory grows with every step" in found.looked_for


def test_an_optimizer_that_calls_a_closure_ends_in_time(clock):
    model = nn.Linear(4, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=6)
    inputs = torch.randn(16, 4)

    def closure():
        clock.passes(0.4)
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        loss.backward()
        return loss

    before = {name: each.clone() for name, each in model.state_dict().items()}
    found = whyslow.diagnose(lambda: optimizer.step(closure), seconds=20)
    assert clock() <= 30
    assert all(torch.equal(before[name], each) for name, each in model.state_dict().items())
    assert not optimizer.state
    assert sum(found.phases.values()) == pytest.approx(1)


def test_a_loader_that_is_slow_is_not_streamed_at_length(clock):
    class Slow(torch.utils.data.Dataset):
        def __len__(self):
            return 100

        def __getitem__(self, index):
            clock.passes(2.0)
            return torch.zeros(4), 1

    step, _ = slow_step(clock, 0.5)
    found = whyslow.diagnose(step, DataLoader(Slow()), seconds=20)
    assert clock() <= 30
    assert found[0].name == "waits for data"
    assert found[0].share == pytest.approx(0.8, abs=0.01)


# ------------------------------------------------------------------------------------- the order


@pytest.mark.parametrize(
    ("shares", "order"),
    [
        ({FORWARD: 0.2, BACKWARD: 0.2, UPDATING: 0.6}, ["update", "all", "model", "host"]),
        ({FORWARD: 0.4, BACKWARD: 0.2, UPDATING: 0.4}, ["model", "all", "update", "host"]),
        ({LOADING: 0.5, FORWARD: 0.4, UPDATING: 0.1}, ["all", "model", "update", "host"]),
        ({HOST_WAITS: 0.6, UPDATING: 0.3, FORWARD: 0.1}, ["host", "all", "update", "model"]),
    ],
)
def test_the_largest_share_comes_first(shares, order):
    def every(subject):
        yield Experiment("update", "so", part=UPDATE)
        yield Experiment("model", "so", part=MODEL)
        yield Experiment("host", "so", part=HOST)
        yield Experiment("all", "so", part=ALL)

    told = session.Session(print)
    told.phases = shares
    assert [each.name for each in told._every_experiment((every,))] == order


def test_what_works_on_everything_competes_with_the_largest_part():
    shares = {LOADING: 0.1, FORWARD: 0.2, BACKWARD: 0.3, UPDATING: 0.4}
    parts = (LOADING,), MODEL, UPDATE, ALL
    found = [Experiment("it", "so", part=part).share(shares) for part in parts]
    assert found == pytest.approx([0.1, 0.5, 0.4, 0.5])


@pytest.mark.parametrize("other", [None, "time", "memory"])
def test_a_larger_batch_is_tried_only_where_nothing_else_costs_time(monkeypatch, other):
    tried = []
    monkeypatch.setattr(experiments, "EXPERIMENTS", ())
    told = session.Session(print)
    if other is not None:
        told.found.append(Finding("it", 0.5, (0.4, 0.6), "so", "do\nthis", other))
    larger = Experiment("larger", "so", part=ALL)
    monkeypatch.setattr(experiments, "larger_batch", lambda subject: iter([larger]))
    monkeypatch.setattr(told, "_experiment", lambda each, rest: tried.append(each) or 0.0)
    told._experiments()
    assert tried == ([] if other == "time" else [larger])


def test_the_first_line_says_what_was_not_tried():
    found = Diagnosis((), 10.0, 20.0, unmeasured={"x": "too slow"})
    assert "Not measured: x." in found.sentence and "x (too slow)" in str(found)
