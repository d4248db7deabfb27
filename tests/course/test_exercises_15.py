"""The exercise's check of notebook 15: the stub, wrong answers, the solution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from course import exercises


def stub(parameters: Any, max_norm: float) -> float: ...


def solution(parameters: Any, max_norm: float) -> float:
    gradients = [p.grad for p in parameters if p.grad is not None]
    total = sum(g.norm().item() ** 2 for g in gradients) ** 0.5
    if total > max_norm:
        for g in gradients:
            g.mul_(max_norm / total)
    return total


def asks_nothing(parameters: Any, max_norm: float) -> float:
    parameters = list(parameters)
    total = sum(p.grad.norm().item() ** 2 for p in parameters) ** 0.5
    for p in parameters:
        p.grad.mul_(min(1.0, max_norm / max(total, 1e-12)))
    return total


def walks_twice(parameters: Any, max_norm: float) -> float:
    total = sum(p.grad.norm().item() ** 2 for p in parameters if p.grad is not None) ** 0.5
    for p in parameters:
        p.grad.mul_(max_norm / total)
    return total


def each_alone(parameters: Any, max_norm: float) -> float:
    gradients = [p.grad for p in parameters if p.grad is not None]
    total = sum(g.norm().item() ** 2 for g in gradients) ** 0.5
    for g in gradients:
        g.mul_(min(1.0, max_norm / max(g.norm().item(), 1e-12)))
    return total


def always_scales(parameters: Any, max_norm: float) -> float:
    gradients = [p.grad for p in parameters if p.grad is not None]
    total = sum(g.norm().item() ** 2 for g in gradients) ** 0.5
    for g in gradients:
        g.mul_(max_norm / max(total, 1e-12))
    return total


def returns_the_new_norm(parameters: Any, max_norm: float) -> float:
    return min(solution(parameters, max_norm), max_norm)


def fills_in_zeros(parameters: Any, max_norm: float) -> float:
    parameters = list(parameters)
    for p in parameters:
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
    return solution(parameters, max_norm)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        pytest.param(stub, "return the total norm they had, 5, not None", id="stub"),
        pytest.param(
            lambda parameters, max_norm: None, "return the total norm they had", id="nothing"
        ),
        pytest.param(
            asks_nothing, "one that is None Python said: 'NoneType' object has no", id="None"
        ),
        pytest.param(walks_twice, "gradients of norm 5: one became [3.0]", id="iterator"),
        pytest.param(each_alone, "gradients of norm 5: one became [1.0]", id="each alone"),
        pytest.param(always_scales, "smaller than allowed: one became", id="always"),
        pytest.param(
            returns_the_new_norm, "return the total norm they had, 5, not 1", id="the new norm"
        ),
        pytest.param(fills_in_zeros, "a gradient was replaced", id="zeros"),
    ],
)
def test_wrong_answers(
    answer: Callable[..., Any], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exercises.check_15_clip(answer) is False
    printed = capsys.readouterr().out
    assert printed.startswith("not yet: ")
    assert says in printed


def test_the_solution_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert exercises.check_15_clip(solution) is True
    assert capsys.readouterr().out.startswith("✓")


def test_torch_s_own_function_passes() -> None:
    assert exercises.check_15_clip(torch.nn.utils.clip_grad_norm_) is True


def test_a_reader_s_own_error_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        exercises.check_15_clip(lambda parameters, max_norm: 1 // 0)
