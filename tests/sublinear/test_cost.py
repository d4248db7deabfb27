"""Chains, plans, and the account of what a plan costs."""

import pickle
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_chains import all_plans, chains, thorough

from course.searches.segments import sqrt_segments
from sublinear.chain import NOBODY, Block, Chain, Option, Rerun
from sublinear.nodes import keeps
from sublinear.plan import Checkpoint, Keep, Plan, every_block, keep_all, simulate


def chain_of(*outputs, saved=10, gradient=0):
    option = Option("all", saved, 1.0, 2.0, saved + 1, 3)
    blocks = tuple(
        Block(f"b{i}", size, (option,), gradient, size, 0.5) for i, size in enumerate(outputs)
    )
    return Chain(blocks, 100, 1000, 8, "cpu", "measured", 0.25)


class Ledger:
    """The rules of the account once more, told by names.

    A dictionary of everything that is alive.
    """

    def __init__(self, chain):
        self.chain, self.peak, self.seconds = chain, 0, chain.extra_seconds
        self.live = {"fixed": chain.fixed_bytes, "input": chain.input_bytes}
        self.runs = [0] * len(chain)

    def during(self, extra):
        self.peak = max(self.peak, sum(self.live.values()) + extra)

    def around(self, stage, name):
        self.live["parameters", name] = stage.gradient_bytes
        self.during(stage.peak_bytes)

    def crossing(self, number):
        """The tensors behind a block by name; behind block -1 is the input."""
        pairs = self.chain.blocks[number].crossing if number >= 0 else self.chain.input_crossing
        if number >= 0 and not pairs:
            pairs = ((("only", number), self.chain.blocks[number].output_bytes),)
        return {("crosses", name): size for name, size in pairs}

    def forward(self, nodes, inside=False):
        for place, node in enumerate(nodes):
            stopped_early = inside and place == len(nodes) - 1
            if isinstance(node, Keep):
                option = self.chain.blocks[node.block].options[0 if stopped_early else node.option]
                self.during(option.forward_peak)
                self.live["saved", node.block] = option.saved_bytes
                self.seconds += option.forward
                self.runs[node.block] += 1
            elif not stopped_early:
                numbers = [keep.block for keep in keeps((node,))]
                there, held = self.crossing(numbers[0] - 1), {}
                for number in numbers:
                    block = self.chain.blocks[number]
                    self.during(block.bare_peak + sum(held.values()))
                    held = {
                        name: size
                        for name, size in self.crossing(number).items()
                        if name not in there
                    }
                    self.seconds += block.forward
                    self.runs[number] += 1
                self.live["held", id(node)] = sum(held.values())

    def backward(self, nodes, inside=False):
        for place, node in reversed(list(enumerate(nodes))):
            stopped_early = inside and place == len(nodes) - 1
            if isinstance(node, Keep):
                block = self.chain.blocks[node.block]
                option = block.options[0 if stopped_early else node.option]
                self.live["gradient", node.block] = block.output_bytes
                self.during(option.backward_peak + block.gradient_bytes)
                del self.live["gradient", node.block], self.live["saved", node.block]
                self.live["parameters", node.block] = block.gradient_bytes
                self.seconds += option.backward
            else:
                last = [keep.block for keep in keeps((node,))][-1]
                if not stopped_early:
                    del self.live["held", id(node)]
                self.live["gradient", last] = self.chain.blocks[last].output_bytes
                self.forward(node.inside, inside=True)
                self.backward(node.inside, inside=True)


@given(st.data())
@thorough
def test_the_account_equals_a_second_one_that_names_what_is_alive(data):
    chain = data.draw(chains(max_blocks=4, menu=2))
    found = data.draw(
        st.sampled_from(all_plans(tuple(len(block.options) for block in chain.blocks)))
    )
    ledger = Ledger(chain)
    ledger.forward(found.nodes)
    ledger.around(chain.after, "after")
    ledger.backward(found.nodes)
    ledger.around(chain.before, "before")
    costs = simulate(chain, found)
    assert (costs.peak_bytes, costs.seconds, costs.block_forwards) == (
        ledger.peak,
        ledger.seconds,
        tuple(ledger.runs),
    )
    assert costs.timeline[-1].alive_bytes == sum(ledger.live.values())
    assert ("gradient", 0) not in ledger.live and ("saved", 0) not in ledger.live


def test_plain_training_by_hand():
    costs = simulate(chain_of(4, 6, gradient=7), keep_all(chain_of(4, 6)))
    # Before backward 1100 + 20; block 1: + the gradients of its output 6 and its parameters 7, + 3.
    # Then 1100 + 10 + 7.
    assert [moment[:3] for moment in costs.timeline] == [
        ("forward", 0, 1110),
        ("forward", 1, 1120),
        ("backward", 1, 1117),
        ("backward", 0, 1114),
    ]
    assert [moment.peak_bytes for moment in costs.timeline] == [1111, 1121, 1136, 1131]
    assert (costs.peak_bytes, costs.bottleneck.block, costs.bottleneck.event) == (
        1136,
        1,
        "backward",
    )
    assert costs.seconds == 0.25 + 2 * 3
    assert costs.block_forwards == (1, 1)


def test_a_nested_checkpoint_by_hand():
    chain = chain_of(4, 6, 5)
    nested = Plan((Checkpoint((Checkpoint((Keep(0),)), Keep(1))), Keep(2)), "by hand")
    costs = simulate(chain, nested)
    events = [(moment.event, moment.block) for moment in costs.timeline]
    forward = [("bare", 0), ("bare", 1), ("forward", 2), ("backward", 2)]
    assert events == [
        *forward,
        ("bare", 0),
        ("forward", 1),
        ("backward", 1),
        ("forward", 0),
        ("backward", 0),
    ]
    assert costs.block_forwards == (3, 2, 1)
    assert costs.seconds == 0.25 + 3 * 3 + 3 * 0.5
    # Forward of block 1 for good: the output of block 0 (4) and the gradient of its own output (6)
    # are there.
    assert costs.timeline[5].peak_bytes == 1100 + 4 + 6 + 11


def test_an_option_of_the_menu_is_charged_as_it_says():
    plain = chain_of(4, 6)
    selective = Option("selective", 5, 1.0, 2.5, 11, 8)
    first = replace(plain.blocks[0], options=(*plain.blocks[0].options, selective))
    chain = replace(plain, blocks=(first, plain.blocks[1]))
    costs = simulate(chain, Plan((Keep(0, 1), Keep(1)), "by hand"))
    assert costs.timeline[0].alive_bytes == 1105
    assert costs.seconds == 0.25 + 3 + 3.5
    assert "run again" in str(costs)


def skipping_chain():
    """Four blocks of 5 bytes of output.

    Tensor 9 (3 bytes) leaves block 0 and crosses until block 3 reads it.
    """
    plain = chain_of(8, 8, 8, 5)
    cuts = (((0, 5), (9, 3)), ((1, 5), (9, 3)), ((2, 5), (9, 3)), ((3, 5),))
    blocks = (replace(block, crossing=cut) for block, cut in zip(plain.blocks, cuts, strict=True))
    return replace(plain, blocks=tuple(blocks), input_crossing=((-1, 100),))


def test_a_tensor_that_crosses_several_cuts_is_held_once():
    chain = skipping_chain()
    assert [chain.held(0, last) for last in range(4)] == [8, 8, 8, 5]
    assert [chain.held(1, last) for last in range(1, 4)] == [5, 5, 5]
    costs = simulate(chain, every_block(chain))
    assert [moment.alive_bytes for moment in costs.timeline[:4]] == [1108, 1113, 1118, 1123]
    # Block 3 runs again beside what the first three hold, with the gradient of its output.
    assert costs.timeline[4].peak_bytes == 1118 + 5 + 11
    assert costs.timeline[-1].alive_bytes == 1100


def test_what_no_reader_saves_is_gone_once_the_last_has_run():
    chain = skipping_chain()
    blocks = list(chain.blocks)
    # Block 3 reads tensor 9 and does not save it; block 0, which made it, does.
    blocks[2] = replace(blocks[2], released=((9, 0),))
    chain = replace(chain, blocks=tuple(blocks))

    def alive(*nodes):
        costs = simulate(chain, Plan(nodes, "by hand"))
        assert costs.timeline[-1].alive_bytes == 1100
        return [moment.alive_bytes for moment in costs.timeline if moment.event == "forward"][:4]

    zero_and_one = Checkpoint((Keep(0), Keep(1)))
    # The 8 bytes behind the checkpoint, 10 for each block that is kept, without the 3 at the end.
    assert alive(zero_and_one, Keep(2), Keep(3))[:2] == [1118, 1128 - 3]
    # Block 0 saves it, and a later checkpoint holds what it begins with.
    assert alive(Keep(0), Keep(1), Keep(2), Keep(3)) == [1110, 1120, 1130, 1140]
    assert alive(zero_and_one, Checkpoint((Keep(2),)), Keep(3))[0] == 1108 + 5 + 10


def test_what_crosses_the_end_of_a_run_again_is_gone_once_that_is_over():
    held = skipping_chain()
    blocks = list(held.blocks)
    # Block 3 reads tensor 9 and does not save it; block 0, which made it, does.
    blocks[2] = replace(blocks[2], released=((9, 0),))
    chain = replace(held, blocks=tuple(blocks))
    zero_and_one = Checkpoint((Keep(0), Keep(1)))

    def gone(*nodes):
        """The 3 bytes at each event that are there if tensor 9 stays."""
        plan = Plan(nodes, "by hand")
        steps = (simulate(each, plan).timeline for each in (held, chain))
        pairs = [
            (one.event, one.alive_bytes - two.alive_bytes) for one, two in zip(*steps, strict=True)
        ]
        return [event for event, less in pairs], [less for _, less in pairs]

    events, less = gone(Checkpoint((zero_and_one, Keep(2))), Keep(3))
    assert events[:9] == ["bare"] * 3 + ["forward", "backward"] + ["bare"] * 2 + [
        "forward",
        "backward",
    ]
    # While block 3 runs, and in the backward of block 2, until the inner checkpoint runs again.
    assert less == [0, 0, 0, 3, 3, 0, 0, 0, 3, 0, 0, 0, 0]
    # As well where the checkpoint ends with the reader.
    events, less = gone(Checkpoint((zero_and_one, Keep(2), Keep(3))))
    assert events[8:] == ["backward"] * 2 + ["forward"] * 2 + ["backward"] * 2
    assert less == [0] * 8 + [3, 3] + [0] * 4


def test_what_nobody_saves_is_gone_once_its_last_reader_has_run():
    held = skipping_chain()
    blocks = []
    for block in held.blocks:
        part = replace(block.options[0], name="part")
        blocks.append(replace(block, options=(*block.options, part)))
    held = replace(held, blocks=tuple(blocks))
    blocks[2] = replace(blocks[2], released=((9, NOBODY),))
    chain = replace(held, blocks=tuple(blocks))

    def gone(*nodes):
        """The 3 bytes at each event that are there if tensor 9 stays."""
        plan = Plan(nodes, "by hand")
        one, two = (simulate(each, plan).timeline for each in (held, chain))
        # What the block that made it needs in its backward is what was measured.
        assert [moment.peak_bytes for moment in one[-1:]] == [two[-1].peak_bytes]
        assert two[-1].alive_bytes == 1100
        return [a.alive_bytes - b.alive_bytes for a, b in zip(one, two, strict=True)]

    kept = [Keep(number) for number in range(4)]
    assert gone(*kept) == [0, 0, 0, 3, 3, 3, 3, 0]
    # A checkpoint that begins before the reader holds it.
    assert not any(gone(kept[0], Checkpoint((kept[1],)), *kept[2:]))
    # So does a block that is kept in part, and runs again.
    assert not any(gone(kept[0], Keep(1, 1), *kept[2:]))
    assert not any(gone(Checkpoint((kept[0],)), Keep(1, 1), *kept[2:]))
    # In a run again that ends before the reader, as in the first run.
    less = gone(Checkpoint((kept[0], kept[1], kept[2])), kept[3])
    assert less == [0, 0, 0, 3, 3, 0, 0, 0, 3, 3, 0]


def test_what_waits_for_a_block_is_gone_when_torch_stops_its_second_run():
    chain = chain_of(4, 6)
    before = replace(chain.blocks[0], crossing=((0, 4),), released=((0, NOBODY),))
    last = replace(chain.blocks[1], crossing=((1, 6),), rerun=Rerun(28 - 6, 30 - 6))
    chain = replace(chain, blocks=(before, last), input_crossing=((9, 100),))
    costs = simulate(chain, Plan((Checkpoint((Keep(0), Keep(1))),), "by hand"))
    again = [moment for moment in costs.timeline if moment.block == 1][1:]
    # Block 0 has saved 10, of which its output is 4; the gradient of the output of block 1 is 6.
    assert [moment.event for moment in again] == ["forward", "backward"]
    assert [moment.peak_bytes for moment in again] == [1100 + 6 + 4 + 28, 1100 + 6 + 30]


def test_crossing_tensors_survive_another_batch_size():
    chain = skipping_chain()
    third = chain.at_batch(24)
    assert third.blocks[0].crossing == ((0, 15), (9, 9)) and third.input_crossing == ((-1, 300),)
    assert third.blocks[0].output_bytes == 24


def test_a_checkpoint_that_ends_a_checkpoint_is_not_run_for_nothing():
    chain = chain_of(4, 6, 5)
    nested = Plan((Checkpoint((Keep(0), Checkpoint((Keep(1),)))), Keep(2)), "by hand")
    flat = Plan((Checkpoint((Keep(0), Keep(1))), Keep(2)), "by hand")
    assert simulate(chain, nested) == simulate(chain, flat)
    assert simulate(chain, nested).block_forwards == (2, 2, 1)


def test_every_block_and_sqrt():
    chain = chain_of(*[4] * 10)
    assert str(every_block(chain)) == "[(0) (1) (2) (3) (4) (5) (6) (7) (8) (9)]"
    assert str(sqrt_segments(chain)) == "[(0 1) (2 3 4) (5 6 7) 8 9]"
    assert (
        simulate(chain, sqrt_segments(chain)).peak_bytes
        < simulate(chain, keep_all(chain)).peak_bytes
    )


# --------------------------------------------------------------------------------- chains and plans


def test_a_plan_survives_a_pickle_and_draws_itself():
    nested = Plan(
        (
            Keep(0),
            Keep(1),
            Checkpoint((Keep(2), Checkpoint((Keep(3),)))),
            Keep(4, 1),
            Checkpoint((Keep(5),)),
        ),
        "x",
    )
    assert pickle.loads(pickle.dumps(nested)) == nested
    assert str(nested) == "[0 1 (2 (3)) 4/1 (5)]"
    assert (nested.depth, len(nested)) == (2, 6)


def test_another_batch_size_scales_activations_and_seconds_only():
    chain = chain_of(4, 6, gradient=7).at_batch(12)
    block = chain.blocks[1]
    assert (chain.batch_size, chain.input_bytes, chain.fixed_bytes, chain.extra_seconds) == (
        12,
        150,
        1000,
        0.25,
    )
    assert (block.output_bytes, block.gradient_bytes, block.bare_peak, block.forward) == (
        9,
        7,
        9,
        0.75,
    )
    assert block.options == (Option("all", 15, 1.5, 3.0, 17, 5),)  # 16.5 and 4.5 bytes, rounded up
    assert chain.at_batch(12) is chain


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: chain_of(1).at_batch(0), ValueError, r"batch_size=0: use a whole number"),
        (lambda: Plan((), "m"), ValueError, r"Plan: no nodes"),
        (lambda: Plan((Checkpoint(()),), "m"), ValueError, r"Checkpoint: no nodes"),
        (lambda: Checkpoint((Keep(0, 1),)), ValueError, r"in it: there a block saves everything"),
        (lambda: Plan((Keep(-1),), "m"), ValueError, r"block -1 stands where block 0 should"),
        (
            lambda: simulate(chain_of(1), Plan((Keep(0, -1),), "m")),
            ValueError,
            r"option -1 of block 0 \('b0'\), which has 0 'all'",
        ),
        (lambda: Plan((Keep(0), Keep(2)), "m"), ValueError, r"block 2 stands where block 1 should"),
        (
            lambda: Plan((Keep(0), Checkpoint((Keep(0),))), "m"),
            ValueError,
            r"block 0 stands where block 1 should",
        ),
        (
            lambda: simulate(chain_of(1, 2), Plan((Keep(0),), "m")),
            ValueError,
            r"plan is for 1 blocks, the chain has 2",
        ),
        (
            lambda: simulate(chain_of(1), Plan((Keep(0, 3),), "m")),
            ValueError,
            r"option 3 of block 0 \('b0'\), which has 0 'all'",
        ),
    ],
)
def test_bad_input_is_named(make, error, message):
    with pytest.raises(error, match=message):
        make()
