"""The exercise of the front notebook 12: the cuts with the lowest peak."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import combinations, pairwise
from typing import Any

from course.exercises.tell import NotYet, attempt, check

# What blocks save and hand on. Few blocks, so that all ways to cut can be tried.
CASES = (
    ([4, 4, 4, 4], [1, 1, 1, 1]),
    ([4], [1]),
    ([6, 6, 6, 6, 6, 6, 6, 6, 6], [2, 2, 2, 2, 2, 2, 2, 2, 2]),
    ([9, 1, 1, 1, 9, 1], [1, 8, 8, 8, 1, 1]),
    ([8, 8, 4, 4, 2, 2, 1, 1], [4, 4, 2, 2, 1, 1, 1, 1]),
    ([3, 1, 4, 1, 5, 9, 2, 6, 5, 3], [2, 7, 1, 8, 2, 8, 1, 8, 2, 8]),
    ([1, 2, 3, 4, 5], [9, 9, 9, 9, 9]),
    ([1, 1, 1, 5], [1, 1, 1, 30]),
)
# Blocks at which trying all ways takes seconds, and a table milliseconds.
SLOW, SECONDS = 21, 1.0
# Blocks that save and hand on 1 each, and their lowest peak: pieces of 8, 7, ... 1 blocks.
MANY = ((36, 8), (37, 9), (40, 9))


@check("the lowest peak in every case, also among 2^39 ways to cut")
def check_12_best_cuts(answer: Callable[..., Any]) -> None:
    """`answer(saved, outputs)` is a list of cuts with the lowest peak of all.

    A cut is the number of the block before which it lies. The peak: for each piece the outputs of
    the pieces before it, and all that its own blocks save.
    """
    for saved, outputs in CASES:
        _judge(answer, saved, outputs, _lowest(saved, outputs))
    _is_quick(answer)
    for count, lowest in MANY:
        _judge(answer, [1] * count, [1] * count, lowest)


def _judge(
    answer: Callable[..., Any], saved: Sequence[int], outputs: Sequence[int], lowest: int
) -> None:
    found = attempt(answer, list(saved), list(outputs))
    case = f"saved={saved}, outputs={outputs}"
    if len(saved) > 10:
        case = f"{len(saved)} blocks that save and hand on 1 each"
    cuts = _cuts(found, len(saved), case)
    peaks = piece_peaks(saved, outputs, cuts)
    if max(peaks) > lowest:
        piece = peaks.index(max(peaks)) + 1
        raise NotYet(
            f"{case}: your cuts {cuts} need {max(peaks)}, in piece {piece} of {len(peaks)}; "
            f"{lowest} is possible"
        )


def _cuts(found: object, blocks: int, case: str) -> list[int]:
    """What was returned, as a list of cuts; NotYet for anything else."""
    if not isinstance(found, list | tuple):
        raise NotYet(f"{case}: return a list of cuts; returned was {found!r}")
    if not all(isinstance(cut, int) and not isinstance(cut, bool) for cut in found):
        raise NotYet(f"{case}: a cut is a whole number; returned was {list(found)}")
    if any(not 0 < cut < blocks for cut in found):
        raise NotYet(
            f"{case}: {list(found)} has a cut outside of 1 to {blocks - 1}; before the first block "
            "and behind the last one there is nothing to cut"
        )
    if list(found) != sorted(set(found)):
        raise NotYet(f"{case}: {list(found)} is not in ascending order, each cut once")
    return list(found)


def _is_quick(answer: Callable[..., Any]) -> None:
    """Whoever tries all ways would never come to an end with 40 blocks."""
    saved = [1 + number % 5 for number in range(SLOW)]
    begin = time.perf_counter()
    attempt(answer, list(saved), [1] * SLOW)
    taken = time.perf_counter() - begin
    if taken > SECONDS:
        raise NotYet(
            f"right; but {SLOW} blocks took {taken:.1f} s, and each block more doubles the ways: "
            "keep what the blocks from s on need in a table, from the last one to the first"
        )


def piece_peaks(saved: Sequence[int], outputs: Sequence[int], cuts: Sequence[int]) -> list[int]:
    """For each piece the outputs of those before it, and what its own blocks save."""
    held, peaks = 0, []
    for first, end in pairwise([0, *cuts, len(saved)]):
        peaks.append(held + sum(saved[first:end]))
        held += outputs[end - 1]
    return peaks


def _lowest(saved: Sequence[int], outputs: Sequence[int]) -> int:
    """The lowest peak of all ways to cut."""
    places = range(1, len(saved))
    ways = (cuts for number in range(len(saved)) for cuts in combinations(places, number))
    return min(max(piece_peaks(saved, outputs, cuts)) for cuts in ways)
