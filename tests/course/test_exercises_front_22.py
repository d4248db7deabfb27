"""The check of notebook 22's front: what it lets through, and what it leaves alone."""

from __future__ import annotations

import pytest
import torch

from course import exercises
from tests.labs import lab_22


def test_another_way_is_right_as_well() -> None:
    """Parts that are views of the result."""

    def through_split(functions, x, tile):
        out = torch.empty(x.shape, dtype=x.dtype)
        parts = zip(x.reshape(-1).split(tile), out.view(-1).split(tile), strict=True)
        for part, place in parts:
            for function in functions:
                part = function(part)
            place.copy_(part)
        return out

    assert exercises.check_22_fused(through_split) is True


def test_a_reader_s_own_error_is_raised() -> None:
    with pytest.raises(RuntimeError, match="view size"):
        exercises.check_22_fused(
            lambda functions, x, tile: lab_22.RIGHT(functions, x.view(-1), tile).view(x.shape)
        )


def test_random_state_is_untouched() -> None:
    state = torch.get_rng_state()
    assert exercises.check_22_fused(lab_22.RIGHT) is True
    assert torch.equal(torch.get_rng_state(), state)
