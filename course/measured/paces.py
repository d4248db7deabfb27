"""08: steps to the goal, in the bars of the moving picture; beside them what a step costs."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, cycle
from statistics import median

from course.measured import curves, rates
from labkit.charts import svg
from labkit.charts.plot import Box
from labkit.charts.svg import EDGE, LINE, WIDTH
from labkit.racing import RaceResult, RaceRun
from labkit.show import Markup
from labkit.text import format_short

# Pixels of a side's words with its bar, of the bar, of the chart.
ROW, BAR, CHART = 40.0, 9.0, 170.0
# A metric of so many times the target is beyond the chart.
BEYOND = 1.6
# As in the moving picture, whose momentum is SGD's here; AdamW, the baseline, is not in it.
HUES = {"SGD": "candidate", "Adam": "arm3", "AdamW": "arm5", "baseline": "arm5"}
OTHERS = ("arm4", "recorded")


def paces(result: object) -> str:
    """Steps to the target and milliseconds per step for each side of a race; below, every curve.

    A function for a panel; "" for all but a race to a small metric, such as a loss, that has begun.
    """
    if not isinstance(result, RaceResult) or result.higher_is_better:
        return ""
    known = list(curves.finite(result.runs))
    if not known or min(known) <= 0 or result.target <= 0:
        return ""
    last = max(run.curve[-1][0] for run in result.runs if run.curve)
    others = cycle(OTHERS)
    hues = {arm: HUES.get(rule(arm)) or next(others) for arm in result.arms}
    title = f"steps to a {result.metric} of {result.target:g}, medians of {result.seeds}"
    parts = [svg.text(EDGE, LINE, title, "small")]
    for number, arm in enumerate(result.arms):
        parts += bar(arm, result.of(arm), LINE + 4 + ROW * number, last, hues[arm])
    top = 3 * LINE + 8 + ROW * len(result.arms)
    high = min(max(known), BEYOND * result.target)
    box = rates.box(top, CHART, last, 0.95 * min(*known, result.target), 1.02 * high)
    parts += chart(result, box, hues)
    foot = box.bottom + 2 * LINE - 6
    parts += curves.legend(foot)
    said = (f"{arm}: {in_steps(result.of(arm))}, {cost(result.of(arm))}" for arm in result.arms)
    return svg.picture(foot + 12, f"Steps to the goal and what they cost: {'; '.join(said)}", parts)


def rule(arm: str) -> str:
    """The rule in a side's name: ``SGD`` of ``rule='SGD', rate='best'``, ``baseline``."""
    named = re.match(r"rule='([^']*)'", arm)
    return named[1] if named else arm


def bar(arm: str, runs: Sequence[RaceRun], top: float, last: int, hue: str) -> list[Markup]:
    """The steps of a side, in words and as a bar; one that never arrives fills the row."""
    words = svg.named(top + LINE - 4, f"{in_steps(runs)}: {rates.short(arm)}", cost(runs))
    part = min(1.0, steps(runs) / last)
    return [*words, svg.rect(EDGE, top + LINE + 3, part * (WIDTH - 2 * EDGE), BAR, f"fill {hue}")]


def steps(runs: Sequence[RaceRun]) -> float:
    """The median of the steps to the goal; runs that never arrive need infinitely many."""
    return median([run.steps for run in runs] or [math.inf])


def in_steps(runs: Sequence[RaceRun]) -> str:
    """``160 steps``, ``never`` where half of the runs or more do not arrive, ``explodes``."""
    if not runs:
        return "has not begun"
    if 2 * sum(map(curves.exploded, runs)) > len(runs):
        return "explodes"
    return "never" if math.isinf(steps(runs)) else f"{steps(runs):g} steps"


def cost(runs: Sequence[RaceRun]) -> str:
    """``7.1 ms per step, 1.1 s``: the latter is the product with the steps to the goal.

    A median of the seconds could belong to another run than that of the steps.
    """
    every = [run.curve[-1][1] / run.curve[-1][0] for run in runs if run.curve]
    if not every:
        return ""
    each = median(every)
    whole = each * steps(runs)
    in_all = "" if math.isinf(whole) else f", {format_short(whole)} s"
    return f"{format_short(1000 * each)} ms per step{in_all}"


def chart(result: RaceResult, box: Box, hues: dict[str, str]) -> list[Markup]:
    """The metric of every run by its steps."""
    parts = rates.chart(box, f"{result.metric}, looked at {rates.often(result)}")
    parts += curves.steps_below(box)
    drawn = []
    for run in result.runs:
        # Below, so that it is seen where the other side's runs are the same.
        look = "line wide" if run.arm == result.arms[0] else "line thin"
        drawn.append(curves.curve(cut(run, box), box, hues[run.arm], look=look))
    parts += chain.from_iterable(drawn)
    return [*parts, *curves.target(result.target, box), *curves.explosions(result.runs, box)]


def cut(run: RaceRun, box: Box) -> RaceRun:
    """A run that does not leave the chart upwards, unless it explodes."""
    most = math.exp(box.up[1])
    kept = []
    for step, at, value in run.curve:
        kept.append((step, at, min(most, value) if math.isfinite(value) else value))
    return replace(run, curve=tuple(kept))
