"""Deeper 03, answers to the exercise: the rates of 1cycle."""

import math

from course import exercises
from tests.labs import nothing


def solution(step, max_lr, total_steps, pct_start, div_factor, final_div_factor):
    low, peak = max_lr / div_factor, pct_start * total_steps - 1
    if step <= peak:
        begin, end, part = low, max_lr, step / peak
    else:
        begin, end, part = max_lr, low / final_div_factor, (step - peak) / (total_steps - 1 - peak)
    return end + (begin - end) * (1 + math.cos(math.pi * part)) / 2


def linear(step, max_lr, total_steps, pct_start, div_factor, final_div_factor):
    low, peak = max_lr / div_factor, pct_start * total_steps - 1
    if step <= peak:
        return low + (max_lr - low) * step / peak
    return max_lr + (low / final_div_factor - max_lr) * (step - peak) / (total_steps - 1 - peak)


def forgets_div_factor(step, max_lr, total_steps, pct_start, div_factor, final_div_factor):
    return solution(
        step, max_lr, total_steps, pct_start, div_factor, final_div_factor * 25 / div_factor
    )


def peak_one_late(step, max_lr, total_steps, pct_start, div_factor, final_div_factor):
    return solution(
        step, max_lr, total_steps, pct_start + 1 / total_steps, div_factor, final_div_factor
    )


CHECK = exercises.check_03_one_cycle_lr
RIGHT = solution
WRONG = [
    (nothing, "the function returns nothing yet"),
    (linear, "at step 1 of 100"),
    (forgets_div_factor, "at step 9 of 37"),
    (peak_one_late, "at step 1 of 100"),
    (lambda *arguments: 0.1, "at step 0 of 100"),
    (lambda *arguments: math.nan, "at step 0 of 100"),
]
