"""The exercise of notebook 05."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from course.exercises.tell import NotYet, attempt, check


@check("all rows, in blocks of that size")
def check_05_batch_size(answer: Callable[..., Any]) -> None:
    """`answer(model, inputs, rows)` is `model(inputs)`, computed in blocks of so many rows."""
    for samples, rows, sizes in ((8, 4, [4, 4]), (9, 4, [4, 4, 1]), (3, 4, [3])):
        inputs = torch.arange(2.0 * samples).view(samples, 2)
        seen: list[int] = []

        def model(block: torch.Tensor, seen: list[int] = seen) -> torch.Tensor:
            seen.append(len(block))
            return block * 2

        found = attempt(answer, model, inputs, rows)
        if not isinstance(found, torch.Tensor):
            raise NotYet("return a tensor")
        if seen != sizes:
            raise NotYet(f"{samples} rows in blocks of {rows} are blocks of {sizes}, not {seen}")
        if not found.equal(inputs * 2):
            raise NotYet("the outputs of all blocks, one below the other: torch.cat")
