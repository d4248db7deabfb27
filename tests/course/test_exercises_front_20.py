"""The check of notebook 20's front: what it leaves alone, and the hint for a mean of means."""

from __future__ import annotations

import pytest
import torch

from course import exercises
from tests.labs import lab_20


def test_random_state_and_grad_mode_are_untouched() -> None:
    state = torch.get_rng_state()
    assert exercises.check_20_validate(lab_20.RIGHT) is True
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


def test_a_reader_s_own_error_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        exercises.check_20_validate(lambda net, batches: len(batches) // 0)


def test_no_grad_is_right_as_well() -> None:
    assert exercises.check_20_validate(torch.no_grad()(lab_20.records)) is True


def test_a_mean_of_means_is_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    exercises.check_20_validate(lab_20.mean_of_means)
    assert "too much weight" in capsys.readouterr().out
    exercises.check_20_validate(lab_20.the_first_batch)
    assert "too much weight" not in capsys.readouterr().out
