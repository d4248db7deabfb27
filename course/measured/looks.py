"""What is noted beside each evaluation of a race, where no clock runs, and found again by run."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from labkit.racing import RaceRun

Noted = TypeVar("Noted")
Evaluate = Callable[[], float]
# So many runs are kept: more than a race has.
FEW = 60


class Looks(Generic[Noted]):
    """Notes of every run, one for each evaluation.

    >>> looks: Looks[str] = Looks()
    >>> look = looks.beside(lambda: 0.5, lambda number: f"look {number}")
    >>> look(), looks.of(RaceRun("baseline", 0, ((20, 0.1, 0.5),), reached=False))
    (0.5, [(20, 'look 0')])
    """

    def __init__(self) -> None:
        self._runs: deque[list[tuple[float, Noted]]] = deque(maxlen=FEW)

    def beside(self, evaluate: Evaluate, note: Callable[[int], Noted]) -> Evaluate:
        """``evaluate`` for a workload that is built now; ``note(number)`` counts its looks from
        0.
        """
        noted: list[tuple[float, Noted]] = []
        self._runs.append(noted)

        def look() -> float:
            noted.append((evaluate(), note(len(noted))))
            return noted[-1][0]

        return look

    def of(self, run: RaceRun) -> list[tuple[int, Noted]]:
        """Steps and notes of a run, which is found by its metrics; [] where none was noted."""
        wanted = [repr(value) for _, _, value in run.curve]
        for noted in reversed(self._runs):
            if noted and [repr(value) for value, _ in noted] == wanted:
                steps = (step for step, _, _ in run.curve)
                return list(zip(steps, (note for _, note in noted), strict=True))
        return []
