"""03: the learning rate of both sides, and the loss under it, in the moving picture's form."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable
from itertools import chain, cycle
from statistics import fmean

from torch.optim import Optimizer

from course.measured import curves
from labkit.charts import svg
from labkit.charts.plot import Box, field
from labkit.charts.svg import EDGE, LINE, WIDTH
from labkit.racing import RaceResult, RaceRun
from labkit.show import Markup
from labkit.text import format_short

LEFT, BETWEEN = 76.0, 34.0
# Pixels of the two charts.
RATES, LOSSES = 90.0, 150.0
# A noisy metric is lucky at times: no side shall win by one look.
LOOKS = 3
# So many runs are kept: more than a race has.
FEW = 60
# A lower rate than this part of the highest one is drawn at the edge.
LEAST = 1e-3
# Rows at the edge of a chart, in each power of ten.
ROUND = (1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0)
# A metric of so many times the target is beyond the chart.
BEYOND = 2.2

Evaluate = Callable[[], float]


class Rates:
    """A function for `LabPanel(picture=...)` that remembers the rates of the runs it draws.

    "" for all but a race to a small metric, such as a loss.

    >>> import torch
    >>> rates, optimizer = Rates(), torch.optim.SGD([torch.zeros(1)], lr=0.1)
    >>> look = rates.beside(optimizer, lambda: 2.0)
    >>> look(), rates.of(RaceRun("baseline", 0, ((20, 0.1, 2.0),), reached=False))
    (2.0, [(0, 0.1), (20, 0.1)])
    """

    def __init__(self) -> None:
        # Of each run the first rate, then a metric and a rate for each look.
        self._noted: deque[tuple[float, list[tuple[float, float]]]] = deque(maxlen=FEW)

    def beside(self, optimizer: Optimizer, evaluate: Evaluate) -> Evaluate:
        """The mean of the last `LOOKS` values of ``evaluate``; notes the rate at each call."""
        noted: list[tuple[float, float]] = []
        self._noted.append((optimizer.param_groups[0]["lr"], noted))
        values: deque[float] = deque(maxlen=LOOKS)

        def look() -> float:
            values.append(evaluate())
            noted.append((fmean(values), optimizer.param_groups[0]["lr"]))
            return noted[-1][0]

        return look

    def of(self, run: RaceRun) -> list[tuple[int, float]]:
        """Steps and rates of a run, which is found by its metrics; [] where none was noted."""
        wanted = [repr(value) for _, _, value in run.curve]
        for first, noted in reversed(self._noted):
            if noted and [repr(value) for value, _ in noted] == wanted:
                steps = (step for step, _, _ in run.curve)
                return [(0, first), *zip(steps, (rate for _, rate in noted), strict=True)]
        return []

    def __call__(self, result: object) -> str:
        if not isinstance(result, RaceResult) or result.higher_is_better:
            return ""
        known = list(curves.finite(result.runs))
        if not known or min(known) <= 0 or result.target <= 0:
            return ""
        # All runs of a side have one schedule: the one that went on for longest shows most of it.
        longest = {arm: max(result.of(arm), key=lambda run: len(run.curve)) for arm in result.arms}
        return picture(result, {arm: self.of(run) for arm, run in longest.items()})


def picture(result: RaceResult, rates: dict[str, list[tuple[int, float]]]) -> Markup:
    """Above the rate of each side, below the metric of every run; both on logarithmic scales."""
    hues = dict(zip(result.arms, cycle(curves.HUES), strict=False))
    last = max(run.curve[-1][0] for run in result.runs if run.curve)
    top = LINE * (len(result.arms) + 1) + 8
    upper = rate_box(rates, top, last)
    lower = loss_box(result, upper.bottom + BETWEEN, last)
    parts, words = [], []
    for number, arm in enumerate(result.arms, 1):
        ended = curves.in_words(result.of(arm))
        name = short(arm)
        words.append(f"{name}: {ended}")
        parts.append(svg.rect(EDGE, LINE * number - 11, 13, 13, f"fill {hues[arm]}"))
        parts += svg.named(LINE * number, name, ended, left=28)
    parts += chart(upper, "learning rate")
    for arm, points in rates.items():
        places = [(upper.x(step), up(upper, rate)) for step, rate in points]
        parts.append(svg.path(places, f"line {hues[arm]}") if places else Markup(""))
    title = f"{result.metric} {often(result)}, {result.seeds}"
    if max(curves.finite(result.runs)) > 1.01 * math.exp(lower.up[1]):
        title += "; higher ones at the edge"
    parts += chart(lower, title)
    runs = (curves.curve(run, lower, hues[run.arm]) for run in result.runs)
    parts += chain.from_iterable(runs)
    parts += curves.target(result.target, lower)
    parts += curves.explosions(result.runs, lower)
    parts += curves.steps_below(lower)
    foot = lower.bottom + 2 * LINE - 6
    parts += curves.legend(foot)
    said = f"Learning rate and {result.metric} of every run by step: {'; '.join(words)}"
    return svg.picture(foot + 12, said, parts)


def short(arm: str) -> str:
    """The values of a side's settings: ``1cycle, 0.1`` of ``schedule='1cycle', max_lr=0.1``."""
    return re.sub(r"\w+=", "", arm).replace("'", "")


def often(result: RaceResult) -> str:
    """How often the metric was looked at: ``every 20 steps``."""
    first = next(run.curve[0][0] for run in result.runs if run.curve)
    return "after each step" if first == 1 else f"every {first} steps"


def rate_box(rates: dict[str, list[tuple[int, float]]], top: float, last: int) -> Box:
    """Where the rates are drawn."""
    seen = [rate for points in rates.values() for _, rate in points]
    most = max(seen, default=1.0) or 1.0
    low = max(LEAST * most, min((rate for rate in seen if rate > 0), default=LEAST * most))
    return box(top, RATES, last, 0.7 * low, 1.4 * most)


def loss_box(result: RaceResult, top: float, last: int) -> Box:
    """Where the losses are drawn: all of them, as far as they are near the target."""
    known = [*curves.finite(result.runs), result.target]
    high = 1.05 * min(max(known), BEYOND * result.target)
    return box(top, LOSSES, last, 0.92 * min(known), high)


def box(top: float, height: float, last: int, low: float, high: float) -> Box:
    across, upright = (0, 1.03 * last), (math.log(low), math.log(high))
    return Box(LEFT, top, WIDTH - EDGE, top + height, across, upright)


def up(place: Box, value: float) -> float:
    """The place of a rate; zero lies at the lower edge."""
    return place.y(math.log(value)) if value > 0 else place.bottom


def chart(place: Box, title: str) -> list[Markup]:
    """Paper, a title, and round values at the left."""
    parts = [field(place), svg.text(LEFT, place.top - 8, title, "small")]
    for value in round_values(*map(math.exp, place.up)):
        y = place.y(math.log(value))
        parts.append(svg.path([(place.left, y), (place.right, y)], "grid"))
        parts.append(svg.text(LEFT - 6, y + 5, format_short(value), "small", "end"))
    return parts


def round_values(low: float, high: float) -> list[float]:
    """Powers of ten, where there are two of them; else a few rounder numbers between them."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    tens = [10.0**power for power in powers if low <= 10.0**power <= high]
    if len(tens) > 1:
        return tens
    every = [part * 10.0**power for power in powers for part in ROUND]
    within = [value for value in every if low <= value <= high]
    return within[:: max(1, math.ceil(len(within) / 5))]
