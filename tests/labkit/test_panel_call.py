"""The call that a panel shows as source does what the panel does."""

import pytest
import torch

from labkit import Lab, Workload
from labkit.panel.call import call_of


def make_workload(precise=False, layers="small", rows=4):
    inputs = torch.ones(rows, rows)
    return Workload(lambda: (inputs @ inputs).sum(), rows)


@pytest.fixture
def lab():
    situation = {"layers": ["small", "large"], "rows": [4, 8, 16]}
    return Lab(make_workload, precise=[False, True], situation=situation, memory=False)


@pytest.mark.parametrize(
    ("settings", "baseline", "call"),
    [
        ({}, {}, "lab.run()"),
        ({"rows": 16}, {"rows": 16}, "lab.run(rows=16)"),
        ({"precise": True, "rows": 16}, {"rows": 16}, "lab.run(precise=True, rows=16)"),
        ({"precise": True}, {"precise": True}, "lab.run(precise=True, baseline={'precise': True})"),
    ],
)
def test_it_is_short_and_says_the_same(lab, settings, baseline, call):
    sides = lab.defaults | baseline, lab.defaults | settings
    assert call_of(lab, "run", *sides) == call
    timed = call_of(lab, "run", *sides, seconds=0.05)
    assert tuple(arm.settings for arm in eval(timed, {"lab": lab}).arms) == sides


@pytest.mark.parametrize(
    ("changes", "options", "call"),
    [
        ({}, {"sweep": "rows", "follow": True}, "lab.sweep('rows', layers='large')"),
        ({}, {"sweep": "precise"}, "lab.sweep('precise', layers='large', rows=16)"),
        (
            {"precise": True},
            {"sweep": "precise", "follow": True, "seconds": 2},
            "lab.sweep('precise', layers='large', rows=16, follow=True, seconds=2)",
        ),
    ],
)
def test_a_sweep(lab, changes, options, call):
    large = lab.defaults | {"layers": "large", "rows": 16}
    assert call_of(lab, "run", large, large | changes, **options) == call


def test_a_race_and_a_timeline_take_no_seconds(lab):
    sides = lab.defaults | {"rows": 16}, lab.defaults | {"precise": True, "rows": 16}
    race = call_of(lab, "race", *sides, seconds=2)
    assert race == "lab.race({'precise': True, 'rows': 16})"
    assert call_of(lab, "timeline", *sides, seconds=2) == "lab.timeline(precise=True, rows=16)"
