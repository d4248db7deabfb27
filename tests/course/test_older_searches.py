"""The older searches do what their sources say."""

import random

import numpy as np
import pytest

from course.searches.genetic import evolve, genetic
from course.searches.grid import cut, grid, threshold_splits
from course.searches.recursive import recursive
from course.searches.splits import from_splits
from sublinear.chain import Block, Chain, Option
from sublinear.plan import keep_all, simulate
from sublinear.searches import single_level
from tests.sublinear.small_chains import random_chain


def equal_chain(count, saved=4):
    block = Block("b", 1, (Option("all", saved, 1.0, 2.0, saved, 1),), 0, 1, 1.0)
    return Chain((block,) * count, 1, 0, 1, "cpu", "estimated")


def test_recursive_bisection_of_128_blocks():
    chain = equal_chain(128)
    plain, costs = simulate(chain, keep_all(chain)), simulate(chain, recursive(chain))
    assert sum(costs.block_forwards) == 128 + 128 * 7 // 2  # 4.5 forwards a block
    assert recursive(chain).depth == 7
    assert costs.peak_bytes <= 0.05 * plain.peak_bytes


def test_recursive_peak_grows_with_the_logarithm():
    peaks = [
        simulate(equal_chain(2**k), recursive(equal_chain(2**k))).peak_bytes for k in range(3, 9)
    ]
    assert set(np.diff(peaks)) == {1}


def test_greedy_cut():
    chain = equal_chain(10, saved=4)
    assert cut(chain, 100) == ()
    assert cut(chain, 11) == (3, 6, 9)  # 4 + 4 + 4 is the first above 11
    assert cut(chain, 0) == tuple(range(1, 10))


def test_grid_takes_the_best_of_its_thresholds():
    chain = random_chain(50, seed=2)
    found = threshold_splits(chain)
    costs = simulate(chain, grid(chain))
    assert costs.peak_bytes == min(found.values())
    assert () in found  # plain training is among them
    assert all(
        simulate(chain, from_splits(chain, splits, "x")).peak_bytes == peak
        for splits, peak in found.items()
    )


def test_genetic_evolves_and_repeats_itself_by_seed():
    chain = random_chain(120, seed=4)
    generations = list(evolve(chain, iterations=8, pool=10, seed=3))
    peaks = [generation.best_peak for generation in generations]
    assert [generation.number for generation in generations] == list(range(9))
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[0] == simulate(chain, grid(chain)).peak_bytes
    assert peaks[-1] < peaks[0]
    assert all(
        simulate(chain, generation.plan).peak_bytes == generation.best_peak
        for generation in generations
    )
    assert all(len(generation.population) <= 30 for generation in generations[1:])
    assert genetic(chain, iterations=8, pool=10, seed=3) == generations[-1].plan
    assert list(evolve(chain, iterations=8, pool=10, seed=3)) == generations


def test_genetic_leaves_the_global_random_state_alone():
    random.seed(5)
    state = random.getstate()
    genetic(random_chain(20, seed=1), iterations=3)
    assert random.getstate() == state


def test_without_mutation_only_crossing_is_left():
    chain = random_chain(40, seed=9)
    known = {place for splits in threshold_splits(chain) for place in splits}
    *_, last = evolve(chain, iterations=5, mutation=0.0)
    assert {place for splits, _ in last.population for place in splits} <= known


@pytest.mark.parametrize("seed", range(5))
def test_exact_single_level_is_never_above_the_genetic_algorithm(seed):
    chain = random_chain(40, seed=seed)
    exact = simulate(chain, single_level.lowest_peak(chain)).peak_bytes
    assert exact <= simulate(chain, genetic(chain, iterations=10, seed=seed)).peak_bytes


@pytest.mark.parametrize("chain", [equal_chain(1), equal_chain(2)])
def test_searches_on_the_shortest_chains(chain):
    for found in (
        grid(chain),
        genetic(chain, iterations=2),
        recursive(chain),
        single_level.lowest_peak(chain),
    ):
        assert len(found) == len(chain)


def test_bad_settings_are_named():
    chain = equal_chain(3)
    with pytest.raises(ValueError, match="tries=1"):
        grid(chain, tries=1)
    with pytest.raises(ValueError, match=r"iterations=-1, pool=20, mutation=0.75"):
        genetic(chain, iterations=-1)
