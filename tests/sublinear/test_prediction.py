"""Predicted peaks at many budgets, by plans that no clock chooses."""

from __future__ import annotations

from dataclasses import replace

import pytest
from zoo import FAMILIES, chain_of, peak

from sublinear.apply import apply
from sublinear.chain import NOBODY, Chain
from sublinear.nodes import Checkpoint, Keep, Node
from sublinear.plan import Plan, keep_all
from sublinear.planner import plan

BUDGETS = 12


def without_a_clock(chain: Chain) -> Chain:
    """The measured bytes, and seconds that depend on nothing else."""
    blocks = []
    for block in chain.blocks:
        options = []
        plain = block.options[0].saved_bytes
        for option in block.options:
            again = 1e-10 * max(0, plain - option.saved_bytes)
            seconds = 1e-6 + 1e-9 * plain
            options.append(replace(option, forward=seconds, backward=2 * seconds + again))
        blocks.append(replace(block, options=tuple(options), forward=1e-6 + 1e-9 * plain))
    return replace(chain, blocks=tuple(blocks), extra_seconds=0.0)


@pytest.mark.parametrize("name", ["lstm", "lstm cells", "gru", "twins", "mixer"])
def test_the_prediction_is_right_at_every_budget(name: str) -> None:
    chain, blocks, model, inputs, optimizer = chain_of(name)
    chain = without_a_clock(chain)
    least, most = plan(chain).costs.peak_bytes, keep_all(chain).costs.peak_bytes
    assert least < 0.8 * most
    tried = set()
    for part in range(BUDGETS):
        budget = least + (most - least) * part // BUDGETS
        for method in ("menu", "single-level"):
            floor = plan(chain, method=method).costs.peak_bytes
            tried.add(plan(chain, budget=max(budget, floor), method=method))
    assert len(tried) >= 5
    for found in tried:
        predicted = found.costs.peak_bytes
        measured = peak(apply(model, found, blocks=blocks), FAMILIES[name], inputs, optimizer)
        error = predicted / measured - 1
        assert -0.002 <= error <= 0.02, f"{found}: {predicted} for {measured}, {error:+.2%}"


def kept(begin: int, end: int) -> list[Node]:
    return [Keep(number) for number in range(begin, end)]


def test_a_checkpoint_in_a_checkpoint_does_not_hold_what_the_last_block_reads() -> None:
    chain, blocks, model, inputs, optimizer = chain_of("twins")
    # The first half makes a tensor that only the last block reads.
    assert len(chain) == 10 and chain.blocks[8].released
    inner = Checkpoint((*kept(3, 7),))
    nested = Plan((*kept(0, 1), Checkpoint((*kept(1, 3), inner, *kept(7, 10)))), "nested", chain)
    measured = peak(apply(model, nested, blocks=blocks), FAMILIES["twins"], inputs, optimizer)
    assert abs(nested.costs.peak_bytes / measured - 1) <= 0.002


def test_what_nobody_saves_is_not_counted_behind_its_last_reader() -> None:
    # The shortcut of the first block is the output of a convolution, which is added and not saved.
    chain, _, model, inputs, optimizer = chain_of("temporal")
    assert NOBODY in chain.savers.values()
    # What the next block saves itself is not among them.
    for number, block in enumerate(chain.blocks):
        assert all(saver <= number for _, saver in block.released)
    measured = peak(model, FAMILIES["temporal"], inputs, optimizer)
    assert abs(keep_all(chain).costs.peak_bytes / measured - 1) <= 0.002
