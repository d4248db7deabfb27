"""Labs without widgets: settings, sweeps, races, faults."""

import doctest
import gc
import sys
import threading
from functools import partial

import pytest
import torch
from torch import nn

from labkit import Lab, Workload
from labkit.alternating import alternate
from labkit.arm import LocalArm
from labkit.journal import Failure, journal
from labkit.restore.switches import torch_flags
from labkit.results import Comparison
from tests.labkit.counting import counting


def make_workload(width=8, act="relu", wide=False):
    model = nn.Sequential(
        nn.Linear(16, width * (4 if wide else 1)), nn.ReLU() if act == "relu" else nn.Tanh()
    )
    data = torch.randn(32, 16)

    def step():
        loss = model(data).square().mean()
        loss.backward()
        return loss.detach()

    return Workload(step, 32, evaluate=lambda: float(model(data).detach().square().mean()))


@pytest.fixture
def lab():
    return Lab(make_workload, wide=[False, True], width=[8, 64, 256], act=["relu", "tanh"])


@pytest.fixture(autouse=True)
def everything_is_given_back():
    flags, generator, threads = torch_flags(), torch.get_rng_state(), set(threading.enumerate())
    yield
    assert torch_flags() == flags
    assert torch.equal(torch.get_rng_state(), generator)
    assert set(threading.enumerate()) == threads


def test_run_compares_the_first_values_with_the_settings(lab):
    result = lab.run(wide=True, seconds=0.1)
    assert isinstance(result, Comparison)
    assert result.baseline.settings == lab.defaults == {"wide": False, "width": 8, "act": "relu"}
    assert result.candidate.settings == {"wide": True, "width": 8, "act": "relu"}
    assert (result.baseline.label, result.candidate.label) == ("baseline", "wide=True")
    assert result.candidate.samples == 32


def test_peak_memory_is_that_of_one_arm_alone(lab):
    result = lab.run(width=256, seconds=0.05)
    # Warm step, forward and backward: input, weights with gradients, and the layer's output twice
    assert result.baseline.peak_bytes < result.candidate.peak_bytes
    weights = 4 * (16 * 256 + 256)
    assert result.candidate.peak_bytes >= 2 * weights + 4 * 32 * 16 + 2 * 4 * 32 * 256
    assert lab.run(width=256, seconds=0.05).candidate.peak_bytes == result.candidate.peak_bytes
    assert Lab(make_workload, memory=False, width=[8]).run(seconds=0.05).baseline.peak_bytes is None


def test_the_baseline_can_be_moved_and_values_need_not_be_listed(lab):
    result = lab.run(baseline={"width": 33}, width=33, wide=True, seconds=0.05)
    assert result.baseline.settings["width"] == result.candidate.settings["width"] == 33


def test_sweep(lab):
    results = lab.sweep("width", wide=True, seconds=0.05)
    assert [result.candidate.settings["width"] for result in results] == [8, 64, 256]
    assert {result.baseline.settings["width"] for result in results} == {8}
    follow = lab.sweep("width", wide=True, follow=True, seconds=0.05)
    assert [result.baseline.settings["width"] for result in follow] == [8, 64, 256]


def test_sweep_stops(lab):
    stop = threading.Event()
    results = lab.sweep("width", seconds=30, on_update=lambda partial: stop.set(), stop=stop)
    assert len(results) == 1 and results[0].stopped


@pytest.fixture
def built_once(monkeypatch):
    """To be timed; by itself a fast machine builds more often."""
    monkeypatch.setattr("labkit.lab.alternate", partial(alternate, most_builds=1))


def test_both_arms_are_built_anew_from_the_same_seed(built_once):
    first = []

    def make(flag):
        first.append(torch.rand(1).item())
        return Workload(lambda: None)

    lab = Lab(make, memory=False, flag=[False, True])
    lab.run(flag=True, seconds=0.05)
    lab.run(flag=True, seconds=0.05)
    assert len(first) == 4 and len(set(first)) == 1


def test_race_through_a_lab():
    def make(lr):
        weight = torch.randn(5, requires_grad=True)

        def step():
            weight.grad = None
            weight.square().sum().backward()
            with torch.no_grad():
                weight.sub_(lr * weight.grad)

        return Workload(step, evaluate=lambda: float(weight.detach().square().sum()))

    lab = Lab(make, lr=[0.01, 0.1])
    result = lab.race(
        {"lr": 0.1},
        target=1e-3,
        steps=1000,
        every=5,
        seeds=3,
        metric="loss",
        higher_is_better=False,
    )
    assert result.arms == ("baseline", "lr=0.1")
    assert result.median("lr=0.1", "steps") < result.median("baseline", "steps")
    with pytest.raises(TypeError, match="unknown setting 'momentum'"):
        lab.race({"momentum": 0.9}, target=1, steps=1)


def test_labels_tell_the_arms_apart(lab):
    labels = [arm.label for arm in lab.run(baseline={"width": 64}, seconds=0.05).arms]
    assert labels == ["baseline", "width=8"]
    assert lab.run(seconds=0.05).candidate.label == "same settings"
    options = {"target": -1, "steps": 1, "seeds": 1}
    assert lab.race({}, {"width": 64}, **options).arms == ("baseline", "same settings", "width=64")
    assert lab.race({"width": 8}, baseline={"width": 64}, **options).arms == ("width=64", "width=8")
    with pytest.raises(ValueError, match="in this race already"):
        lab.race({"width": 64}, {"width": 64}, **options)
    with pytest.raises(ValueError, match="runs_in='process'"):
        Lab(make_workload, runs_in="process", width=[8]).race({}, **options)


def test_two_measurements_at_once_are_refused(lab):
    refused = []

    def meanwhile(partial):
        def other():
            with pytest.raises(RuntimeError, match="another measurement is running"):
                lab.run(seconds=0.05)
            refused.append(True)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    lab.run(width=64, seconds=0.5, on_update=meanwhile)
    assert refused
    assert lab.run(seconds=0.05).ratios


def test_out_of_memory_while_building_and_in_the_memory_pass():
    def make(size):
        if size > 2**40:
            torch.empty(size)
        return Workload(lambda: None)

    result = Lab(make, size=[8, 2**55]).run(size=2**55, seconds=0.05)
    assert result.candidate.error == "out of memory" and result.baseline.times
    assert result.baseline.peak_bytes is not None and result.candidate.peak_bytes is None
    built = []

    def make_late(size):
        built.append(size)
        # Not while it is timed.
        if len(built) > 2:
            torch.empty(2**55)
        return Workload(lambda: None)

    result = Lab(make_late, size=[8, 16]).run(size=16, seconds=0.05)
    assert result.ratios and result.candidate.peak_bytes is None


def test_an_interrupt_in_a_later_value_of_a_sweep_keeps_the_finished_ones():
    def make(size):
        if size == 2:
            raise KeyboardInterrupt
        return Workload(lambda: None)

    lab = Lab(make, memory=False, size=[1, 2])
    assert len(lab.sweep("size", seconds=0.05)) == 1
    with pytest.raises(KeyboardInterrupt):
        lab.run(size=2, seconds=0.05)


def test_labs_count_for_a_journal(lab):
    first, second = [], []
    with journal(lambda result, about: first.append((result, about))):
        lab.run(wide=True, seconds=0.05)
        with journal(lambda result, about: second.append(result)):
            lab.run(wide=True, seconds=0.05)
    assert lab.run(wide=True, seconds=0.05).candidate.counters is None
    assert all(result.candidate.counters is not None for result, _ in first)
    assert len(first) == 2 and second == [first[1][0]]
    assert first[0][1] == {"seed": 0, "threads": 1}


@pytest.mark.parametrize(
    ("error", "told"),
    [(ValueError("not while counted"), "ValueError: not while counted"), (KeyboardInterrupt, None)],
)
def test_a_count_that_fails_or_is_interrupted_loses_no_times(monkeypatch, error, told):
    def fail(self):
        raise error

    monkeypatch.setattr(LocalArm, "counters", fail)
    lab = Lab(make_workload, memory=False, width=[8, 16])
    with counting():
        result = lab.run(width=16, seconds=0.05)
    assert result.ratios
    assert [side.counters for side in result.arms] == [told, told]


def test_a_journal_keeps_a_failure_too():
    kept = []

    def make(size):
        raise OSError("the disk is gone")

    with journal(lambda result, about: kept.append(result)), pytest.raises(OSError, match="gone"):
        Lab(make, size=[1]).run(seconds=0.05)
    assert kept == [Failure("make", {}, "OSError: the disk is gone")]


def test_a_stopped_run_is_not_kept(lab):
    kept, stop = [], threading.Event()
    stop.set()
    with journal(lambda result, about: kept.append(about)):
        assert lab.run(width=64, seconds=0.05, stop=stop).stopped
        lab.run(width=64, seconds=0.05)
        lab.race({"width": 64}, target=0, steps=1, seeds=1)
    assert kept == [{"seed": 0, "threads": 1}, {}]


def test_the_example_of_the_docstring():
    # The name labkit.lab is the module's, as Lab is the class's.
    failed, tried = doctest.testmod(sys.modules["labkit.lab"])
    assert not failed and tried


# ------------------------------------------------------------------------------------- bad input


def test_an_unknown_setting_lists_the_valid_ones(lab):
    with pytest.raises(TypeError, match=r"unknown setting 'batch'; .*'act', 'wide', 'width'"):
        lab.run(batch=3)
    with pytest.raises(TypeError, match="'act', 'wide', 'width'"):
        lab.sweep("batch")
    with pytest.raises(
        TypeError, match=r"sweep\('width'\) takes each value of width; width=8 is one"
    ):
        lab.sweep("width", width=8)


@pytest.mark.parametrize(
    ("controls", "error", "message"),
    [
        ({"width": []}, ValueError, r"width=\[\]"),
        ({"width": 8}, TypeError, r"width=\[8\]"),
        ({"act": "relu"}, TypeError, r"act=\['relu'\]"),
        ({"seconds": [1, 2]}, TypeError, "'seconds'"),
        ({"follow": [1, 2]}, TypeError, "'follow'"),
        ({"threads": [1, 2]}, TypeError, "threads is an argument of Lab"),
        ({"seed": [1, 2]}, TypeError, "seed is an argument of Lab"),
        ({"depth": [1]}, TypeError, "cannot be called with the controls 'depth'"),
    ],
)
def test_bad_controls(controls, error, message):
    with pytest.raises(error, match=message):
        Lab(make_workload, **controls)


def test_a_control_that_make_workload_needs_must_be_there():
    with pytest.raises(TypeError, match="missing a required argument: 'amp'"):
        Lab(lambda amp, size: Workload(lambda: None), size=[1])


def test_what_the_machine_cannot_show():
    reasons = {"wide": "needs a wide machine", "act": {"tanh": "no tanh here"}}
    lab = Lab(
        make_workload, wide=[False, True], act=["relu", "tanh"], width=[8, 16], unavailable=reasons
    )
    for settings, reason in (
        ({"wide": True}, "needs a wide machine"),
        ({"act": "tanh"}, "no tanh here"),
    ):
        with pytest.raises(ValueError, match=reason):
            lab.run(**settings)
    assert [result.candidate.settings["act"] for result in lab.sweep("act", seconds=0.05)] == [
        "relu"
    ]
    with pytest.raises(TypeError, match="'pin'"):
        Lab(make_workload, width=[8], unavailable={"pin": "x"})


def test_make_workload_that_raises_or_returns_something_else(lab):
    def broken(on):
        if on:
            torch.backends.cudnn.benchmark = True
            raise OSError("the disk is gone")
        return Workload(lambda: None)

    with pytest.raises(OSError, match="the disk is gone") as caught:
        Lab(broken, on=[False, True]).run(on=True, seconds=0.05)
    assert "(while measuring 'on=True')" in caught.value.__notes__
    with pytest.raises(TypeError, match=r"what makes .* returned None; it must return Workload"):
        Lab(lambda on: None, on=[1]).run(seconds=0.05)
    # The next run works.
    assert lab.run(seconds=0.05).ratios


def test_everything_an_arm_held_is_released(built_once):
    closed, alive = [], []

    class Resource:
        pass

    def make(size):
        import weakref

        resource = Resource()
        alive.append(weakref.ref(resource))

        def step(held=resource):
            return None

        return Workload(step, close=lambda: closed.append(size))

    Lab(make, size=[1, 2]).run(size=2, seconds=0.05)
    gc.collect()
    # In the timing and in the memory pass.
    assert sorted(closed) == [1, 1, 2, 2] and len(alive) == 4
    assert all(reference() is None for reference in alive)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "cubic"}, r"kind='cubic': use 'linear', 'square'$"),
        ({"kind": True}, "kind=True: use 'linear'"),
        ({"kind": 3}, "kind=3: use 'linear'"),
        ({"size": "8"}, "size='8': use 4, 8, or another number"),
        ({"on": "no"}, "on='no': use False, True$"),
        ({"on": 1}, "on=1: use False"),
    ],
)
def test_a_value_of_another_kind_is_refused_with_those_that_are_listed(settings, message):
    def make_workload(kind="linear", size=4, on=False):
        raise AssertionError("nothing should be built")

    lab = Lab(make_workload, kind=["linear", "square"], size=[4, 8], on=[False, True])
    with pytest.raises(ValueError, match=message):
        lab.run(**settings)
    assert lab.settings({"size": 5, "kind": "square"}) == {"kind": "square", "size": 5, "on": False}


# ------------------------------------------------------------- situation, scenarios and races


def make_both(precise=False, layers="small", rows=4, ahead=0):
    weight = torch.randn(rows, 4, requires_grad=True)

    def step():
        weight.grad = None
        weight.square().sum().backward()
        with torch.no_grad():
            weight.sub_(0.1 * weight.grad)

    return Workload(step, rows, evaluate=lambda: float(weight.detach().square().sum()))


LAYERS = {"layers": ["small", "large"], "rows": [4, 8, 16]}


@pytest.fixture
def both():
    return Lab(
        make_both,
        precise=[False, True],
        ahead=[0, 2],
        situation=LAYERS,
        scenarios={"large rows": {"layers": "large", "rows": 16}},
        race={
            "target": 1e-3,
            "steps": 400,
            "seeds": 2,
            "metric": "loss",
            "higher_is_better": False,
        },
        memory=False,
    )


def settings_of(result):
    return [side.settings for side in result.arms]


def test_a_situation_sets_both_sides_and_the_technique_one(both):
    assert both.technique == ("precise", "ahead")
    assert both.situation == ("layers", "rows")
    assert list(both.controls) == ["precise", "ahead", "layers", "rows"]
    before, after = settings_of(both.run(precise=True, rows=16, seconds=0.05))
    assert before == {"precise": False, "ahead": 0, "layers": "small", "rows": 16}
    assert after == before | {"precise": True}
    before, after = settings_of(both.run(rows=16, baseline={"rows": 8}, seconds=0.05))
    assert (before["rows"], after["rows"]) == (8, 16)


def test_a_scenario_is_named_first_and_then_changed(both):
    large = {"precise": False, "ahead": 0, "layers": "large", "rows": 16}
    before, after = settings_of(both.run("large rows", precise=True, seconds=0.05))
    assert before == large
    assert after == large | {"precise": True}
    before, after = settings_of(both.run("large rows", rows=4, seconds=0.05))
    assert before == after == large | {"rows": 4}
    with pytest.raises(ValueError, match=r"unknown scenario 'huge'; .*'large rows'"):
        both.run("huge")
    with pytest.raises(ValueError, match="settings are given by keyword"):
        both.run({"rows": 8})


def test_a_scenario_may_name_its_baseline(both):
    own = {"baseline": {"ahead": 2}, "precise": True, "rows": 8}
    both.offer("ahead before", **own)
    before, after = settings_of(both.run("ahead before", seconds=0.05))
    assert before == {"precise": False, "ahead": 2, "layers": "small", "rows": 8}
    assert after == before | {"precise": True, "ahead": 0}
    # What the call says comes last.
    changed = both.run("ahead before", baseline={"ahead": 0}, rows=4, seconds=0.05)
    before, after = settings_of(changed)
    assert before == {"precise": False, "ahead": 0, "layers": "small", "rows": 4}
    assert both.scenarios["ahead before"] == own


def test_a_sweep_of_the_situation_moves_both_sides(both):
    results = both.sweep("rows", precise=True, seconds=0.05)
    rows = [[side["rows"] for side in settings_of(result)] for result in results]
    assert rows == [[4, 4], [8, 8], [16, 16]]
    results = both.sweep("rows", layers="large", baseline={"rows": 4}, seconds=0.05)
    rows = [[side["rows"] for side in settings_of(result)] for result in results]
    assert rows == [[4, 4], [4, 8], [4, 16]]
    assert results[0].baseline.settings["layers"] == "large"


def test_a_race_takes_the_lab_s_options_and_its_situation(both):
    result = both.race({"precise": True, "rows": 8})
    assert result.arms == ("baseline", "precise=True")
    assert (result.target, result.metric, len(result.runs)) == (1e-3, "loss", 4)
    assert both.race({"precise": True}, target=1e9).target == 1e9
    with pytest.raises(ValueError, match="rows=16: another candidate has 8"):
        both.race({"rows": 8}, {"rows": 16})
    with pytest.raises(TypeError, match="'target' and 'steps'"):
        Lab(make_both, precise=[False, True]).race({"precise": True})


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"situation": {"rows": 4}}, TypeError, r"rows=4: list the control's values"),
        ({"situation": {"precise": [1]}}, TypeError, "'precise' is given twice"),
        ({"situation": {"seconds": [1]}}, TypeError, "cannot be named 'seconds'"),
        ({"situation": {"width": [1]}}, TypeError, "cannot be called with the controls"),
        ({"scenarios": {"a": {"row": 4}}}, TypeError, "'a' names 'row'; .*'precise', 'rows'"),
        ({"scenarios": {"a": {"rows": 5}}}, ValueError, r"rows=5, which is not listed: use 4, 8"),
        ({"scenarios": {"a": {"precise": 1}}}, ValueError, "precise=1, which is not listed"),
        (
            {"scenarios": {"a": {"baseline": {"rows": 4}}}},
            TypeError,
            "the baseline of scenario 'a' names 'rows'; the controls are 'precise'",
        ),
        (
            {"scenarios": {"a": {"baseline": {"precise": 1}}}},
            ValueError,
            "the baseline of scenario 'a' sets precise=1, which is not listed",
        ),
        ({"race": {"target": 1}}, TypeError, "missing a required argument: 'steps'; give"),
        ({"race": {"target": 1, "steps": 3, "step": 3}}, TypeError, "unexpected .* 'step'; give"),
        (
            {"race": {"target": 1, "steps": 3}, "runs_in": "process"},
            ValueError,
            "races run in the kernel",
        ),
    ],
)
def test_bad_situations_scenarios_and_races(options, error, message):
    options = {"situation": LAYERS} | options
    with pytest.raises(error, match=message):
        Lab(make_both, precise=[False, True], **options)
