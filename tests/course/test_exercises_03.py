"""The check of notebook 03's exercise tells right answers from wrong ones."""

import math

import pytest

from course.exercises import check_03_one_cycle_lr


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


def test_the_solution_passes(capsys):
    assert check_03_one_cycle_lr(solution)
    assert "✓" in capsys.readouterr().out


@pytest.mark.parametrize(
    "answer", [linear, forgets_div_factor, peak_one_late, lambda *_: 0.1, lambda *_: math.nan]
)
def test_wrong_answers_do_not(answer, capsys):
    assert not check_03_one_cycle_lr(answer)
    assert "not yet: at step" in capsys.readouterr().out


@pytest.mark.parametrize("answer", [lambda *_: None])
def test_the_stub_is_told_that_it_is_one(answer, capsys):
    assert not check_03_one_cycle_lr(answer)
    assert "returns nothing yet" in capsys.readouterr().out
