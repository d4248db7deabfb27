"""The exercise of notebook 00."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from course.exercises.tell import NotYet, attempt, check

Times = list[float]
Speedup = Callable[[Times, Times], float]

# The machine slows down, and one pair was disturbed. Each of the `MISTAKES` gives another number.
DISTURBED = [1.0, 80.0, 2.0, 8.0, 16.0], [0.5, 1.0, 0.8, 4.0, 10.0]
# Of two ratios, 1 and 4, the median lies between.
EVEN = [1.0, 2.0], [1.0, 0.5]


def ratios(a: Sequence[float], b: Sequence[float]) -> Times:
    """How many times as fast the second program was, pair by pair."""
    return [before / after for before, after in zip(a, b, strict=True)]


# What is often built instead, and what is wrong with it. The first one that fits is the hint.
MISTAKES: list[tuple[Speedup, str]] = [
    (
        lambda a, b: sorted(ratios(a, b))[len(a) // 2],
        "of an even number of ratios two are in the middle, and the median is the mean of both; "
        "statistics.median does that",
    ),
    (
        lambda a, b: sorted(ratios(a, b))[(len(a) - 1) // 2],
        "of an even number of ratios two are in the middle, and the median is the mean of both; "
        "statistics.median does that",
    ),
    (
        lambda a, b: statistics.median(ratios(b, a)),
        "that is b[i] / a[i], upside down: a second program that takes half the time is twice as "
        "fast, so the ratio is a[i] / b[i]",
    ),
    (
        lambda a, b: sum(a) / sum(b),
        "that is the ratio of the means, in which the disturbed pair decides: take the ratio of "
        "each pair first, then the median of the ratios",
    ),
    (
        lambda a, b: statistics.median(a) / statistics.median(b),
        "that is the ratio of two medians, which forgets what was timed together: take the ratio "
        "of each pair first, then the median of the ratios",
    ),
    (
        lambda a, b: statistics.mean(ratios(a, b)),
        "that is the mean of the ratios, which the disturbed pair pulls up: take their median",
    ),
    (
        lambda a, b: min(ratios(a, b)),
        "that is the smallest of the ratios: take their median",
    ),
    (
        lambda a, b: max(ratios(a, b)),
        "that is the largest of the ratios, the disturbed pair's: take their median",
    ),
    (
        lambda a, b: ratios(a, b)[len(a) // 2],
        "that is the ratio in the middle of the list: the median is in the middle of the sorted "
        "ratios",
    ),
    (
        lambda a, b: statistics.median(before - after for before, after in zip(a, b, strict=True)),
        "that is a difference in seconds: a ratio, a[i] / b[i], says how many times as fast",
    ),
]


@check("one disturbed pair does not matter, nor a machine that slows down")
def check_00_speedup(answer: Speedup) -> None:
    """``answer(a, b)`` is the median of the paired ratios a / b: not of the means, not upside
    down.
    """
    for a, b in (DISTURBED, EVEN):
        got = attempt(answer, list(a), list(b))
        if got is None:
            raise NotYet("the function returns nothing yet: return the median of the ratios")
        if not isinstance(got, float):
            raise NotYet(f"return one number, the median of the ratios, not {got!r}")
        expected = statistics.median(ratios(a, b))
        if abs(got - expected) > 1e-6:
            raise NotYet(
                f"with a={a} and b={b} the median of the ratios is {expected}, yours is "
                f"{got:.6g}{_why(got, a, b)}"
            )


def _why(got: float, a: Times, b: Times) -> str:
    """The mistake that gives this number, where one of `MISTAKES` does."""
    for mistake, hint in MISTAKES:
        if abs(mistake(a, b) - got) < 1e-6:
            return f": {hint}"
    return ""
