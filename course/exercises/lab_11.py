"""The exercise of notebook 11."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from course.exercises.tell import NotYet, attempt, check


@check("the smallest peak in every case, rounding included")
def check_11_best_segments(answer: Callable[..., Any]) -> None:
    """`answer(n, a, b)` is a number of pieces k from 1 to n with the smallest peak k*a +
    ceil(n/k)*b.
    """
    for n, a, b in ((24, 1, 5), (16, 1, 1), (50, 2, 12), (1, 1, 5), (6, 1, 20), (40, 9, 1)):
        peaks = {k: k * a + -(-n // k) * b for k in range(1, n + 1)}
        found, case = attempt(answer, n, a, b), f"n={n}, a={a}, b={b}"
        if found is None:
            raise NotYet("return a number of pieces")
        if found not in peaks:
            raise NotYet(f"{case} gave {found!r}: a whole number of pieces from 1 to {n} is wanted")
        if peaks[found] > min(peaks.values()):
            raise NotYet(
                f"{case} gave {found}, of peak {peaks[found]}; {min(peaks.values())} is possible"
            )
