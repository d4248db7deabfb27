"""Predicted peaks at many budgets, by plans that no clock chooses."""

from __future__ import annotations

from dataclasses import replace

import pytest
from zoo import FAMILIES, chain_of, peak

from sublinear.apply import apply
from sublinear.chain import Chain
from sublinear.planner import plan
from sublinear.searches.simple import keep_all

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
