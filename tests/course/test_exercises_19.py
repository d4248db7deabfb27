"""The check of notebook 19: what it leaves alone, and which part of the formula it misses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from course import exercises
from tests.labs import lab_19


@pytest.mark.parametrize(
    ("answer", "part"),
    [
        (lab_19.no_eps, "norm.eps is part of the root"),
        (lab_19.no_root, "running_var is σ², so divide by its root"),
        (lab_19.loses_the_old_bias, "the old bias passes the norm, too"),
        (lab_19.forgets_the_mean, "the running mean is to be subtracted"),
        (lab_19.mean_without_scale, "the mean is scaled as the weights are"),
        (lab_19.forgets_beta, "norm.bias is to be added"),
        (lab_19.forgets_gamma, "norm.weight scales, too"),
    ],
)
def test_the_part_that_is_missing_is_named(
    answer: Callable[..., Any], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exercises.check_19_fold(answer) is False
    assert capsys.readouterr().out.endswith(f" of the largest; {part}\n")


def test_another_fault_is_given_no_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert exercises.check_19_fold(lab_19.along_the_inputs) is False
    assert capsys.readouterr().out.endswith(" of the largest\n")


def by_torch(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> None:
    folded = fuse_conv_bn_eval(conv.eval(), norm)
    conv.weight, conv.bias = folded.weight, folded.bias


def test_pytorch_s_own_function_is_right() -> None:
    assert exercises.check_19_fold(by_torch) is True


def test_the_data_of_the_parameters_may_be_changed() -> None:
    @torch.no_grad()
    def in_place(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> None:
        scale, mean, beta, old = lab_19.formula(conv, norm)
        conv.weight.mul_(scale.view(-1, 1, 1, 1))
        conv.register_parameter("bias", nn.Parameter(beta + (old - mean) * scale))

    assert exercises.check_19_fold(in_place) is True


def test_random_state_and_grad_mode_are_untouched() -> None:
    state = torch.get_rng_state()
    assert exercises.check_19_fold(lab_19.RIGHT) is True
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.is_grad_enabled()


def test_a_reader_s_own_error_is_raised() -> None:
    with pytest.raises(AttributeError, match="running_meen"):
        exercises.check_19_fold(lambda conv, norm: norm.running_meen)
