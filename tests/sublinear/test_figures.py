"""What the pictures of plans show."""

import pytest
from small_chains import random_chain

from sublinear import METHODS, Plan, plan, simulate
from sublinear.teaching.figures import _held, alive_figure, plan_figure

CHAIN = random_chain(13, seed=5, menu=2)
NESTED = Plan.from_json(
    {"method": "mine", "nodes": [0, [1, [2, 3], 4, [5, [6, 7]]], [8, [9, 10]], 11, [12]]}
)
PLANS = {method: plan(CHAIN, method=method) for method in METHODS} | {"nested": NESTED}


@pytest.mark.parametrize("name", PLANS)
def test_what_is_held_lasts_from_the_event_that_makes_it_to_the_one_that_drops_it(name):
    events = simulate(CHAIN, PLANS[name]).timeline
    held = list(_held(PLANS[name].nodes))
    for block, begin, end, everything in held:
        assert events[begin].block == block and begin < end < len(events)
        assert events[begin].event == ("forward" if everything else "bare")
        if everything:
            assert (events[end].event, events[end].block) == ("backward", block)
    kept = [block for block, _, _, everything in held if everything]
    assert sorted(kept) == list(range(len(CHAIN)))
    bare = sum(event == "bare" for event, *_ in events)
    assert bool(bare) == any(not everything for *_, everything in held)


def test_an_axis_for_each_plan_and_one_for_the_memory():
    figure = alive_figure(CHAIN, {"plain": PLANS["none"], "nested": NESTED})
    again = sum(simulate(CHAIN, NESTED).block_forwards) - len(CHAIN)
    assert [axis.get_title() for axis in figure.axes] == [
        "plain: 0 run again",
        f"nested: {again} run again",
        "Memory",
    ]
    peaks = [moment.peak_bytes / 2**20 for moment in simulate(CHAIN, NESTED).timeline]
    assert list(figure.axes[-1].lines[1].get_ydata()) == peaks


def test_the_plan_over_the_network_says_what_it_costs():
    costs, plain = simulate(CHAIN, NESTED), simulate(CHAIN, PLANS["none"])
    [axis] = plan_figure(CHAIN, NESTED, dark=True).axes
    assert f"{costs.peak_bytes / plain.peak_bytes:.0%} of plain" in axis.get_title()
    assert f"time {costs.seconds / plain.seconds:.2f}x (predicted)" in axis.get_title()
    assert len(axis.lines) == 7  # one bracket for each checkpoint
    assert plan_figure(CHAIN, PLANS["none"]).axes[0].lines[:] == []
