"""16, NumPy's memory: what shows that the technique acts; answers to the exercise."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch

from course import exercises


def shares(names: dict[str, Any], convert: str) -> bool:
    """Whether the call's tensor has the memory of the array that it was given."""
    workload = names["make_workload"](convert, "one array", "call alone")
    return np.shares_memory(workload.step().numpy(), names["SOURCES"]["one array"])


def alive(names: dict[str, Any]) -> None:
    """`as_tensor` borrows, the others copy; all have the same numbers."""
    assert shares(names, "as_tensor")
    assert not shares(names, "tensor") and not shares(names, "stack first")
    for source, given in names["SOURCES"].items():
        for convert in ("tensor", "as_tensor", "stack first"):
            found = names["make_workload"](convert, source, "call alone").step()
            assert found.dtype == torch.float32
            np.testing.assert_array_equal(found.numpy(), np.array(given, np.float32))


def right(x: Any) -> torch.Tensor:
    array = np.asarray(x, dtype=np.float32)
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    return torch.from_numpy(array)


def empty(x: Any) -> None: ...


def an_array(x: Any) -> Any:
    return np.asarray(x, dtype=np.float32)


def keeps_the_type(x: Any) -> torch.Tensor:
    return torch.as_tensor(np.array(x) if isinstance(x, list) else x)


def always_copies(x: Any) -> torch.Tensor:
    return torch.from_numpy(np.array(x, dtype=np.float32))


def contiguous(x: Any) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(x, np.float32))


def as_tensor_alone(x: Any) -> torch.Tensor:
    return torch.as_tensor(x, dtype=torch.float32)


def reads_bytes_as_they_are(x: Any) -> torch.Tensor:
    swapped = isinstance(x, np.ndarray) and not x.dtype.isnative
    return right(x.view(np.float32) if swapped else x)


def never_asks_for_strides(x: Any) -> torch.Tensor:
    array = np.asarray(x, dtype=np.float32)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def shares_what_is_read_only(x: Any) -> torch.Tensor:
    array = np.asarray(x, dtype=np.float32)
    with warnings.catch_warnings():
        # torch's own, about arrays that are not writeable
        warnings.simplefilter("ignore")
        return torch.from_numpy(array.copy() if array.strides[0] < 0 else array)


def first_of_a_list(x: Any) -> torch.Tensor:
    return right(x[0] if isinstance(x, list) else x)


def joins_a_list(x: Any) -> torch.Tensor:
    return right(np.concatenate(x) if isinstance(x, list) else x)


def zeros(x: Any) -> torch.Tensor:
    return torch.zeros(12)


CHECK = exercises.check_16_to_float32
RIGHT = right
WRONG = (
    (empty, "a float32 array gave NoneType: return a float32 tensor"),
    (an_array, "a float32 array gave float32: return a float32 tensor"),
    (zeros, "a float32 array gave other numbers: [0.0, "),
    (always_copies, "a float32 array was copied: write into it"),
    (torch.tensor, "a float32 array was copied: write into it"),
    (contiguous, "every second number of a float32 array was copied: a tensor has strides"),
    (keeps_the_type, "a float64 array gave torch.float64: return a float32 tensor"),
    (
        as_tensor_alone,
        "at a float32 array in the other byte order Python said: given numpy array has byte order "
        "different from the native byte order. What helps",
    ),
    (reads_bytes_as_they_are, "a float32 array in the other byte order gave other numbers: conv"),
    (never_asks_for_strides, "at a reversed array Python said: At least one stride"),
    (shares_what_is_read_only, "a read-only array was shared: a write to the tensor would"),
    (first_of_a_list, "a list of arrays gave the shape (12,), not (2, 12)"),
    (joins_a_list, "a list of arrays gave the shape (24,), not (2, 12)"),
)
