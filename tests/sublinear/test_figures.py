"""What the pictures of plans show."""

import pytest
from small_chains import random_chain

import course.searches  # noqa: F401  # adds its methods to the planner's
from course.plan_figures import alive_figure, held, plan_figure
from sublinear import METHODS, Checkpoint, Keep, Plan, plan
from sublinear.nodes import kept

CHAIN = random_chain(13, seed=5, menu=2)
PAIR, LATER = Checkpoint(kept(2, 4)), Checkpoint((Keep(5), Checkpoint(kept(6, 8))))
NESTED = Plan(
    (
        Keep(0),
        Checkpoint((Keep(1), PAIR, Keep(4), LATER)),
        Checkpoint((Keep(8), Checkpoint(kept(9, 11)))),
        Keep(11),
        Checkpoint((Keep(12),)),
    ),
    "mine",
    CHAIN,
)
PLANS = {method: plan(CHAIN, method=method) for method in METHODS} | {"nested": NESTED}


@pytest.mark.parametrize("name", PLANS)
def test_what_is_held_lasts_from_the_event_that_makes_it_to_the_one_that_drops_it(name):
    events = PLANS[name].costs.timeline
    found = list(held(PLANS[name]))
    for block, begin, end, everything in found:
        assert events[begin].block == block and begin < end < len(events)
        assert events[begin].event == ("forward" if everything else "bare")
        if everything:
            assert (events[end].event, events[end].block) == ("backward", block)
    kept = [block for block, _, _, everything in found if everything]
    assert sorted(kept) == list(range(len(CHAIN)))
    bare = sum(event == "bare" for event, *_ in events)
    assert bool(bare) == any(not everything for *_, everything in found)


def test_an_axis_for_each_plan_and_one_for_the_memory():
    figure = alive_figure({"plain": PLANS["none"], "nested": NESTED})
    again = NESTED.costs.run_again
    assert again > 0
    assert [axis.get_title() for axis in figure.axes] == [
        "plain: 0 run again",
        f"nested: {again} run again",
        "Memory",
    ]
    peaks = [moment.peak_bytes / 2**20 for moment in NESTED.costs.timeline]
    assert list(figure.axes[-1].lines[1].get_ydata()) == peaks


def test_the_plan_over_the_network_says_what_it_costs():
    costs, plain = NESTED.costs, PLANS["none"].costs
    [axis] = plan_figure(NESTED, dark=True).axes
    assert f"{costs.peak_bytes / plain.peak_bytes:.0%} of plain" in axis.get_title()
    assert f"time {costs.seconds / plain.seconds:.2f}x (predicted)" in axis.get_title()
    assert len(axis.lines) == 7  # one bracket for each checkpoint
    assert plan_figure(PLANS["none"]).axes[0].lines[:] == []
