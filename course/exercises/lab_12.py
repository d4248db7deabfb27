"""The exercise of notebook 12."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, pairwise
from typing import Any

from course.exercises.tell import NotYet, attempt, check


@check("the smallest peak in every case, also among 2^36 ways to cut")
def check_12_lowest_peak(answer: Callable[..., Any]) -> None:
    """`answer(saved, outputs)` is the smallest peak of all ways to cut a chain.

    All pieces but the last are recomputed.

    The peak of a way: for each piece the outputs of the pieces before it, and all that its own
    blocks save.
    """
    for saved, outputs in (
        ([4], [1]),
        ([4, 4, 4, 4], [1, 1, 1, 1]),
        ([9, 1, 1, 1, 9, 1], [1, 8, 8, 8, 1, 1]),
        ([8, 8, 4, 4, 2, 2, 1, 1], [4, 4, 2, 2, 1, 1, 1, 1]),
        ([3, 1, 4, 1, 5, 9, 2, 6, 5], [2, 7, 1, 8, 2, 8, 1, 8, 2]),
        ([1, 2, 3, 4, 5], [9, 9, 9, 9, 9]),
    ):
        blocks = range(1, len(saved))
        ways = (cuts for number in range(len(saved)) for cuts in combinations(blocks, number))
        lowest = min(_peak(saved, outputs, cuts) for cuts in ways)
        found, case = (
            attempt(answer, list(saved), list(outputs)),
            f"saved={saved}, outputs={outputs}",
        )
        if found is None:
            raise NotYet("return the smallest peak, a number")
        if found != lowest:
            why = (
                f"some cuts give {lowest}" if found > lowest else f"no cuts give less than {lowest}"
            )
            raise NotYet(f"{case} gave {found!r}: {why}")
    # pieces of 8, 7, ... 1 blocks; one block more does not fit into 8
    for count, lowest in (
        (36, 8),
        (37, 9),
    ):
        if attempt(answer, [1] * count, [1] * count) != lowest:
            raise NotYet(
                f"right for a few blocks; but {count} that save and hand on 1 each need {lowest}"
            )


def _peak(saved: list[int], outputs: list[int], cuts: tuple[int, ...]) -> int:
    """The peak of one way to cut a chain, as in notebook 12."""
    held = peak = 0
    for first, end in pairwise([0, *cuts, len(saved)]):
        peak = max(peak, held + sum(saved[first:end]))
        held += outputs[end - 1]
    return peak
