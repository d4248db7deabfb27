"""How far a reader's script has come: a star for each doubling of its speed."""

from __future__ import annotations

import math
from dataclasses import dataclass

from labkit.text import format_factor

FULL, EMPTY = "★", "☆"
# So many can be seen from the start where nothing is recorded.
FIRST = 3


@dataclass(frozen=True)
class Stars:
    """``gain`` is times as fast as the slow script in the reader's best run, 1 before any.

    ``before`` is that before the latest run, ``best`` the best recorded, nan where nothing is.
    ``estimate`` is what the figures of what is kept make together; ``why`` says why runs won none.
    """

    gain: float
    before: float
    best: float
    estimate: float = 1.0
    why: str = ""

    @property
    def won(self) -> int:
        """The stars so far."""
        return doublings(self.gain)

    @property
    def new(self) -> int:
        """Those of the latest run."""
        return max(0, self.won - doublings(self.before))

    @property
    def left(self) -> int:
        """Those that there still are to win: as many as the best recorded has."""
        goal = FIRST if math.isnan(self.best) else doublings(self.best)
        return max(0, goal - self.won)

    @property
    def words(self) -> str:
        """What the stars mean, and what brings the next one."""
        texts = [f"your best run: {format_factor(self.gain)} times as fast as the slow script"]
        if self.gain == 1:
            texts = ["a star for each doubling of the slow script's speed, once yours has run"]
        if self.why:
            texts = [f"no star yet, as {self.why}"]
        if self.estimate == 0:
            texts.append("with what you kept the target was not reached")
        elif doublings(self.estimate) > self.won:
            times = format_factor(self.estimate)
            texts.append(f"what you kept is estimated at {times} times: run your script")
        if self.best >= 1:
            texts.append(f"the best recorded: {format_factor(self.best)} times")
        beyond = "" if not self.best < 2 ** (self.won + 1) else ", which nobody has recorded"
        return f"{'; '.join(texts)}; next star at {2 ** (self.won + 1)} times{beyond}"

    def __str__(self) -> str:
        return f"{FULL * self.won}{EMPTY * self.left} {self.words}."


def doublings(factor: float) -> int:
    """Whole doublings in a factor; 0 for a loss, and for what is not finite.

    >>> [doublings(each) for each in (0.5, 1.9, 2.0, 14.9)]
    [0, 0, 1, 3]
    """
    return int(math.log2(factor) + 1e-9) if 1 <= factor < math.inf else 0
