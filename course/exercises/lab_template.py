"""The exercise of the template: a check to begin one of your own with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from course.exercises.tell import NotYet, attempt, check


@check("that is the number of blocks")
def check_template_calls(answer: Callable[..., Any]) -> None:
    """`answer(samples, rows)` is the number of calls on blocks of so many rows."""
    for samples, rows, calls in ((64, 16, 4), (65, 16, 5), (3, 16, 1)):
        found = attempt(answer, samples, rows)
        if found is None:
            raise NotYet("return a number")
        if found != calls:
            raise NotYet(f"{samples} rows in blocks of {rows} take {calls} calls, not {found!r}")
