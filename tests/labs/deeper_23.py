"""Deeper 23, answers to the exercise: the share of a timeline in which nothing runs."""

import itertools

from course import exercises
from tests.labs import nothing


def right(intervals):
    busy, until = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        busy += max(0.0, end - max(begin, until))
        until = max(until, end)
    if not intervals:
        return 0.0
    return 1 - busy / (until - min(begin for begin, _ in intervals))


def adds_up(intervals):
    whole = max(end for _, end in intervals) - min(begin for begin, _ in intervals)
    return 1 - sum(end - begin for begin, end in intervals) / whole


def begins_at_zero(intervals):
    return 1 - sum(end - begin for begin, end in intervals) / max(end for _, end in intervals)


def trusts_the_order(intervals):
    gaps = sum(after[0] - before[1] for before, after in itertools.pairwise(intervals))
    return gaps / (intervals[-1][1] - intervals[0][0])


def looks_at_neighbours(intervals):
    every = sorted(intervals)
    gaps = sum(max(0, after[0] - before[1]) for before, after in itertools.pairwise(every))
    return gaps / (max(end for _, end in every) - every[0][0])


def forgets_the_empty_one(intervals):
    return right(intervals) if intervals else None


CHECK = exercises.check_23_idle
RIGHT = right
WRONG = [
    (nothing, "[(0, 10)] want 0, yours returns None"),
    (begins_at_zero, "[(108, 110), (100, 102)] want 0.6"),
    (trusts_the_order, "[(108, 110), (100, 102)] want 0.6"),
    (adds_up, "[(0, 6), (1, 2), (8, 10)] want 0.2"),
    (looks_at_neighbours, "…want 0.2"),
    (forgets_the_empty_one, "[] want 0, yours returns None"),
]
