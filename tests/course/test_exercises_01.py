"""The exercise of 01_timing_and_vectorization: the empty stub and wrong answers fail, right ones
pass.
"""

import pytest
import torch

from course.exercises import check_01_blocked_product


def blocked(B, C, rows, columns, *, last=True):
    A = torch.zeros(B.shape[0], C.shape[1])
    for i in range(0, A.shape[0] if last else A.shape[0] - rows + 1, rows):
        for j in range(0, A.shape[1], columns):
            A[i : i + rows, j : j + columns] = B[i : i + rows] @ C[:, j : j + columns]
    return A


def stub(B, C, rows, columns):
    raise NotImplementedError


WRONG = {
    "stub": stub,
    "nothing": lambda *arguments: None,
    "not blocked": lambda B, C, rows, columns: B @ C,
    "columns only": lambda B, C, rows, columns: blocked(B, C, B.shape[0], columns),
    "transposed": lambda B, C, rows, columns: blocked(B, C, rows, columns).T,
    "last rows forgotten": lambda B, C, rows, columns: blocked(B, C, rows, columns, last=False),
}


@pytest.mark.parametrize("name", WRONG)
def test_not_yet(name, capsys):
    assert not check_01_blocked_product(WRONG[name])
    assert capsys.readouterr().out.startswith("not yet: ")


def test_solved(capsys):
    assert check_01_blocked_product(blocked)
    assert capsys.readouterr().out.startswith("✓")
