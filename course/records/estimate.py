"""What recording a notebook takes, and whose turn it is, under a budget."""

from __future__ import annotations

from dataclasses import dataclass

from course.records.kernel import OVER
from course.records.store import Record, read_all

# Seconds that a notebook is taken to need of which nothing is known.
UNKNOWN_SECONDS = 120


@dataclass(frozen=True)
class Expected:
    """Seconds that recording takes, and how one knows."""

    seconds: float
    source: str

    def __str__(self) -> str:
        return f"about {self.seconds:.0f} s, {self.source}"


def expected(notebook: str, old: Record | None, *, gpu: bool) -> Expected:
    """What this notebook takes: as here the last time; else as on the slowest other machine of the
    kind, with a GPU or without.
    """
    if old is not None and old.seconds:
        if not old.failed:
            return Expected(old.seconds, "as here the last time")
        if old.failed == OVER:
            # It was not at its end yet.
            return Expected(1.5 * old.seconds, "half as long again as it was given here")
    kind = "cuda" if gpu else "cpu"
    slowest = 0.0
    for other in read_all(notebook)[0]:
        if other.seconds and not other.failed and other.device == kind:
            slowest = max(slowest, other.seconds)
    if slowest:
        return Expected(slowest, "as on another machine")
    return Expected(UNKNOWN_SECONDS, "not known")


def turn(old: Record | None) -> tuple[int, float]:
    """Order under a budget: the missing, the doubtful, then the old by their age; last what the
    budget ended before.
    """
    if old is None:
        return 0, 0.0
    age = old.recorded.timestamp()
    if old.failed == OVER:
        return 3, age
    return (1 if old.doubt else 2), age
