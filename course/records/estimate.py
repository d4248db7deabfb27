"""What recording a notebook takes, and what its record would be worth: the order under a budget."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from course.records.kernel import OVER
from course.records.store import Record, read_all

TABLE = Path(__file__).with_name("gpu_seconds.toml")
# Seconds that a notebook is taken to need of which nothing is known.
UNKNOWN_SECONDS = 120
# Of what the kernel, imports and cells without a lab take, when most of a notebook is kept.
LEAST_SECONDS = 30


@dataclass(frozen=True)
class GpuEstimate:
    """A line of ``gpu_seconds.toml``."""

    seconds: float
    of: str
    gpus: int = 1


@cache
def gpu_estimates() -> dict[str, GpuEstimate]:
    """What each notebook is estimated to take on a GPU. ValueError names a wrong line."""
    entries = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    found = {}
    for name, values in entries.items():
        try:
            estimate = GpuEstimate(**values)
        except TypeError:
            raise ValueError(f"{TABLE.name}, {name}: use seconds, of, and gpus") from None
        if not 0 < estimate.seconds < math.inf:
            raise ValueError(f"{TABLE.name}, {name}: seconds={estimate.seconds!r}: use a number")
        found[name] = estimate
    return found


@dataclass(frozen=True)
class Expected:
    """Seconds that recording takes, and how one knows."""

    seconds: float
    source: str

    def __str__(self) -> str:
        return f"about {self.seconds:.0f} s, {self.source}"

    def without(self, measured: float) -> Expected:
        """What is left of it when labs have measured for so many seconds already."""
        if not measured:
            return self
        left = max(min(LEAST_SECONDS, self.seconds), self.seconds - measured)
        return Expected(left, f"{self.source}, less what is kept")


def expected(notebook: str, old: Record | None, *, gpu: bool) -> Expected:
    """What this notebook takes: as here the last time; else as on the slowest other machine of the
    kind, with a GPU or without; else, on a GPU, as estimated.
    """
    if old is not None and old.seconds:
        if not old.failed:
            return Expected(old.seconds, "as here the last time")
        if old.failed == OVER:
            # It was not at its end yet.
            return Expected(1.5 * old.seconds, "half as long again as it was given here")
    kind = "cuda" if gpu else "cpu"
    others, _ = read_all(notebook)
    slowest = 0.0
    for other in others:
        if other.seconds and not other.failed and other.device == kind:
            slowest = max(slowest, other.seconds)
    if slowest:
        return Expected(slowest, "as on another machine")
    estimate = gpu_estimates().get(notebook)
    if gpu and estimate is not None:
        return Expected(estimate.seconds, "estimated")
    return Expected(UNKNOWN_SECONDS, "not known")


def gpus_needed(notebook: str) -> int:
    """Without so many GPUs a notebook falls back to CPUs, and says nothing of a GPU."""
    estimate = gpu_estimates().get(notebook)
    if estimate is None:
        return 1
    return estimate.gpus


@cache
def only_on_a_gpu(notebook: str) -> tuple[int, int]:
    """How many of its claims only a GPU can answer, and how many more a GPU judges."""
    # Here: claims read records.
    from course.claims.load import load, names

    alone = judged = 0
    if notebook in names():
        for claim in load(notebook)[0]:
            if claim.device == "cuda":
                alone += 1
            elif claim.machine == "cuda":
                judged += 1
    return alone, judged


def worth(notebook: str, seconds: float) -> tuple[float, float]:
    """What a GPU's record of this notebook brings for its time, to be compared: first the claims
    that only a GPU can answer; where there are none, those that only a GPU judges.
    """
    alone, judged = only_on_a_gpu(notebook)
    return alone / seconds, judged / seconds


def turn(old: Record | None) -> int:
    """Order under a budget: the missing, the doubtful, the old;
    last what the budget ended before.
    """
    if old is None:
        return 0
    if old.failed == OVER:
        return 3
    if old.doubt:
        return 1
    return 2
