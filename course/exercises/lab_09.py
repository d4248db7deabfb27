"""The exercise of notebook 09."""

from __future__ import annotations

import math
from collections.abc import Callable

from course.exercises.tell import NotYet, attempt, check


@check("from there on, every further step with this shape is a gain")
def check_09_steps_until_it_pays(answer: Callable[[float, float, float, float], float]) -> None:
    """``answer(first_off, later_off, first_on, later_on)`` is the smallest number of steps, at
    least 1, after which the job with the search took no longer; infinity if there is none.
    """
    for first_off, later_off, first_on, later_on, wanted in (
        # 90 more at first, 2 less a step: 45 later steps, and the first
        (10, 10, 100, 8, 46),
        # rounded up
        (10, 10, 101, 8, 47),
        (10, 10, 11, 8, 2),
        (10, 10, 100, 10, math.inf),
        (10, 10, 100, 12, math.inf),
        # no longer after the first step, though later it is
        (50, 10, 50, 12, 1),
        (50, 10, 40, 8, 1),
    ):
        got = attempt(answer, first_off, later_off, first_on, later_on)
        if got != wanted:
            times = (
                f"first steps {first_off} and {first_on}, later steps {later_off} and {later_on}"
            )
            raise NotYet(f"{times} want {wanted}, yours says {got}")
