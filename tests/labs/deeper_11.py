"""Deeper 11, answers to the exercise: how many pieces are best."""

from course import exercises
from tests.labs import nothing


def right(n, a, b):
    return min(range(1, n + 1), key=lambda k: k * a + -(-n // k) * b)


def last_of_equals(n, a, b):
    return min(range(n, 0, -1), key=lambda k: k * a + -(-n // k) * b)


def rounded_root(n, a, b):
    return max(1, min(n, round((n * b / a) ** 0.5)))


def unrounded(n, a, b):
    return min(range(1, n + 1), key=lambda k: k * a + n / k * b)


CHECK = exercises.check_11_best_segments
RIGHT = right
ALSO_RIGHT = [last_of_equals]
WRONG = [
    (nothing, "return a number"),
    (lambda n, a, b: 0, "…from 1 to 24"),
    (lambda n, a, b: (n * b / a) ** 0.5, "…whole number"),
    (lambda n, a, b: "12", "…whole number"),
    (lambda n, a, b: round(n**0.5), "…is possible"),
    (rounded_root, "…is possible"),
    (unrounded, "…is possible"),
    (lambda n, a, b: n, "…is possible"),
]
