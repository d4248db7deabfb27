"""MegEngine's first search: cut whenever a segment exceeds a threshold, and try many thresholds."""

from __future__ import annotations

from course.searches.splits import from_splits
from sublinear.chain import Chain
from sublinear.plan import Plan

Splits = tuple[int, ...]


def grid(chain: Chain, *, tries: int = 10) -> Plan:
    """The lowest peak of all thresholds; ``tries`` is MegEngine's ``thresh_nr_try``."""
    found = threshold_splits(chain, tries=tries)
    return from_splits(chain, best(found), "grid")


def threshold_splits(chain: Chain, *, tries: int = 10) -> dict[Splits, int]:
    """Every set of cuts that the grid of thresholds leads to, with its peak in bytes.

    Thresholds are those of MegEngine's ``SublinearMemoryConfig`` (seq_sublinear_memory.cpp, 2020):
    the plain peak halved again and again, ``tries`` equal steps below the plain peak, then
    ``tries`` values between half and double the best threshold so far. The greedy cut for one
    threshold is algorithm 3 of Chen et al. 2016.
    """
    if tries < 2:
        raise ValueError(f"tries={tries!r}: a grid has at least 2 values")
    look = _Thresholds(chain)
    plain = look.lowest
    for shift in range(1, max(1, plain.bit_length() - 10)):
        look.at(plain >> shift)
    for part in range(1, tries + 1):
        look.at(plain * part // (tries + 1))
    half, double = look.best // 2, 2 * look.best
    for part in range(tries):
        look.at(half + (double - half) * part // (tries - 1))
    return look.found


class _Thresholds:
    """The cuts that thresholds led to so far, and the best threshold: the highest of the lowest."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        plain = peak_of(chain, ())
        self.found: dict[Splits, int] = {(): plain}
        self.best = self.lowest = plain

    def at(self, threshold: int) -> None:
        splits = cut(self.chain, threshold)
        if splits not in self.found:
            self.found[splits] = peak_of(self.chain, splits)
        peak = self.found[splits]
        if peak < self.lowest or (peak == self.lowest and threshold > self.best):
            self.best, self.lowest = threshold, peak


def cut(chain: Chain, threshold: int) -> Splits:
    """Cut after each block with which the segment saves more than ``threshold`` bytes."""
    splits, saved = [], 0
    for number, block in enumerate(chain.blocks):
        saved += block.options[0].saved_bytes
        if saved > threshold and number + 1 < len(chain):
            splits.append(number + 1)
            saved = 0
    return tuple(splits)


def peak_of(chain: Chain, splits: Splits) -> int:
    """Peak in bytes of the plan with these cuts."""
    return from_splits(chain, splits, "").costs.peak_bytes


def best(found: dict[Splits, int]) -> Splits:
    """The cuts with the lowest peak; among equals the fewest, then the first."""
    return min(found, key=lambda splits: (found[splits], len(splits), splits))
