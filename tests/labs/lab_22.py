"""22, compiling: what shows that the technique acts, and answers."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from course import exercises
from course.compiling import trouble
from labkit import count, seed_all
from tests.labs import nothing

CHECK = exercises.check_22_fused


def alive(names: dict[str, Any]) -> None:
    """Eager code calls an operator for each line, compiled code none but the product; and both
    compute the same.
    """
    first = {kind: one_step(names, execution="eager", kind=kind) for kind in names["KINDS"]}
    chain, small, large = (first[kind][1] for kind in ("chain", "many small", "large products"))
    assert small == names["KINDS"]["many small"][2] * (chain + 1)
    assert small / names["KINDS"]["many small"][2] == large / names["KINDS"]["large products"][2]
    if trouble():
        pytest.skip(f"nothing is compiled here: {trouble()}")
    for kind in ("chain", "many small"):
        out, launches = one_step(names, execution="compile", kind=kind)
        torch.testing.assert_close(out, first[kind][0], rtol=1e-4, atol=1e-5)
        assert launches <= names["KINDS"][kind][2]


def one_step(names: dict[str, Any], **settings: Any) -> tuple[torch.Tensor, int]:
    """What a step returns, and the operators that it calls; the first one compiles."""
    seed_all(0)
    step = names["make_workload"](**names["lab"].settings(settings)).step
    out = step()
    return out, count(step).launches


# ------------------------------------------------------------------------- answers to the exercise


def fused(functions, x, tile):
    out = torch.empty(x.shape, dtype=x.dtype)
    source, target = x.reshape(-1), out.view(-1)
    for first in range(0, x.numel(), tile):
        part = source[first : first + tile]
        for function in functions:
            part = function(part)
        target[first : first + tile] = part
    return out


def whole(functions, x, tile):
    for function in functions:
        x = function(x)
    return x


def tiles_kept(functions, x, tile):
    parts = []
    for part in x.reshape(-1).split(tile):
        for function in functions:
            part = function(part)
        parts.append(part)
    return torch.cat(parts).view(x.shape)


def last_lost(functions, x, tile):
    out = torch.zeros(x.shape, dtype=x.dtype)
    end = x.numel() // tile * tile
    out.view(-1)[:end] = fused(functions, x.reshape(-1)[:end], tile)
    return out


def in_place(functions, x, tile):
    flat = x.view(-1)
    flat.copy_(fused(functions, x, tile))
    return x


def by_function(functions, x, tile):
    for function in functions:
        x = fused([function], x, tile)
    return x


def one_by_one(functions, x, tile):
    return fused(functions, x, 1)


def flat(functions, x, tile):
    return fused(functions, x, tile).view(-1)


def single(functions, x, tile):
    return fused(functions, x, tile).float()


def lost_in_a_copy(functions, x, tile):
    out = torch.zeros_like(x)
    out.reshape(-1).copy_(fused(functions, x, tile).view(-1))
    return out


def first_alone(functions, x, tile):
    return fused(functions[:1], x, tile)


def through_split(functions, x, tile):
    """Parts that are views of the result."""
    out = torch.empty(x.shape, dtype=x.dtype)
    parts = zip(x.reshape(-1).split(tile), out.view(-1).split(tile), strict=True)
    for part, place in parts:
        for function in functions:
            part = function(part)
        place.copy_(part)
    return out


def flat_by_view(functions, x, tile):
    return fused(functions, x.view(-1), tile).view(x.shape)


FIRST = "24 numbers in tiles of 8: "
RIGHT: Callable[..., Any] = fused
ALSO_RIGHT = (through_split,)
RAISES = ((flat_by_view, RuntimeError, "view size"),)
WRONG = (
    (nothing, FIRST + "return a tensor; returned was None"),
    (first_alone, FIRST + "the result is [1, 3, 5, 7, ...], and should be [-2, 6, 22, 46, ...]"),
    (whole, FIRST + "right; but a function was called with 24 numbers at a time: at most 8"),
    (by_function, FIRST + "right; but the first function saw several tiles before the second"),
    (one_by_one, FIRST + "right; but the functions were called 72 times: 3 tiles through 3"),
    (in_place, FIRST + "x was changed in place"),
    (last_lost, "23 numbers in tiles of 8: the last tile, which is shorter than the others"),
    (flat, "a shape of (3, 7, 2), tiles of 4: the result has the shape (42,), not (3, 7, 2)"),
    (single, "float64: the result is torch.float32, and x is torch.float64"),
    (lost_in_a_copy, "a transposed matrix: wrong here alone: the tensor is not contiguous"),
    (tiles_kept, "right; but beside x there were 2.0 times its bytes"),
)
