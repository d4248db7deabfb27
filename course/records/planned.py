"""What a plan of the memory planner needs beside the plain model, kept with the labs' results."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from labkit.journal import keep
from labkit.text import format_settings

RATIOS = ("memory", "time", "batch")
SOURCES = ("predicted", "measured")


@dataclass(frozen=True)
class PlanRatios:
    """Ratios of a plan to the plain model: ``memory``, ``time``, largest ``batch``.

    ``source`` says whether they were "predicted", with nothing timed, or "measured".
    """

    lab: str
    settings: dict[str, Any]
    figures: dict[str, float]
    source: str = "predicted"

    def __str__(self) -> str:
        figures = ", ".join(f"{name} {value:.3g}x" for name, value in self.figures.items())
        plan = f"{self.lab}, {format_settings(self.settings)}"
        return f"{plan}: {figures} of the plain model's ({self.source})"

    __repr__ = __str__


def planned(
    lab: str, settings: Mapping[str, Any], *, source: str = "predicted", **figures: float
) -> PlanRatios:
    """Keep what a plan needs, as ratios to the plain model, in every open journal.

    ``figures``: any of ``memory`` and ``time`` of one step, and ``batch``, the largest that fits.
    ValueError for others, for a ratio that is not positive and finite, and for a source that is
    neither "predicted" nor "measured".
    """
    if not figures or not figures.keys() <= set(RATIOS):
        raise ValueError(f"figures={sorted(figures)}: give some of {RATIOS}")
    for name, value in figures.items():
        if not (math.isfinite(value) and value > 0):
            wanted = "use a ratio to the plain model, positive and finite"
            raise ValueError(f"{name}={value!r}: {wanted}")
    if source not in SOURCES:
        raise ValueError(f"source={source!r}: use one of {SOURCES}")
    ratios = {name: float(value) for name, value in figures.items()}
    result = PlanRatios(lab, dict(settings), ratios, source)
    keep(result)
    return result
