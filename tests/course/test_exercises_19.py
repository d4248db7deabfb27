"""The exercise's check of notebook 19: the stub, wrong answers, the solution."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from course import exercises


def stub(layer: nn.Module, norm: nn.Module) -> None: ...


@torch.no_grad()
def solution(layer: nn.Module, norm: nn.Module) -> None:
    norm.running_mean -= layer.bias
    layer.bias = None


def only_drops(layer: nn.Module, norm: nn.Module) -> None:
    layer.bias = None


@torch.no_grad()
def zeroes_it(layer: nn.Module, norm: nn.Module) -> None:
    norm.running_mean -= layer.bias
    layer.bias.zero_()


@torch.no_grad()
def wrong_sign(layer: nn.Module, norm: nn.Module) -> None:
    norm.running_mean += layer.bias
    layer.bias = None


def spoils_the_weights(layer: nn.Module, norm: nn.Module) -> None:
    layer.bias = None
    layer.weight.data.fill_(math.nan)


@torch.no_grad()
def moves_it_into_beta(layer: nn.Module, norm: nn.Module) -> None:
    norm.bias += norm.weight * layer.bias / (norm.running_var + norm.eps).sqrt()
    layer.bias = None


def test_the_solution_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert exercises.check_19_drop_bias(solution) is True
    assert capsys.readouterr().out.startswith("✓")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (stub, "still has a bias"),
        (lambda layer, norm: None, "still has a bias"),
        (zeroes_it, "still has a bias"),
        (only_drops, "in evaluation mode the outputs changed"),
        (wrong_sign, "in evaluation mode the outputs changed"),
        (spoils_the_weights, "in evaluation mode the outputs changed by up to nan"),
        (moves_it_into_beta, "in training mode the outputs changed"),
    ],
)
def test_wrong_answers(
    answer: Callable[..., Any], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exercises.check_19_drop_bias(answer) is False
    printed = capsys.readouterr().out
    assert printed.startswith("not yet: ")
    assert says in printed


def test_random_state_and_grad_mode_are_untouched() -> None:
    state = torch.get_rng_state()
    exercises.check_19_drop_bias(solution)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.is_grad_enabled()


def test_a_reader_s_own_error_is_raised() -> None:
    with pytest.raises(AttributeError, match="running_meen"):
        exercises.check_19_drop_bias(lambda layer, norm: norm.running_meen)
