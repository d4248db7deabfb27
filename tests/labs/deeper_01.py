"""Deeper 01, answers to the exercise: a product in blocks."""

import torch

from course import exercises
from tests.labs import nothing


def blocked(B, C, rows, columns, *, last=True):
    A = torch.zeros(B.shape[0], C.shape[1])
    for i in range(0, A.shape[0] if last else A.shape[0] - rows + 1, rows):
        for j in range(0, A.shape[1], columns):
            A[i : i + rows, j : j + columns] = B[i : i + rows] @ C[:, j : j + columns]
    return A


def columns_only(B, C, rows, columns):
    return blocked(B, C, len(B), columns)


def last_rows_forgotten(*arguments):
    return blocked(*arguments, last=False)


CHECK = exercises.check_01_blocked_product
RIGHT = blocked
WRONG = [
    (nothing, "write it, then run this cell again"),
    (lambda B, C, rows, columns: B @ C, "…one of your products had 48 elements"),
    (columns_only, "…one of your products had 24 elements"),
    (lambda *arguments: blocked(*arguments).T, "…has the shape (8, 6), yours (6, 8)"),
    (last_rows_forgotten, "…some elements are not those of B @ C"),
]
