"""MegEngine's second search: a genetic algorithm. Its genes are cuts, its fitness is the peak."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from course.searches.grid import Splits, best, peak_of, threshold_splits
from course.searches.splits import from_splits
from sublinear.chain import Chain
from sublinear.plan import Plan


@dataclass(frozen=True)
class Generation:
    """The state after one iteration: the best plan so far, and the cuts that live on.

    ``population``: pairs of cuts and their peak in bytes.
    """

    number: int
    best_peak: int
    plan: Plan
    population: tuple[tuple[Splits, int], ...]


def genetic(
    chain: Chain, *, iterations: int = 20, pool: int = 20, mutation: float = 0.75, seed: int = 0
) -> Plan:
    """The best plan after ``iterations`` of `evolve`."""
    *_, last = evolve(chain, iterations=iterations, pool=pool, mutation=mutation, seed=seed)
    return last.plan


def evolve(
    chain: Chain, *, iterations: int = 20, pool: int = 20, mutation: float = 0.75, seed: int = 0
) -> Iterator[Generation]:
    """Yield the first population, that of the grid of thresholds, then one for each iteration.

    As in MegEngine (``SublinearMemoryConfig``; seq_sublinear_memory.cpp, 2020): the population is
    walked from the lowest peak on and ``pool`` members are chosen, each being passed over with
    probability 1/8 while its peak is close to the best. Each of them gives a child that was mutated
    twice, and one crossed with another member at a place in the first half of the chain. One
    mutation inserts a cut, removes one or moves one between its neighbours, with ``mutation`` / 3
    each, else it does nothing. Members and children make up the next population.
    """
    if iterations < 0 or pool < 1 or not 0 <= mutation <= 1:
        raise ValueError(
            f"iterations={iterations!r}, pool={pool!r}, mutation={mutation!r}: use 0 or more "
            "iterations, a pool of 1 or more, and a probability of mutation"
        )
    rng, count = random.Random(seed), len(chain)
    # The peak of all that was ever looked at.
    peaks = threshold_splits(chain)
    population = list(peaks)
    for number in range(iterations + 1):
        winner = best(peaks)
        state = tuple((splits, peaks[splits]) for splits in population)
        yield Generation(number, peaks[winner], from_splits(chain, winner, "genetic"), state)
        if number == iterations:
            return
        chosen = _select(rng, population, peaks, pool)
        partners = rng.sample(chosen, len(chosen))
        children = []
        for splits, partner in zip(chosen, partners, strict=True):
            children.append(_mutate(rng, _mutate(rng, splits, count, mutation), count, mutation))
            children.append(_cross(rng, splits, partner, count))
        for child in children:
            if child not in peaks:
                peaks[child] = peak_of(chain, child)
        population = list(dict.fromkeys(chosen + children))


def _select(
    rng: random.Random, population: list[Splits], peaks: dict[Splits, int], pool: int
) -> list[Splits]:
    waiting = sorted(population, key=lambda splits: (peaks[splits], len(splits), splits))
    chosen: list[Splits] = []
    place = 0
    while waiting and len(chosen) < pool:
        place %= len(waiting)
        if 8 * rng.random() * peaks[waiting[0]] < 7 * peaks[waiting[place]]:
            chosen.append(waiting.pop(place))
        else:
            place += 1
    return chosen


def _mutate(rng: random.Random, splits: Splits, count: int, mutation: float) -> Splits:
    """Insert, remove or move one cut.

    The end of the chain counts as one that may neither go nor move.
    """
    bounds = [0, *splits, count]
    place = rng.randrange(1, len(bounds))
    before, here = bounds[place - 1], bounds[place]
    last = place == len(bounds) - 1
    draw = rng.random() * 3
    if draw < mutation and here - before > 1:
        bounds.insert(place, rng.randrange(before + 1, here))
    elif mutation <= draw < 2 * mutation and not last:
        del bounds[place]
    elif 2 * mutation <= draw < 3 * mutation and not last:
        bounds[place] = rng.randrange(before + 1, bounds[place + 1])
    return tuple(bounds[1:-1])


def _cross(rng: random.Random, one: Splits, other: Splits, count: int) -> Splits:
    place = rng.randrange(max(1, count // 2))
    return tuple(cut for cut in one if cut < place) + tuple(cut for cut in other if cut >= place)
