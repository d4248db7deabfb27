"""One protocol: an arm in this process, in one of its own and in workers tells the same."""

import math

import pytest
import torch

from labkit import Lab, Workload
from labkit.arm import Arm, LocalArm
from labkit.remote import RemoteArm, Workers
from tests.labkit.counting import counting

pytestmark = pytest.mark.usefixtures("forked_python")
SCRIPT = """
import torch
from labkit import Workload
from labkit.remote import serve

{workload}

serve(make_workload)
"""

# The same text here and in the workers' script, so that it is the same workload.
WORKLOAD = """
def make_workload(processes, width):
    weight = torch.randn(width, width, requires_grad=True)
    inputs = torch.ones(16, width)

    def step():
        weight.grad = None
        loss = (inputs @ weight).square().mean()
        if width == 13:
            loss = loss * float("nan")
        if width == 17:
            raise LookupError("no such width")
        loss.backward()
        return loss.detach()

    return Workload(step, 16 / processes, "images")
"""
scope = {"torch": torch, "Workload": Workload}
exec(WORKLOAD, scope)
make_workload = scope["make_workload"]


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    script = tmp_path_factory.mktemp("arm") / "script.py"
    script.write_text(SCRIPT.format(workload=WORKLOAD), encoding="utf-8")
    started = Workers(script, processes=2, seconds=200, show=lambda line: None)
    yield started
    started.close()


def new_arm(place: str, workers: Workers, **settings) -> Arm:
    settings = {"processes": 2, "width": 8} | settings
    if place == "workers":
        return RemoteArm("make_workload", "an arm", settings, seed=3, workers=workers)
    kind = {"kernel": LocalArm, "process": RemoteArm}[place]
    return kind(lambda: make_workload(**settings), "an arm", settings, seed=3)


def test_every_place_measures_the_same_workload_alike(workers):
    seen = {}
    for place in ("kernel", "process", "workers"):
        arm = new_arm(place, workers)
        assert arm.start() > 0
        assert arm.block(3) > 0
        arm.check()
        told = arm.counters(), arm.peak(), arm.timeline()
        seen[place] = *told, arm.label, arm.settings, arm.unit, arm.device
        assert arm.samples == {"kernel": 8, "process": 8, "workers": 16}[place]
        arm.close()
        arm.close()
    counters = seen["kernel"][0]
    assert counters["flops"] == 2 * 2 * 16 * 8 * 8 and counters["launches"] > 3
    assert seen["process"] == seen["workers"] == seen["kernel"]
    assert seen["kernel"][3:] == ("an arm", {"processes": 2, "width": 8}, "images", "cpu")


@pytest.mark.parametrize("place", ["kernel", "process", "workers"])
def test_an_arm_can_be_built_again(place, workers):
    arm = new_arm(place, workers)
    arm.start()
    arm.close()
    assert arm.start() > 0 and arm.block(1) > 0
    arm.close()


@pytest.mark.parametrize("place", ["kernel", "process", "workers"])
def test_what_a_step_does_wrong_is_told(place, workers):
    broken = new_arm(place, workers, width=13)
    with pytest.raises(Exception, match="returned nan: its training is broken"):
        broken.start()
    broken.close()
    raising = new_arm(place, workers, width=17)
    with pytest.raises(Exception, match="no such width"):
        raising.start()
    raising.close()
    healthy = new_arm(place, workers)
    assert healthy.start() > 0
    healthy.close()


def test_a_lab_gives_the_same_counters_in_every_place(workers):
    found = []
    for runs_in in ("kernel", "process", workers):
        make = make_workload
        if runs_in is workers:
            make = "make_workload"
        lab = Lab(make, runs_in=runs_in, processes=[1, 2], width=[8, 16])
        with counting():
            result = lab.run(width=16, seconds=0.1)
        assert result.lab == "make_workload" and result.ratios
        assert all(map(math.isfinite, result.ratios))
        sides = []
        for side in result.arms:
            sides.append((side.label, side.settings, side.counters, side.peak_bytes))
        found.append(sides)
    assert found[0] == found[1] == found[2]
    assert found[0][0][2]["flops"] * 4 == found[0][1][2]["flops"]


def test_counters_only_on_request():
    lab = Lab(make_workload, memory=False, processes=[1], width=[8])
    assert lab.run(seconds=0.05).baseline.counters is None


@pytest.mark.parametrize(
    ("make", "runs_in", "error", "message"),
    [
        (make_workload, "thread", ValueError, "runs_in='thread': use 'kernel', 'process'"),
        (make_workload, True, ValueError, "runs_in=True"),
        ("make_workload", "process", TypeError, "the first argument is a function"),
        (3, "workers", TypeError, "the name of one that their script serves"),
    ],
)
def test_a_place_that_does_not_fit(make, runs_in, error, message, workers):
    if runs_in == "workers":
        runs_in = workers
    with pytest.raises(error, match=message):
        Lab(make, runs_in=runs_in, processes=[1], width=[8])


def test_a_name_that_is_not_served_is_told_with_those_that_are(workers):
    lab = Lab("make_model", runs_in=workers, processes=[1], width=[8])
    with pytest.raises(Exception, match=r"ask\('make_model'\).*serves \['make_workload'\]"):
        lab.run(seconds=0.05)
