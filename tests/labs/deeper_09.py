"""Deeper 09, answers to the exercise: when a search has paid for itself."""

import math

from course import exercises
from tests.labs import nothing


def right(first_off, later_off, first_on, later_on):
    extra, saved = first_on - first_off, later_off - later_on
    if extra <= 0:
        return 1
    return 1 + math.ceil(extra / saved) if saved > 0 else math.inf


def forgets_the_first(first_off, later_off, first_on, later_on):
    extra, saved = first_on - first_off, later_off - later_on
    if extra <= 0:
        return 1
    return math.ceil(extra / saved) if saved > 0 else math.inf


def rounds_down(first_off, later_off, first_on, later_on):
    extra, saved = first_on - first_off, later_off - later_on
    return 1 + extra // saved if saved > 0 else math.inf


def search_alone(first_off, later_off, first_on, later_on):
    saved = later_off - later_on
    return 1 + math.ceil(first_on / saved) if saved > 0 else math.inf


def forgets_never(first_off, later_off, first_on, later_on):
    return max(1, 1 + math.ceil((first_on - first_off) / ((later_off - later_on) or 1e-9)))


def forgets_at_once(first_off, later_off, first_on, later_on):
    extra, saved = first_on - first_off, later_off - later_on
    return 1 + math.ceil(extra / saved) if saved > 0 else math.inf


def by_counting(first_off, later_off, first_on, later_on):
    for n in range(1, 1000):
        if first_on + (n - 1) * later_on <= first_off + (n - 1) * later_off:
            return n
    return math.inf


CHECK = exercises.check_09_steps_until_it_pays
RIGHT = right
ALSO_RIGHT = [by_counting]
WRONG = [
    (nothing, "first steps 10 and 100, later steps 10 and 8 want 46, yours says None"),
    (forgets_the_first, "first steps 10 and 100, later steps 10 and 8 want 46, yours says 45"),
    (search_alone, "first steps 10 and 100, later steps 10 and 8 want 46, yours says 51"),
    (rounds_down, "first steps 10 and 101, later steps 10 and 8 want 47, yours says 46"),
    (forgets_never, "…later steps 10 and 10 want inf"),
    (forgets_at_once, "first steps 50 and 50, later steps 10 and 12 want 1, yours says inf"),
]
