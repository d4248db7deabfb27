"""The exercise of the front notebook 22: several element-wise functions in one pass over memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from course.exercises.tell import NotYet, attempt, check
from labkit import MemoryMeter

Answer = Callable[..., Any]
Function = Callable[[Tensor], Tensor]
FUNCTIONS: tuple[Function, ...] = (
    lambda x: 2 * x + 1,
    lambda x: x * x,
    lambda x: x - 3,
)
# Tiles of room beside the argument and one result: a function has one as its argument, and some
# while it computes.
ROOM = 8


@check("right for every shape, a tile at a time, and one result in memory", judged="inside")
def check_22_fused(answer: Answer) -> None:
    """`answer(functions, x, tile)` applies element-wise functions to x, one after the other, by
    tiles of so many numbers.

    It is tried on tensors that tiles do not divide, on one that is not contiguous and on float64;
    calls are noted, and memory is counted.
    """
    numbers = torch.arange(240, dtype=torch.float32)
    _same(answer, "24 numbers in tiles of 8", numbers[:24], 8)
    _same(answer, "23 numbers in tiles of 8", numbers[:23], 8)
    _same(answer, "5 numbers in tiles of 8", numbers[:5], 8)
    _same(answer, "a shape of (3, 7, 2), tiles of 4", numbers[:42].view(3, 7, 2), 4)
    _same(answer, "float64", numbers[:12].double(), 4)
    _same(answer, "a transposed matrix", numbers[:35].view(5, 7).T, 8)
    _little_memory(answer)


class _Noted:
    """Functions that note which of them was called with how many numbers."""

    def __init__(self, functions: Sequence[Function]) -> None:
        self.calls: list[tuple[int, int]] = []
        self.functions = [self._noting(place, each) for place, each in enumerate(functions)]

    def _noting(self, place: int, function: Function) -> Function:
        def noted(x: Tensor) -> Tensor:
            self.calls.append((place, x.numel()))
            return function(x)

        return noted


def _same(answer: Answer, case: str, x: Tensor, tile: int) -> None:
    """The same as by whole tensors, x as before, and calls of a tile at most."""
    exact = x
    for function in FUNCTIONS:
        exact = function(exact)
    # With its strides.
    given = x.clone()
    noted = _Noted(FUNCTIONS)
    found = attempt(answer, noted.functions, given, tile)
    if not isinstance(found, Tensor):
        raise NotYet(f"{case}: return a tensor; returned was {found!r}")
    if not given.equal(x):
        raise NotYet(f"{case}: x was changed in place; write to a tensor of your own")
    if found.shape != x.shape:
        raise NotYet(f"{case}: the result has the shape {tuple(found.shape)}, not {tuple(x.shape)}")
    if found.dtype != x.dtype:
        raise NotYet(f"{case}: the result is {found.dtype}, and x is {x.dtype}")
    if not found.equal(exact):
        raise NotYet(f"{case}: {_why(found, exact, tile)}")
    _by_tiles(case, noted.calls, x.numel(), tile)


def _why(found: Tensor, exact: Tensor, tile: int) -> str:
    """What is wrong with the numbers."""
    if not exact.is_contiguous():
        return (
            "wrong here alone: the tensor is not contiguous. reshape(-1) of such a tensor is a "
            "copy: what is written there is lost"
        )
    whole = exact.numel() // tile * tile
    if whole < exact.numel() and found.flatten()[:whole].equal(exact.flatten()[:whole]):
        return "the last tile, which is shorter than the others, is lost"
    return f"the result is {_shown(found)}, and should be {_shown(exact)}"


def _shown(x: Tensor) -> str:
    numbers = ", ".join(f"{each:g}" for each in x.flatten()[:4].tolist())
    return f"[{numbers}, ...]"


def _by_tiles(case: str, calls: Sequence[tuple[int, int]], numbers: int, tile: int) -> None:
    """A tile goes through all functions before the next one begins."""
    most = max((count for _, count in calls), default=0)
    if most > tile:
        raise NotYet(
            f"{case}: right; but a function was called with {most} numbers at a time: at most "
            f"{tile}, one tile"
        )
    tiles = -(-numbers // tile)
    if len(calls) > tiles * len(FUNCTIONS):
        raise NotYet(
            f"{case}: right; but the functions were called {len(calls)} times: {tiles} tiles "
            f"through {len(FUNCTIONS)} functions are {tiles * len(FUNCTIONS)} calls"
        )
    order = [place for place, _ in calls]
    if order != list(range(len(FUNCTIONS))) * tiles:
        raise NotYet(
            f"{case}: right; but the first function saw several tiles before the second saw one, "
            "so that a whole result in between lay in memory: take one tile through all functions"
        )


def _little_memory(answer: Answer) -> None:
    """Beside x there is one result, and a few tiles."""
    x, tile = torch.ones(8192), 128
    with MemoryMeter("cpu", saved=False) as memory:
        attempt(answer, FUNCTIONS, x, tile)
    peak, size = memory.peak or 0, x.nbytes
    most = 2 * size + ROOM * tile * x.itemsize
    if peak > most:
        raise NotYet(
            f"right; but beside x there were {(peak - size) / size:.1f} times its bytes, and one "
            "result is enough: make it at the beginning, and write each tile into it"
        )
