"""The exercise of the front notebook 01: tiles are fetched as often as they have to be."""

import pytest
import torch

from course.exercises import check_01_product
from course.exercises.front_01 import Counting


def places(end, tile):
    return [slice(first, first + tile) for first in range(0, end, tile)]


def right(B, C, tile):
    A = torch.zeros(B.shape[0], C.shape[1])
    for i in places(A.shape[0], tile):
        for j in places(A.shape[1], tile):
            for k in places(B.shape[1], tile):
                A[i, j] += B[i, k] @ C[k, j]
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


@pytest.mark.parametrize("answer", [right, sums_in_a_tile])
def test_right(answer, capsys):
    assert check_01_product(answer) is True
    assert "as often as it has to be" in capsys.readouterr().out


def stub(B, C, tile):
    raise NotImplementedError


def whole_rows(B, C, tile):
    return torch.stack([B[i, :] @ C[:, :] for i in range(len(B))])


def a_dot_per_element(B, C, tile):
    A = torch.zeros(B.shape[0], C.shape[1])
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            for k in places(B.shape[1], tile):
                A[i, j] += B[i, k] @ C[k, j]
    return A


def a_tile_of_c_for_each_row(B, C, tile):
    A = torch.zeros(B.shape[0], C.shape[1])
    for i in range(A.shape[0]):
        for j in places(A.shape[1], tile):
            for k in places(B.shape[1], tile):
                A[i, j] += B[i, k] @ C[k, j]
    return A


def slivers(B, C, tile):
    """The right numbers, but each tile comes column by column, and row by row."""
    A = torch.zeros(B.shape[0], C.shape[1])
    for i in places(A.shape[0], tile):
        for j in places(A.shape[1], tile):
            for k in range(B.shape[1]):
                A[i, j] += B[i, k : k + 1] @ C[k : k + 1, j]
    return A


def edges_lost(B, C, tile):
    A = torch.zeros(B.shape[0], C.shape[1])
    for i in range(0, A.shape[0] - tile + 1, tile):
        for j in range(0, A.shape[1] - tile + 1, tile):
            for k in places(B.shape[1], tile):
                A[i : i + tile, j : j + tile] += B[i : i + tile, k] @ C[k, j : j + tile]
    return A


def last_not_added(B, C, tile):
    A = torch.zeros(B.shape[0], C.shape[1])
    for i in places(A.shape[0], tile):
        for j in places(A.shape[1], tile):
            for k in places(B.shape[1], tile)[:-1]:
                A[i, j] += B[i, k] @ C[k, j]
    return A


def overwritten(B, C, tile):
    A = torch.zeros(B.shape[0], C.shape[1])
    for i in places(A.shape[0], tile):
        for j in places(A.shape[1], tile):
            for k in places(B.shape[1], tile):
                A[i, j] = B[i, k] @ C[k, j]
    return A


def gathered(B, C, tile):
    """Each tile is fetched once, and all are put together for one large product."""

    def whole(X):
        along = places(X.shape[1], tile)
        rows = [torch.cat([X[i, k] for k in along], 1) for i in places(X.shape[0], tile)]
        return torch.cat(rows)

    return whole(B) @ whole(C)


WRONG = {
    "stub": (stub, "write the function"),
    "nothing": (lambda B, C, tile: None, "write the function"),
    "at once": (lambda B, C, tile: B @ C, "too large for the tray"),
    "a loop over rows": (lambda B, C, tile: list(B), "a loop over B"),
    "a whole row": (lambda B, C, tile: B[0], "a whole row or more"),
    "by a list": (lambda B, C, tile: B[[0, 1], :], "two slices"),
    "whole rows": (whole_rows, "were fetched at once; a tile has"),
    "a dot per element": (a_dot_per_element, "numbers of B were fetched"),
    "a tile of C for each row": (a_tile_of_c_for_each_row, "numbers of C were fetched"),
    "slivers": (slivers, "pieces; 8 tiles are enough"),
    "edges lost": (edges_lost, "are not those of B @ C"),
    "the last tile not added": (last_not_added, "are not those of B @ C"),
    "overwritten": (overwritten, "are not those of B @ C"),
    "transposed": (lambda B, C, tile: right(B, C, tile).T, "not those of B @ C"),
    "another shape": (lambda B, C, tile: torch.zeros(3), "has the shape"),
    "gathered": (gathered, "one of your products had"),
}


@pytest.mark.parametrize("name", WRONG)
def test_not_yet(name, capsys):
    answer, hint = WRONG[name]
    assert check_01_product(answer) is False
    said = capsys.readouterr().out
    assert said.startswith("not yet: ") and hint in said


def test_a_matrix_counts_what_is_fetched():
    B = Counting(torch.arange(12.0).view(3, 4), "B", 2)
    assert B[0:2, 2:4].tolist() == [[2, 3], [6, 7]]
    assert B[2, 3] == 11 and B[2:4, 3:5].numel() == 1
    assert B.moved == 4 + 1 + 1
    # What was fetched is a copy: it may be changed.
    B[0:2, 0:2].zero_()
    assert B[0, 1] == 1
