"""Deeper 04, answers to the exercise: how many workers are enough."""

import math

from course import exercises
from tests.labs import nothing


def right(L, T):
    return max(1, math.ceil(L / T))


CHECK = exercises.check_04_enough_workers
RIGHT = right
WRONG = [
    (nothing, "L=12 and T=4 want 3 workers, yours says None\n"),
    # the rule of thumb
    (lambda L, T: 4, "L=12 and T=4 want 3 workers, yours says 4\n"),
    # rounds down
    (lambda L, T: max(1, L // T), "L=13 and T=4 want 4 workers, yours says 3.0\n"),
    (lambda L, T: max(1, round(L / T)), "L=13 and T=4 want 4 workers, yours says 3\n"),
    # too many
    (lambda L, T: math.floor(L / T) + 1, "L=12 and T=4 want 3 workers, yours says 4\n"),
    # its limit
    (lambda L, T: math.ceil((L + T) / T), "L=12 and T=4 want 3 workers, yours says 4\n"),
    # not even one
    (lambda L, T: math.ceil(L / T), "L=0 and T=1 want 1 workers, yours says 0\n"),
    (lambda L, T: max(1, L / T), "L=13 and T=4 want 4 workers, yours says 3.25\n"),
]
