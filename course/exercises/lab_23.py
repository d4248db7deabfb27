"""The exercise of the deeper notebook 23."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from course.exercises.tell import NotYet, attempt, check

Interval = tuple[float, float]

# Each with the share of its time in which nothing runs.
TIMELINES: tuple[tuple[list[Interval], float], ...] = (
    ([(0, 10)], 0.0),
    ([(0, 2), (8, 10)], 0.6),
    # in no order, and not from zero on
    ([(108, 110), (100, 102)], 0.6),
    # one inside another: a caller and what it calls
    ([(0, 6), (1, 2), (8, 10)], 0.2),
    # two threads
    ([(0, 4), (2, 8), (9, 10)], 0.1),
    # a short one after a long one that still runs
    ([(0, 8), (1, 2), (3, 4), (9, 10)], 0.1),
    ([], 0.0),
)


@check("a gap is where no bar covers the time, whatever order the bars are in")
def check_23_idle(answer: Callable[[Sequence[Interval]], float]) -> None:
    """``answer(intervals)`` is the share of the time from the first beginning to the last end that
    no interval ``(begin, end)`` covers; 0 without intervals.
    """
    for intervals, wanted in TIMELINES:
        got = attempt(answer, list(intervals))
        if isinstance(got, bool) or not isinstance(got, (int, float)):
            raise NotYet(f"{intervals} want {wanted:g}, yours returns {got!r}")
        if not abs(got - wanted) < 1e-9:
            raise NotYet(f"{intervals} want {wanted:g}, yours says {got:g}")
