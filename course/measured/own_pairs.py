"""What the reader's own function says of the pairs that a panel timed last."""

from __future__ import annotations

from collections.abc import Callable

from labkit.panel import LabPanel
from labkit.results import Comparison
from labkit.text import format_factor

NOTHING = "The panel has timed nothing yet: press Run, then run this cell again."


def own_pairs(speedup: Callable[[list[float], list[float]], float], panel: LabPanel) -> str:
    """A function of the times of both sides beside what labkit says of the same pairs."""
    timed = [each for each in panel.history if isinstance(each, Comparison) and each.ratios]
    if not timed:
        return NOTHING
    last = timed[-1]
    before, after = (list(side.times[: last.pairs]) for side in last.arms)
    own, sums = speedup(before, after), sum(before) / sum(after)
    return (
        f"Your function on the {last.pairs} pairs of your last run: {format_factor(own)}x.\n"
        f"The ratio of the two means: {format_factor(sums)}x; one disturbed pair can move it.\n"
        f"labkit says {format_factor(last.speedup)}x: {_how(last.build_count)}."
    )


def _how(builds: int) -> str:
    if builds < 3:
        return "the median of the same ratios"
    return f"the medians of its {builds} builds, averaged, so that no lucky place in memory decides"
