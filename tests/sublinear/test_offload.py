"""Checkpoints that send what they hold to the CPU: their account, their search, their refusals.

On a device they run in `tests.rehearsal.kit_checks`.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_chains import all_sending, linked_chains, random_chain, thorough
from test_cost import Ledger
from test_searches import assert_exact, most
from torch import nn

from sublinear import apply, plan, simulate
from sublinear.chain import Block, Chain, Link, Option
from sublinear.nodes import Checkpoint, Keep, kept, span
from sublinear.picture import picture
from sublinear.plan import Plan
from sublinear.searches import offload, optimal, within
from sublinear.searches.simple import keep_all


def sending(*nodes):
    return Checkpoint(nodes, offload=True)


def chain_of(count, saves=()):
    """Blocks of 8 bytes of output that save 20, their output included; the input has 100."""
    blocks = []
    for number in range(count):
        option = Option("all", 20, 1.0, 2.0, 21, 3)
        block = Block(f"b{number}", 8, (option,), 0, 8, 0.5, ((number, 8),), saves=saves)
        blocks.append(block)
    return Chain(
        tuple(blocks), 100, 1000, 4, "a GPU", "measured", input_crossing=((99, 100),), link=LINK
    )


LINK = Link(there=16.0, back=32.0)


# ------------------------------------------------------------------------------------- the account


def alive(plan):
    return [moment.alive_bytes - 1100 for moment in plan.costs.timeline]


def test_what_is_sent_is_gone_until_it_runs_again():
    chain = chain_of(4)
    here = Plan((Checkpoint(kept(0, 2)), Checkpoint(kept(2, 3)), Keep(3)), "by hand", chain)
    gone = Plan((Checkpoint(kept(0, 2)), sending(Keep(2)), Keep(3)), "by hand", chain)
    events = [(moment.event, moment.block) for moment in here.costs.timeline]
    assert events[2:7] == [
        ("bare", 2),
        ("forward", 3),
        ("backward", 3),
        ("forward", 2),
        ("backward", 2),
    ]
    assert alive(here)[:7] == [8, 8, 16, 36, 16, 8 + 8 + 20, 8]
    # 8 bytes, the output of block 1, from the end of block 2 until that runs again.
    assert alive(gone)[:7] == [8, 8, 8, 28, 8, 8 + 8 + 20, 8]
    both = zip(here.costs.timeline, gone.costs.timeline, strict=True)
    less = [a.peak_bytes - b.peak_bytes for a, b in both]
    assert less == [0, 0, 0, 8, 8, 0, 0, 0, 0, 0, 0]
    assert gone.costs.seconds == here.costs.seconds + 8 / 16 + 8 / 32
    assert gone.costs.sent_bytes == 8 and here.costs.sent_bytes == 0
    assert "8 B wait on the CPU" in str(gone.costs)


def test_what_a_kept_block_saves_is_not_freed():
    for saves, freed in (((), 8), ((1,), 0), ((0,), 8), (None, 0)):
        chain = chain_of(4, saves)
        here = Plan((*kept(0, 2), Checkpoint(kept(2, 3)), Keep(3)), "by hand", chain)
        gone = Plan((*kept(0, 2), sending(Keep(2)), Keep(3)), "by hand", chain)
        assert alive(here)[3] - alive(gone)[3] == freed, saves
        # Then what comes back is a second copy.
        assert alive(gone)[5] - alive(here)[5] == 8 - freed


def test_what_others_hold_is_not_sent():
    chain = chain_of(5)
    # Tensor 50 leaves block 0 and is last read by block 3.
    blocks = list(chain.blocks)
    for number in range(3):
        crossing = (*blocks[number].crossing, (50, 5))
        blocks[number] = replace(blocks[number], crossing=crossing, output_bytes=13)
    chain = replace(chain, blocks=tuple(blocks))

    def sent(*nodes):
        return Plan((*nodes, Keep(4)), "by hand", chain).costs.sent_bytes

    one, two = Checkpoint(kept(0, 2)), Checkpoint(kept(2, 3))
    # The input stays, and what crosses the end as well.
    assert sent(sending(Keep(0), Keep(1)), two, Keep(3)) == 0
    assert sent(one, sending(Keep(2)), Keep(3)) == 8
    assert sent(one, sending(Keep(2), Keep(3))) == 13
    # An earlier checkpoint holds it, whether that sends the rest or not.
    assert sent(one, two, sending(Keep(3))) == 8
    assert sent(one, sending(Keep(2)), sending(Keep(3))) == 16
    assert sent(Checkpoint(kept(0, 1)), *kept(1, 3), sending(Keep(3))) == 13


class SendingLedger(Ledger):
    """The rules once more: what is sent counts as less than nothing, until its maker's backward."""

    def step(self, nodes):
        for place, node in enumerate(nodes):
            self.forward((node,))
            if isinstance(node, Checkpoint) and node.offload:
                sent, freed = self.sent(nodes, place)
                self.seconds += self.chain.link.seconds(sum(sent.values()))
                for name, size in freed.items():
                    self.live["gone", name] = -size
        self.around(self.chain.after, "after")
        for place, node in reversed(list(enumerate(nodes))):
            blocks = span(node)
            for name in self.crossing(blocks[-1]).keys() - self.crossing(blocks[0] - 1).keys():
                self.live.pop(("gone", name), None)
            if isinstance(node, Checkpoint) and node.offload:
                self.live["back"] = sum(self.sent(nodes, place)[0].values())
            self.backward((node,))
            self.live.pop("back", None)
        self.around(self.chain.before, "before")

    def sent(self, nodes, place):
        """What the checkpoint at this place sends, and what of it nobody before it holds."""
        blocks = span(nodes[place])
        sent, freed = {}, {}
        for name, size in self.crossing(blocks[0] - 1).items():
            if name in self.crossing(blocks[-1]) or name in self.crossing(-1):
                continue
            if any(self.holds(node, name) for node in nodes[:place]):
                continue
            sent[name] = size
            if not any(self.saves(node, name) for node in nodes[:place]):
                freed[name] = size
        return sent, freed

    def holds(self, node, name):
        again = isinstance(node, Checkpoint) or node.option
        return again and name in self.crossing(span(node)[0] - 1)

    def saves(self, node, name):
        if isinstance(node, Checkpoint):
            return False
        saves = self.chain.blocks[node.block].saves
        if node.option or saves is None:
            return name in self.crossing(node.block) or name in self.crossing(node.block - 1)
        return name[1] in saves


@given(st.data())
@thorough
def test_the_account_equals_a_second_one(data):
    chain = data.draw(linked_chains(max_blocks=5, menu=2))
    found = data.draw(
        st.sampled_from(all_sending(tuple(len(block.options) for block in chain.blocks)))
    )
    ledger = SendingLedger(chain)
    ledger.step(found.nodes)
    costs = simulate(chain, found)
    assert (costs.peak_bytes, costs.seconds) == (ledger.peak, ledger.seconds)
    assert costs.timeline[-1].alive_bytes == sum(ledger.live.values())


# -------------------------------------------------------------------------------------- the search


def brute_force(chain, menu):
    options = tuple(len(block.options) if menu else 1 for block in chain.blocks)
    costs = [simulate(chain, plan) for plan in all_sending(options)]
    return np.array([(cost.peak_bytes, cost.seconds) for cost in costs]).T


@pytest.mark.parametrize(("menu", "most_blocks"), [(False, 4), (True, 3)])
def test_the_search_equals_brute_force(menu, most_blocks):
    @given(linked_chains(max_blocks=most_blocks, menu=2, skips=False))
    @thorough
    def check(chain):
        every = brute_force(chain, menu)
        found = offload.OffloadTable(chain, most(chain), menu=menu)
        assert_exact(chain, every, offload.lowest_peak(chain, menu=menu), found)

    check()


@given(linked_chains(max_blocks=5, menu=2))
@thorough
def test_with_skips_it_keeps_to_the_budget_and_is_no_worse_than_without_the_link(chain):
    here = replace(chain, link=None)
    floor, lowest = optimal.lowest_peak(here, menu=True), offload.lowest_peak(chain, menu=True)
    assert lowest.costs.peak_bytes <= floor.costs.peak_bytes
    table = offload.OffloadTable(chain, most(chain), menu=True)
    for budget in range(lowest.costs.peak_bytes, most(chain)):
        costs = table.plan(budget).costs
        assert costs.peak_bytes <= budget
        if budget >= floor.costs.peak_bytes:
            best = optimal.OptimalTable(here, most(chain), menu=True).plan(budget)
            assert costs.seconds <= best.costs.seconds


def with_link(chain, rate):
    blocks = []
    for number, block in enumerate(chain.blocks):
        # As most do, each saves its input.
        crossing = ((number, block.output_bytes),)
        blocks.append(replace(block, crossing=crossing, saves=(number - 1,) if number else ()))
    return replace(chain, blocks=tuple(blocks), link=None if rate is None else Link(rate, rate))


def equal_chain(count):
    """Each block saves what it makes and no more, so that what checkpoints hold counts."""
    option = Option("all", 10**7, 1e-3, 2e-3, 10**7, 0)
    blocks = tuple(Block(f"b{n}", 10**7, (option,), 0, 10**7, 1e-3) for n in range(count))
    return Chain(blocks, 10**6, 0, 1, "a GPU", "measured")


def test_at_the_lowest_peak_a_fast_link_spares_running_again_and_again():
    here, fast, slow = (with_link(equal_chain(40), rate) for rate in (None, 1e12, 1e6))
    floor = plan(here).costs
    # From the first block on, again and again: each block once less than the one before.
    assert floor.run_again > 700
    found = plan(fast)
    assert found.costs.peak_bytes == floor.peak_bytes and found.offloads
    assert found.costs.run_again <= 40 and found.costs.seconds < 0.2 * floor.seconds
    assert plan(slow).nodes == plan(here).nodes


@pytest.mark.parametrize("limit", [{"budget": 10**8}, {"max_overhead": 0.1}])
def test_the_search_sends_only_where_that_gains(limit):
    chain = random_chain(40, seed=2)
    here, fast, slow = (with_link(chain, rate) for rate in (None, 1e12, 1e6))
    if "budget" in limit:
        limit = {"budget": 1.05 * plan(here).costs.peak_bytes}
    plain, quick = plan(here, **limit).costs, plan(fast, **limit).costs
    if "budget" in limit:
        assert quick.seconds < plain.seconds and quick.peak_bytes <= limit["budget"]
    else:
        assert quick.peak_bytes < plain.peak_bytes and quick.seconds <= plain.seconds * 1.01
    assert not plan(slow, **limit).offloads


def test_plans_from_rounded_tables_keep_to_the_budget():
    chain = with_link(random_chain(40, seed=5, menu=3), 1e10)
    lowest = offload.lowest_peak(chain, menu=True)

    def coarse(chain, capacity):
        return offload.OffloadTable(chain, capacity, menu=True, slots=60)

    seconds = []
    for share in (1, 1.2, 1.5, 2.5):
        budget = int(share * lowest.costs.peak_bytes)
        costs = within.fastest(chain, coarse, lowest, budget).costs
        assert costs.peak_bytes <= budget
        seconds.append(costs.seconds)
    assert seconds == sorted(seconds, reverse=True) and seconds[-1] < 0.9 * seconds[0]


def test_plain_training_is_chosen_where_it_fits():
    chain = with_link(random_chain(10, seed=3), 1e12)
    assert plan(chain, budget=keep_all(chain).costs.peak_bytes).nodes == keep_all(chain).nodes


# ------------------------------------------------------------------------------- files and refusals


def test_it_is_shown_and_survives_json(tmp_path):
    nodes = (Checkpoint(kept(0, 2)), sending(Keep(2), Checkpoint(kept(3, 4))), Keep(4))
    found = Plan(nodes, "x", chain_of(5))
    assert str(found) == "[(0 1) (2 (3))^ 4]"
    data = found.to_json(tmp_path / "plan.json")
    assert data["nodes"] == [[0, 1], {"checkpoint": [2, [3]], "offload": True}, 4]
    assert Plan.from_json(json.loads(json.dumps(data))) == found
    assert found != Plan((nodes[0], replace(nodes[1], offload=False), Keep(4)), "x")
    rows = picture(found).splitlines()
    assert rows[2:] == ["again  ╰╯╰╯", "          ─", "CPU      ^"]
    chain = chain_of(5)
    assert Chain.from_json(json.loads(json.dumps(chain.to_json()))) == chain
    assert chain.at_batch(8).link == LINK


def test_what_cannot_be_is_named():
    with pytest.raises(ValueError, match=r"\(0 \(1\)\^\): only a checkpoint that lies in no other"):
        Plan((Checkpoint((Keep(0), sending(Keep(1)))), Keep(2)), "x")
    with pytest.raises(ValueError, match=r"\[\(0\)\^ 1\] sends .* 'a GPU' knows no link"):
        Plan((sending(Keep(0)), Keep(1)), "x", replace(chain_of(2), link=None))
    with pytest.raises(TypeError, match="offload=1"):
        Checkpoint((Keep(0),), offload=1)
    with pytest.raises(ValueError, match=r"Link\(there=0\)"):
        Link(0, 1.0)
    for data in ({"checkpoint": 3, "offload": True}, {"checkpoint": [3]}):
        with pytest.raises(ValueError, match="in a plan"):
            Plan.from_json({"nodes": [data], "method": "x"})


def test_without_a_device_it_is_refused(monkeypatch):
    model, x = nn.Sequential(*(nn.Linear(4, 4) for _ in range(3))), torch.randn(2, 4)
    found = Plan((Checkpoint(kept(0, 1)), sending(Keep(1)), Keep(2)), "x")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match=r"\[\(0\) \(1\)\^ 2\] sends .* no GPU here"):
        apply(model, found, x)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    planned = apply(model, found, x)
    # What lies on the CPU anyway stays where it is.
    planned(x).sum().backward()
    got = model[0].weight.grad.clone()
    model.zero_grad()
    model(x).sum().backward()
    assert torch.equal(got, model[0].weight.grad)
