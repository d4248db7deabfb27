"""The exercise's check of notebook 16: the stub, wrong answers, the solution."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from course import exercises


def stub(x: Any) -> torch.Tensor: ...


def solution(x: Any) -> torch.Tensor:
    array = np.asarray(x, dtype=np.float32)
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    return torch.from_numpy(array)


def never_asks_for_strides(x: Any) -> torch.Tensor:
    array = np.asarray(x, dtype=np.float32)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def shares_what_is_read_only(x: Any) -> torch.Tensor:
    array = np.asarray(x, dtype=np.float32)
    with warnings.catch_warnings():
        # torch's own, about arrays that are not writeable
        warnings.simplefilter("ignore")
        return torch.from_numpy(array.copy() if array.strides[0] < 0 else array)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        pytest.param(stub, "gave NoneType: return a float32 tensor", id="stub"),
        pytest.param(lambda x: None, "gave NoneType: return a float32 tensor", id="nothing"),
        pytest.param(
            lambda x: np.asarray(x), "gave float32: return a float32 tensor", id="an array"
        ),
        pytest.param(torch.tensor, "a float32 array was copied; it can be shared", id="tensor"),
        pytest.param(torch.as_tensor, "a float64 array gave torch.float64", id="type kept"),
        pytest.param(
            lambda x: torch.as_tensor(x, dtype=torch.float32), "At least one stride", id="as_tensor"
        ),
        pytest.param(
            lambda x: torch.from_numpy(np.ascontiguousarray(x, np.float32)),
            "transposed float32 array was",
            id="contiguous",
        ),
        pytest.param(lambda x: torch.zeros(12), "a float32 array gave other numbers", id="zeros"),
        pytest.param(
            never_asks_for_strides,
            "a reversed array Python said: At least one stride",
            id="strides",
        ),
        pytest.param(
            shares_what_is_read_only, "a read-only array was shared; it cannot", id="read-only"
        ),
        pytest.param(
            lambda x: solution(x[0] if isinstance(x, list) else x),
            "a list of arrays gave other",
            id="first of a list",
        ),
    ],
)
def test_wrong_answers(
    answer: Callable[..., Any], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exercises.check_16_to_float32(answer) is False
    printed = capsys.readouterr().out
    assert printed.startswith("not yet: ")
    assert says in printed


def test_the_solution_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert exercises.check_16_to_float32(solution) is True
    assert capsys.readouterr().out.startswith("✓")


def test_a_reader_s_own_error_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        exercises.check_16_to_float32(lambda x: 1 // 0)
