"""The exercise of notebook 16."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from course.exercises.tell import NotYet, attempt, check, far


@check("shared where it may be, copied where it must be", judged="both")
def check_16_to_float32(answer: Callable[..., Any]) -> None:
    """`answer(x)` is a float32 tensor of an array or list: shared where that is possible and
    safe, else a copy.
    """
    numbers = np.arange(12, dtype=np.float32)
    frozen = numbers.copy()
    frozen.flags.writeable = False
    for case, given, shared in (
        ("a float32 array", numbers, True),
        ("a transposed float32 array", numbers.reshape(3, 4).T, True),
        ("a float64 array", numbers.astype(np.float64), False),
        ("a reversed array", numbers[::-1], False),
        ("a read-only array", frozen, False),
        ("a list of arrays", [numbers, numbers], False),
    ):
        wanted = np.array(given, dtype=np.float32)
        try:
            tensor = attempt(answer, given)
        except (TypeError, ValueError) as error:
            # torch's own words for what it cannot share.
            raise NotYet(f"at {case} Python said: {error}") from error
        if not isinstance(tensor, torch.Tensor) or tensor.dtype != torch.float32:
            found = getattr(tensor, "dtype", type(tensor).__name__)
            raise NotYet(f"{case} gave {found}: return a float32 tensor")
        if not np.array_equal(tensor.numpy(force=True), wanted):
            raise NotYet(f"{case} gave other numbers: {tensor.tolist()}")
        if far(answer) or not isinstance(given, np.ndarray):
            continue
        if np.shares_memory(tensor.numpy(force=True), given) == shared:
            continue
        if shared:
            raise NotYet(f"{case} was copied; it can be shared")
        raise NotYet(f"{case} was shared; it cannot be shared")
