"""The exercise of notebook 00."""

from __future__ import annotations

from collections.abc import Callable

from course.exercises.tell import NotYet, attempt, check


@check("one disturbed pair does not matter, nor a machine that slows down")
def check_00_speedup(answer: Callable[[list[float], list[float]], float]) -> None:
    """``answer(a, b)`` is the median of the paired ratios a / b: not of the means, not upside
    down.
    """
    # The machine slows down, and one pair was disturbed.
    a = [1.0, 2.0, 4.0, 8.0, 80.0]
    b = [0.5, 1.0, 2.0, 4.0, 1.0]
    got = attempt(answer, a, b)
    if got is None:
        raise NotYet("write the function, then run this cell again")
    if not (isinstance(got, float) and abs(got - 2.0) < 1e-6):
        raise NotYet(f"a={a} and b={b} are 2.0x apart, yours says {got}")
    a, b = [1.0, 2.0], [1.0, 0.5]
    got = attempt(answer, a, b)
    if not (isinstance(got, float) and abs(got - 2.5) < 1e-6):
        raise NotYet(
            f"the median of two ratios is their mean: a={a} and b={b} are 2.5x apart, "
            f"yours says {got}"
        )
