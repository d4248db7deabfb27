"""Every search against brute force on small chains, and against its own promises on long ones."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_chains import all_plans, chains, random_chain, thorough

from course.searches import rotor
from course.searches.splits import from_splits
from sublinear.chain import NOBODY, Block, Chain, Option
from sublinear.plan import keep_all, simulate
from sublinear.searches import optimal, single_level
from sublinear.searches.needs import Needs
from sublinear.searches.table import fastest, smallest


def brute_force(chain, *, menu, depth=99):
    """Peaks and seconds of every plan: (2, plans)."""
    options = tuple(len(block.options) if menu else 1 for block in chain.blocks)
    costs = [simulate(chain, plan) for plan in all_plans(options, depth)]
    return np.array([(cost.peak_bytes, cost.seconds) for cost in costs]).T


def assert_exact(chain, every, lowest, exact_table):
    """The lowest peak and, for each budget, the least seconds are those of ``every`` plan.

    The plans keep to them.
    """
    peaks, seconds = every
    assert simulate(chain, lowest).peak_bytes == peaks.min()
    base = chain.fixed_bytes + chain.input_bytes
    assert exact_table.slot == 1
    last = np.inf
    for slots, promised in enumerate(exact_table.times):
        best = seconds[peaks <= base + slots].min(initial=np.inf)
        assert promised + chain.extra_seconds == best, slots
        if best < last:  # the plan has changed
            last = best
            costs = simulate(chain, exact_table.plan(base + slots))
            assert costs.peak_bytes <= base + slots
            assert costs.seconds == best


@given(chains(max_blocks=4, parts=True))
@settings(thorough, max_examples=100)
def test_lowest_peaks_are_exact_where_blocks_run_in_part(chain):
    every, flat = brute_force(chain, menu=False), brute_force(chain, menu=False, depth=1)
    nested = simulate(chain, optimal.lowest_peak(chain, menu=False))
    assert nested.peak_bytes == every[0].min()
    assert simulate(chain, single_level.lowest_peak(chain)).peak_bytes == flat[0].min()


def most(chain):
    return simulate(chain, keep_all(chain)).peak_bytes + 3


@given(chains(max_blocks=5, menu=2, parts=True), st.booleans())
@settings(thorough, max_examples=60)
def test_the_table_is_the_program_of_its_paper(chain, menu):
    table = optimal.OptimalTable(chain, most(chain), menu=menu)
    assert table.slot == 1
    plain = [
        rotor.fastest(chain, table.needs.base + slots, menu=menu)
        for slots in range(len(table.times))
    ]
    assert (table.times + chain.extra_seconds).tolist() == plain


def test_more_may_wait_than_a_block_is_said_to_save():
    """Another tool's chain, or an older one's: plans are made for it, and keep to their budget."""
    option = Option("", 4, 1.0, 2.0, 8, 8)
    blocks = [
        Block(f"b{n}", 8, (option,), 0, 8, 1.0, ((n, 8),), released=((n, NOBODY),) if n < 5 else ())
        for n in range(6)
    ]
    chain = Chain(tuple(blocks), 4, 0, 4, "cpu", "estimated")
    for table in (partial(optimal.OptimalTable, menu=True), single_level.SingleLevelTable):
        found = table(chain, most(chain))
        for memory in range(simulate(chain, found.plan(0)).peak_bytes, most(chain)):
            assert simulate(chain, found.plan(memory)).peak_bytes <= memory


@given(chains(max_blocks=6))
@thorough
def test_single_level_equals_brute_force(chain):
    every = brute_force(chain, menu=False, depth=1)
    assert_exact(
        chain,
        every,
        single_level.lowest_peak(chain),
        single_level.SingleLevelTable(chain, most(chain)),
    )


@given(chains(max_blocks=4, menu=2))
@thorough
def test_menu_equals_brute_force(chain):
    every = brute_force(chain, menu=True)
    found = optimal.OptimalTable(chain, most(chain), menu=True)
    assert_exact(chain, every, optimal.lowest_peak(chain, menu=True), found)


@given(chains(max_blocks=3, menu=2))
@thorough
def test_fastest_and_smallest_equal_brute_force(chain):
    peaks, times = brute_force(chain, menu=True)
    floor, plain = optimal.lowest_peak(chain, menu=True), simulate(chain, keep_all(chain))
    exact_table = partial(optimal.OptimalTable, menu=True)
    for budget in np.unique(peaks)[::3]:
        costs = simulate(chain, fastest(chain, exact_table, floor, int(budget)))
        assert costs.peak_bytes <= budget
        # Where plain training fits it is chosen, even if a made-up option of the menu is faster
        # than saving everything.
        assert costs.seconds == (
            plain.seconds if plain.peak_bytes <= budget else times[peaks <= budget].min()
        )
    for seconds in (plain.seconds, 1.25 * plain.seconds, 2 * plain.seconds):
        costs = simulate(chain, smallest(chain, exact_table, floor, keep_all(chain), seconds))
        assert costs.seconds <= seconds
        assert costs.peak_bytes == peaks[times <= seconds].min()


def test_the_needs_of_a_segment_are_those_that_the_account_shows():
    chain = random_chain(7, seed=3)
    needs = Needs(chain, menu=False)
    plan = from_splits(chain, [2, 5], "x")  # (0 1) (2 3 4) 5 6
    segment = needs.base + needs.held[0, 1] + needs.kept_segment()[2, 4]
    # All that the blocks 2, 3, 4 do, first run included, happens beside the output of block 1.
    during = [
        moment.peak_bytes for moment in simulate(chain, plan).timeline if moment.block in (2, 3, 4)
    ]
    assert max(during) == segment


@pytest.mark.parametrize("menu", [False, True])
def test_plans_from_rounded_tables_keep_to_the_budget_to_the_byte(menu):
    chain = random_chain(40, seed=5, menu=3)
    plain = simulate(chain, keep_all(chain))
    floor = optimal.lowest_peak(chain, menu=menu)

    coarse = partial(optimal.OptimalTable, menu=menu, slots=60)
    seconds = []
    for share in (0.2, 0.3, 0.5, 0.9):
        costs = simulate(chain, fastest(chain, coarse, floor, int(share * plain.peak_bytes)))
        assert costs.peak_bytes <= share * plain.peak_bytes
        seconds.append(costs.seconds)
    assert seconds == sorted(seconds, reverse=True)
    assert simulate(chain, floor).peak_bytes < 0.2 * plain.peak_bytes


def test_finer_slots_are_no_worse_than_coarse_ones_by_much():
    chain = random_chain(30, seed=8)
    budget = simulate(chain, keep_all(chain)).peak_bytes // 2
    floor, times = optimal.lowest_peak(chain, menu=False), []
    for slots in (50, 2000):
        table_of = partial(optimal.OptimalTable, menu=False, slots=slots)
        found = fastest(chain, table_of, floor, budget)
        times.append(simulate(chain, found).seconds)
    assert times[1] <= times[0] <= 1.05 * times[1]
