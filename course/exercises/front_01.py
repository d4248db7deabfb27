"""The exercise of the front notebook 01: a product of matrices, tile by tile."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, prod
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from course.exercises.tell import NotYet, attempt, check, far

# Rows of B, columns of B, columns of C, and the tile.
CASES = ((8, 8, 8, 4), (7, 5, 9, 3), (4, 4, 4, 4), (3, 2, 5, 8), (6, 6, 6, 1))
ops = torch.ops.aten
PRODUCTS = (ops.mm, ops.mv, ops.dot, ops.bmm, ops.addmm, ops.addmv)
FETCH = "fetch a tile with two slices, as in B[0:4, 4:8]"


@check("every tile is fetched as often as it has to be: it is in the panel below", judged="both")
def check_01_product(answer: Callable[..., Any]) -> None:
    """`answer(B, C, tile)` is `B @ C`, from tiles of at most `tile` by `tile` numbers.

    `B` and `C` count what is fetched. For each tile of the result it may fetch the tiles of a row
    of `B` and of a column of `C`, once.
    """
    for rows, inner, columns, tile in CASES:
        _one_case(answer, rows, inner, columns, tile)


def _one_case(answer: Callable[..., Any], rows: int, inner: int, columns: int, tile: int) -> None:
    where = f"({rows}, {inner}) by ({inner}, {columns}) in tiles of {tile}"
    generator = torch.Generator().manual_seed(1)
    b = torch.randn(rows, inner, generator=generator)
    c = torch.randn(inner, columns, generator=generator)
    B, C = (Counting(each, name, tile) for each, name in ((b, "B"), (c, "C")))
    with Products() as products:
        # Only values reach an answer in another process: nothing is counted there.
        found = attempt(answer, *((b, c) if far(answer) else (B, C)), tile)
    if found is None:
        raise NotYet("write it, then run this cell again")
    if not isinstance(found, Tensor) or found.shape != (rows, columns):
        shape = tuple(found.shape) if isinstance(found, Tensor) else found
        raise NotYet(f"{where} has the shape {(rows, columns)}, yours {shape}")
    wrong = ~torch.isclose(found, b @ c, atol=1e-4)
    if wrong.any():
        i, j = wrong.nonzero()[0].tolist()
        raise NotYet(
            f"{where}: {int(wrong.sum())} numbers are not those of B @ C, A[{i}, {j}] first"
        )
    if products.largest > tile**2:
        raise NotYet(f"{where}: one of your products had {products.largest} numbers, not {tile**2}")
    uses = ((B, ceil(columns / tile)), (C, ceil(rows / tile)))
    for counted, tiles in uses:
        _often(counted, tiles, where)
    for counted, tiles in uses:
        _squares(counted, tiles, tile, where)


def _often(counted: Counting, tiles: int, where: str) -> None:
    """Each number is needed once for each tile of the result beside or below it."""
    enough = tiles * counted.numel
    if counted.moved > enough:
        raise NotYet(
            f"{where}: {counted.moved} numbers of {counted.name} were fetched; {enough} are "
            "enough. Use a tile for all that needs it before you fetch the next"
        )


def _squares(counted: Counting, tiles: int, tile: int, where: str) -> None:
    """As many fetches as there are tiles: none comes in slices of its own."""
    whole = tiles * prod(ceil(side / tile) for side in counted.shape)
    if counted.pieces > whole:
        raise NotYet(
            f"{where}: {counted.name} was fetched in {counted.pieces} pieces; {whole} tiles are "
            "enough. Fetch a square, as in B[i : i + tile, k : k + tile]"
        )


class Counting:
    """A matrix that gives away tiles, and counts their numbers. NotYet for more than a tile."""

    def __init__(self, matrix: Tensor, name: str, tile: int) -> None:
        self._matrix, self._tile, self.name = matrix, tile, name
        self.moved, self.pieces = 0, 0
        self.shape, self.numel = matrix.shape, matrix.numel()
        self.dtype, self.device = matrix.dtype, matrix.device
        self.new_zeros, self.new_empty = matrix.new_zeros, matrix.new_empty

    def size(self, axis: int | None = None) -> Any:
        """As of a tensor."""
        return self.shape if axis is None else self.shape[axis]

    def __len__(self) -> int:
        return len(self._matrix)

    def __getitem__(self, place: Any) -> Tensor:
        if not isinstance(place, tuple) or len(place) != 2:
            raise NotYet(f"{self.name}[{place!r}] is a whole row or more: {FETCH}")
        if not all(isinstance(each, int | slice) for each in place):
            raise NotYet(f"{self.name} was asked for {place!r}: {FETCH}")
        fetched = self._matrix[place]
        if fetched.numel() > self._tile**2:
            raise NotYet(
                f"{fetched.numel()} numbers of {self.name} were fetched at once; a tile has "
                f"{self._tile**2}"
            )
        self.moved += fetched.numel()
        self.pieces += fetched.numel() > 0
        return fetched.clone()

    def __matmul__(self, other: object) -> Tensor:
        raise NotYet(f"{self.name} is too large for the tray: {FETCH}")

    def __iter__(self) -> Any:
        raise NotYet(f"a loop over {self.name} fetches whole rows: {FETCH}")


class Products(TorchDispatchMode):
    """Sees the largest result of any product of matrices."""

    largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket in PRODUCTS:
            self.largest = max(self.largest, result.numel())
        return result
