"""What is kept makes together where some of it is not clear yet: a rough figure, for the eye alone.

It is made as a sure one is, of what was measured so far. No star and no later estimate follows it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from course.board.store import Figure
from course.switches import label


@dataclass(frozen=True)
class Provisional:
    """``gain`` is what the unclear switches make together, 1 where none has a figure.

    So many of the ``kept`` are ``unclear``; ``raced`` are those that a short race alone has seen.
    """

    gain: float
    unclear: int
    kept: int
    raced: tuple[str, ...]

    @property
    def words(self) -> str:
        """How rough it is, and what is not in it; empty where nothing is open."""
        texts = []
        if self.gain != 1:
            be = "is" if self.unclear == 1 else "are"
            many = f"{self.unclear} of {self.kept} kept switches {be} not clear yet"
            texts.append(f"rough: {many}")
        if self.raced:
            names = ", ".join(map(label, self.raced))
            texts.append(f"without {names}: a short race makes no estimate")
        return "; ".join(texts)


def provisional(figures: Sequence[Figure], kept: int) -> Provisional:
    """Of the ``figures`` that no run of the script has settled, of so many that are ``kept``."""
    unclear = [figure for figure in figures if figure.direction == "unclear"]
    known = [each.gain for each in unclear if not each.early and 0 < each.gain < math.inf]
    raced = tuple(figure.switch for figure in figures if figure.early)
    return Provisional(math.prod(known), len(unclear), kept, raced)
