"""A plan knows what it costs, and the events of a step are the same for all who read them."""

import pytest
from small_chains import all_plans, random_chain

from sublinear import simulate
from sublinear.events import Event, as_rerun, events
from sublinear.nodes import Checkpoint, Keep, keeps, kept
from sublinear.plan import Plan

CHAIN = random_chain(4, seed=1, menu=2)


def test_a_plan_knows_what_it_costs() -> None:
    plan = Plan((Checkpoint(kept(0, 2)), *kept(2, 4)), "mine", CHAIN)
    assert plan.costs == simulate(CHAIN, plan)
    assert plan.costs is plan.costs
    assert plan.costs.block_forwards == (2, 2, 1, 1) and plan.costs.run_again == 2
    assert plan.named("yours").costs == plan.costs


def test_a_plan_without_a_chain_says_what_is_missing() -> None:
    plan = Plan(kept(0, 4), "mine")
    with pytest.raises(ValueError, match=r"plan \[0 1 2 3\] knows no chain.*simulate"):
        _ = plan.costs
    assert plan == Plan(kept(0, 4), "mine", CHAIN)
    assert "chain" not in repr(plan)


def test_a_plan_for_another_chain_is_refused() -> None:
    with pytest.raises(ValueError, match="the plan is for 3 blocks, the chain has 4"):
        Plan(kept(0, 3), "mine", CHAIN)
    with pytest.raises(ValueError, match=r"option 2 of block 1 \('b1'\), which has 0 'all', 1"):
        Plan((Keep(0), Keep(1, 2), *kept(2, 4)), "mine", CHAIN)


def test_the_events_of_a_step() -> None:
    found = list(events((Keep(0, 1), Checkpoint((Keep(1), Keep(2))))))
    assert found == [
        Event("forward", 0, 1),
        Event("bare", 1, first=1),
        Event("bare", 2, first=1),
        Event("loss", 2),
        Event("drop", 2, first=1),
        Event("rerun", 2, first=1),
        Event("forward", 1, opens=True),
        Event("forward", 2, last=True),
        Event("rerun over", 2),
        Event("backward", 2, last=True),
        Event("backward", 1, opens=True),
        Event("over", 1),
        Event("backward", 0, 1),
        Event("end", 0),
    ]


def test_the_last_node_of_a_checkpoint_runs_as_torch_runs_it() -> None:
    assert as_rerun((Keep(0), Keep(1))) == (Keep(0), Keep(1))
    inner = Checkpoint((Keep(1), Checkpoint((Keep(2),))))
    assert as_rerun((Keep(0), inner)) == (Keep(0), Keep(1), Keep(2))


def test_what_is_made_is_let_go_of_once() -> None:
    """Each backward finds the forward whose option it names, each drop the output that is held."""
    for plan in all_plans((2, 1, 2, 2)):
        saved: dict[int, int] = {}
        outputs: dict[int, int] = {}
        backwards = []
        for event in events(plan.nodes):
            if event.kind == "forward":
                assert event.block not in saved
                saved[event.block] = event.option
            elif event.kind == "backward":
                assert saved.pop(event.block) == event.option
                backwards.append(event.block)
            elif event.kind == "bare":
                outputs[event.block] = event.first
            elif event.kind == "drop":
                assert outputs.pop(event.block) == event.first
        assert not saved
        assert backwards == [keep.block for keep in keeps(plan.nodes)][::-1]
