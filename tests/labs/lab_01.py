"""01, calls: what shows that the technique acts; answers to its exercise."""

from functools import partial
from typing import Any

import torch

from course import exercises
from tests.labs import counters, nothing


def alive(names: dict[str, Any]) -> None:
    """The same operations in fewer calls."""
    n, ways = names["N"], ("column", "row", "8 rows", "all")
    column, row, eight, whole = (counters(names, per_call=way) for way in ways)
    assert eight.launches == n // 8 * whole.launches
    assert min(column.launches, row.launches) > 4 * eight.launches
    assert row.flops == eight.flops == whole.flops == 2 * n**3


def places(end, tile):
    return [slice(first, first + tile) for first in range(0, end, tile)]


def right(B, C, tile, *, rows=places, columns=places, depth=places, add=True):
    """The right product, and what may be wrong with it."""
    A = torch.zeros(B.shape[0], C.shape[1])
    for i in rows(A.shape[0], tile):
        for j in columns(A.shape[1], tile):
            for k in depth(B.shape[1], tile):
                fetched = B[i, k] @ C[k, j]
                A[i, j] = A[i, j] + fetched if add else fetched
    return A


def sums_in_a_tile(B, C, tile):
    """Another order, and a sum of its own for each tile."""
    A = B.new_empty(len(B), C.size(1))
    for j in places(A.shape[1], tile):
        for i in places(A.shape[0], tile):
            total = torch.zeros_like(A[i, j])
            for k in reversed(places(C.size()[0], tile)):
                total.addmm_(B[i, k], C[k, j])
            A[i, j] = total
    return A


def whole_rows(B, C, tile):
    return torch.stack([B[i, :] @ C[:, :] for i in range(len(B))])


def one_by_one(end, tile):
    return range(end)


def slivers(end, tile):
    """The right numbers, but each tile comes column by column, and row by row."""
    return places(end, 1)


def without_the_edge(end, tile):
    return places(end - tile + 1, tile)


def without_the_last(end, tile):
    return places(end, tile)[:-1]


def gathered(B, C, tile):
    """Each tile is fetched once, and all are put together for one large product."""

    def whole(X):
        along = places(X.shape[1], tile)
        rows = [torch.cat([X[i, k] for k in along], 1) for i in places(X.shape[0], tile)]
        return torch.cat(rows)

    return whole(B) @ whole(C)


CHECK = exercises.check_01_product
RIGHT = right
ALSO_RIGHT = [sums_in_a_tile]
WRONG = [
    (nothing, "write it"),
    (lambda B, C, tile: B @ C, "…too large for the tray"),
    (lambda B, C, tile: list(B), "…a loop over B"),
    (lambda B, C, tile: B[0], "…a whole row or more"),
    (lambda B, C, tile: B[[0, 1], :], "…two slices"),
    (whole_rows, "…were fetched at once; a tile has"),
    (partial(right, rows=one_by_one, columns=one_by_one), "…numbers of B were fetched"),
    (partial(right, rows=one_by_one), "…numbers of C were fetched"),
    (partial(right, depth=slivers), "…pieces; 8 tiles are enough"),
    (partial(right, rows=without_the_edge, columns=without_the_edge), "…are not those of B @ C"),
    (partial(right, depth=without_the_last), "…are not those of B @ C"),
    (partial(right, add=False), "…are not those of B @ C"),
    (lambda B, C, tile: right(B, C, tile).T, "…not those of B @ C"),
    (lambda B, C, tile: torch.zeros(3), "…has the shape"),
    (gathered, "…one of your products had"),
]
