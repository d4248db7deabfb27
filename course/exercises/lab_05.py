"""The exercise of notebook 05."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from course.exercises.tell import NotYet, attempt, check


@check("no other batch size reaches the target sooner")
def check_05_fastest_batch(answer: Callable[..., Any]) -> None:
    """`answer(c, s, noise_scale)` minimises (c + s*B) * (1 + noise_scale/B) over the batch size
    B, rounded or not.
    """
    for c, s, noise_scale in (
        (4e-3, 1e-6, 100),
        (1e-3, 1e-5, 6400),
        (2e-3, 2e-3, 2500),
        (5e-2, 1e-5, 50),
    ):
        case = f"c={c:g}, s={s:g} and a noise scale of {noise_scale}"
        got = attempt(answer, c, s, noise_scale)
        if got is None:
            raise NotYet("return a batch size")
        if not isinstance(got, (int, float)) or isinstance(got, bool) or not 0 < got < math.inf:
            raise NotYet(f"{case} gave {got!r}: a positive number is wanted")

        def seconds(
            size: float, c: float = c, s: float = s, noise_scale: float = noise_scale
        ) -> float:
            return (c + s * size) * (1 + noise_scale / size)

        wanted = math.sqrt(c / s * noise_scale)
        if abs(got - wanted) > 1:
            longer = seconds(got) / seconds(wanted)
            raise NotYet(f"{case}: a batch of {got:g} takes {longer:.3g} times the shortest time")
