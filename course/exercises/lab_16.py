"""The exercise of notebook 16: a tensor that shares an array's memory where it may."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from course.exercises.tell import NotYet, attempt, check, far

Answer = Callable[..., Any]
# What torch says of arrays that it cannot share, and what helps.
ERRORS = {
    "negative": "a tensor has no negative strides; array.copy() has positive ones",
    "byte order": "np.asarray(x, dtype=np.float32) puts the bytes in this machine's order",
}


class Case(NamedTuple):
    """What is given, whether its memory is to be shared, and why."""

    name: str
    given: Any
    shared: bool
    why: str = ""


@check("shared where it may be, copied where it must be", judged="both")
def check_16_to_float32(answer: Answer) -> None:
    """`answer(x)` is a float32 tensor of an array or list: shared where that is possible and
    safe, else a copy.
    """
    for case in _cases():
        wanted = np.array(case.given, dtype=np.float32)
        tensor = _made(answer, case)
        if not isinstance(tensor, torch.Tensor) or tensor.dtype != torch.float32:
            found = getattr(tensor, "dtype", type(tensor).__name__)
            raise NotYet(f"{case.name} gave {found}: return a float32 tensor")
        if not np.array_equal(tensor.numpy(force=True), wanted):
            raise NotYet(_other_numbers(case, tensor, wanted))
        if not far(answer) and isinstance(case.given, np.ndarray):
            _memory(case, tensor)


def _cases() -> Iterator[Case]:
    numbers = np.arange(12, dtype=np.float32)
    frozen = numbers.copy()
    frozen.flags.writeable = False
    plain = "write into it, and your tensor does not change. torch.from_numpy shares"
    order = "a tensor has strides, too, so any order of its numbers can be shared"
    yield Case("a float32 array", numbers, True, plain)
    yield Case("every second number of a float32 array", numbers[::2], True, order)
    yield Case("a transposed float32 array", numbers.reshape(3, 4).T, True, order)
    yield Case("a float64 array", numbers.astype(np.float64), False)
    yield Case("an array of whole numbers", numbers.astype(np.int64), False)
    yield Case("a float32 array in the other byte order", numbers.astype(_other_order()), False)
    yield Case("a reversed array", numbers[::-1], False)
    frozen_why = "a write to the tensor would change it. Look at array.flags.writeable"
    yield Case("a read-only array", frozen, False, frozen_why)
    yield Case("a list of arrays", [numbers, numbers + 12], False)


def _other_order() -> np.dtype[Any]:
    """float32 with its bytes as no tensor has them, on this machine."""
    return np.dtype(np.float32).newbyteorder()


def _made(answer: Answer, case: Case) -> Any:
    """What the function returns; NotYet in torch's words for what it cannot share."""
    try:
        return attempt(answer, case.given)
    except (TypeError, ValueError) as error:
        for word, helps in ERRORS.items():
            if word in str(error):
                said = str(error).partition(". ")[0].rstrip(".")
                raise NotYet(f"at {case.name} Python said: {said}. What helps: {helps}") from error
        raise


def _other_numbers(case: Case, tensor: torch.Tensor, wanted: Any) -> str:
    if tuple(tensor.shape) != wanted.shape:
        return f"{case.name} gave the shape {tuple(tensor.shape)}, not {wanted.shape}"
    more = ": convert it, .view() reads its bytes as they are" if "order" in case.name else ""
    return f"{case.name} gave other numbers{more}: {tensor.tolist()}"


def _memory(case: Case, tensor: torch.Tensor) -> None:
    shared = np.shares_memory(tensor.numpy(force=True), case.given)
    if shared == case.shared:
        return
    if case.shared:
        raise NotYet(f"{case.name} was copied: {case.why}")
    raise NotYet(f"{case.name} was shared: {case.why}")
