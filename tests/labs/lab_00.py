"""00, start here: what shows that the technique acts; answers to the exercise."""

import statistics
from typing import Any

from course import exercises
from tests.labs import counters


def alive(names: dict[str, Any]) -> None:
    assert counters(names).flops == 64 * counters(names, rows=1).flops


def ratios(a, b):
    return [before / after for before, after in zip(a, b, strict=True)]


def right(a, b):
    return statistics.median(ratios(a, b))


def returns_nothing(a, b):
    ratios(a, b)


def returns_all(a, b):
    return ratios(a, b)


def upside_down(a, b):
    return statistics.median(ratios(b, a))


def of_the_means(a, b):
    return sum(a) / sum(b)


def of_the_medians(a, b):
    return statistics.median(a) / statistics.median(b)


def mean_of_ratios(a, b):
    return statistics.mean(ratios(a, b))


def smallest(a, b):
    return min(ratios(a, b))


def largest(a, b):
    return max(ratios(a, b))


def not_sorted(a, b):
    return ratios(a, b)[len(a) // 2]


def upper_middle(a, b):
    return sorted(ratios(a, b))[len(a) // 2]


def lower_middle(a, b):
    return statistics.median_low(ratios(a, b))


def difference(a, b):
    return statistics.median([before - after for before, after in zip(a, b, strict=True)])


def something_else(a, b):
    return 1.07 * right(a, b)


CASE = "with a=[1.0, 80.0, 2.0, 8.0, 16.0] and b=[0.5, 1.0, 0.8, 4.0, 10.0] the median of the "
EVEN = "with a=[1.0, 2.0] and b=[1.0, 0.5] the median of the ratios is 2.5, yours is "
CHECK = exercises.check_00_speedup
RIGHT = right
WRONG = (
    (returns_nothing, "the function returns nothing yet"),
    (returns_all, "return one number, the median of the ratios, not [2.0, 80.0"),
    (upside_down, f"{CASE}ratios is 2.0, yours is 0.5: that is b[i] / a[i], upside down"),
    (of_the_means, f"{CASE}ratios is 2.0, yours is 6.56442: that is the ratio of the means"),
    (of_the_medians, f"{CASE}ratios is 2.0, yours is 8: that is the ratio of two medians"),
    (mean_of_ratios, f"{CASE}ratios is 2.0, yours is 17.62: that is the mean of the ratios"),
    (smallest, f"{CASE}ratios is 2.0, yours is 1.6: that is the smallest of the ratios"),
    (largest, f"{CASE}ratios is 2.0, yours is 80: that is the largest of the ratios"),
    (not_sorted, f"{CASE}ratios is 2.0, yours is 2.5: that is the ratio in the middle of the list"),
    (difference, f"{CASE}ratios is 2.0, yours is 4: that is a difference in seconds"),
    (upper_middle, f"{EVEN}4: of an even number of ratios two are in the middle"),
    (lower_middle, f"{EVEN}1: of an even number of ratios two are in the middle"),
    (something_else, f"{CASE}ratios is 2.0, yours is 2.14"),
)
