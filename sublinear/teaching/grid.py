"""MegEngine's first search: cut greedily whenever a segment exceeds a threshold, and try many thresholds."""

from __future__ import annotations

from collections.abc import Iterable

from sublinear.chain import Chain
from sublinear.cost import simulate
from sublinear.plan import Plan
from sublinear.searches.simple import from_splits

Splits = tuple[int, ...]


def grid(chain: Chain, *, tries: int = 10) -> Plan:
    """The lowest peak among plans that thresholds give; ``tries`` is MegEngine's ``thresh_nr_try``."""
    found = threshold_splits(chain, tries=tries)
    return from_splits(best(found), len(chain), "grid")


def threshold_splits(chain: Chain, *, tries: int = 10) -> dict[Splits, int]:
    """Every set of cuts that the grid of thresholds leads to, with its peak in bytes.

    Thresholds are those of MegEngine's ``SublinearMemoryConfig`` (seq_sublinear_memory.cpp, 2020): the plain peak
    halved again and again, ``tries`` equal steps below the plain peak, then ``tries`` values between half and double
    the best threshold so far. The greedy cut for one threshold is algorithm 3 of Chen et al. 2016.
    """
    if tries < 2:
        raise ValueError(f"tries={tries!r}: a grid has at least 2 values")
    splits: Splits = ()
    found = {splits: peak_of(chain, splits)}
    plain = found[splits]
    best_threshold, lowest = plain, plain

    def look(thresholds: Iterable[int]) -> None:
        nonlocal best_threshold, lowest
        for threshold in thresholds:
            splits = cut(chain, threshold)
            peak = found[splits] if splits in found else peak_of(chain, splits)
            found[splits] = peak
            if peak < lowest or (peak == lowest and threshold > best_threshold):
                best_threshold, lowest = threshold, peak

    look(plain >> shift for shift in range(1, max(1, plain.bit_length() - 10)))
    look(plain * part // (tries + 1) for part in range(1, tries + 1))
    half = best_threshold // 2
    look([half + (2 * best_threshold - half) * part // (tries - 1) for part in range(tries)])
    return found


def cut(chain: Chain, threshold: int) -> Splits:
    """Walk along the chain and cut after each block with which the segment saves more than ``threshold`` bytes."""
    splits, saved = [], 0
    for number, block in enumerate(chain.blocks):
        saved += block.options[0].saved_bytes
        if saved > threshold and number + 1 < len(chain):
            splits.append(number + 1)
            saved = 0
    return tuple(splits)


def peak_of(chain: Chain, splits: Splits) -> int:
    """Peak in bytes of the plan with these cuts."""
    return simulate(chain, from_splits(splits, len(chain), "")).peak_bytes


def best(found: dict[Splits, int]) -> Splits:
    """The cuts with the lowest peak; among equals the fewest, then the first."""
    return min(found, key=lambda splits: (found[splits], len(splits), splits))
