"""The exercise of notebook 04."""

from __future__ import annotations

from collections.abc import Callable

from course.exercises.tell import NotYet, attempt, check


@check("with these the training never waits, and with one fewer it would")
def check_04_enough_workers(answer: Callable[[float, float], int]) -> None:
    """``answer(L, T)`` is the smallest number of workers, at least 1, that loads a batch every T
    seconds or sooner.
    """
    for L, T, wanted in (
        (12.0, 4.0, 3),
        (13.0, 4.0, 4),
        (0.002, 0.008, 1),
        (8.0, 8.0, 1),
        (0.0, 1.0, 1),
    ):
        got = attempt(answer, L, T)
        if got != wanted:
            raise NotYet(f"L={L:g} and T={T:g} want {wanted} workers, yours says {got}")
