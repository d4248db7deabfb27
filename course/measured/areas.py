"""05: each side of a race as a rectangle, steps by the time of a step, as the moving picture."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import cycle
from statistics import geometric_mean
from typing import NamedTuple

from course.measured.curves import HUES
from labkit.charts import svg
from labkit.charts.plot import Box, axes
from labkit.charts.svg import EDGE, LINE, WIDTH
from labkit.racing import RaceResult, RaceRun
from labkit.show import Markup
from labkit.text import format_seconds

LEFT, HEIGHT = 64.0, 200.0


class Side(NamedTuple):
    """One side: its mean steps and seconds to the target.

    Means are geometric: the areas of two sides are as the factor of the race.

    ``arrived``: how many of its ``runs``. Where that is none, ``steps`` are those that it made.
    """

    name: str
    steps: float
    seconds: float
    arrived: int
    runs: int

    @property
    def pace(self) -> float:
        """Seconds of a step."""
        return self.seconds / self.steps


def as_areas(result: object) -> str:
    """Time to the target as an area: a function for a panel; "" for all but a race that began."""
    if not isinstance(result, RaceResult):
        return ""
    sides = list(sides_of(result))
    return draw(sides) if sides else ""


def sides_of(result: RaceResult) -> Iterator[Side]:
    """The sides that have made a step."""
    for arm in result.arms:
        runs = [run for run in result.of(arm) if run.curve and run.curve[-1][1] > 0]
        if runs:
            yield side_of(arm, runs)


def side_of(name: str, runs: Sequence[RaceRun]) -> Side:
    arrived = [run for run in runs if run.reached]
    ends = [run.curve[-1] for run in arrived or runs]
    steps = geometric_mean(step for step, _, _ in ends)
    seconds = geometric_mean(seconds for _, seconds, _ in ends)
    return Side(name, steps, seconds, len(arrived), len(runs))


def draw(sides: Sequence[Side]) -> Markup:
    """The rectangles on one scale, the names and times of the sides above."""
    top = LINE * (len(sides) + 1) + 8
    steps = 1.05 * max(side.steps for side in sides)
    pace = 1.1 * 1000 * max(side.pace for side in sides)
    box = Box(LEFT, top, WIDTH - EDGE, top + HEIGHT, (0, steps), (0, pace))
    parts = axes(box, "milliseconds per step; area = time to the target")
    for number, (side, hue) in enumerate(zip(sides, cycle(HUES), strict=False), 1):
        parts.append(svg.rect(EDGE, LINE * number - 11, 13, 13, f"fill {hue}"))
        parts += svg.named(LINE * number, short(side.name), in_words(side), left=28)
        parts += rectangle(side, box, hue)
    foot = box.bottom + 2 * LINE - 6
    parts.append(svg.text(WIDTH - EDGE, foot, "steps", "small", "end"))
    words = "; ".join(f"{side.name}: {in_words(side)}" for side in sides)
    return svg.picture(foot + 12, words, parts)


def short(name: str) -> str:
    """A side's settings in as much as there is room for: ``512 samples``, ``512, rate linear``."""
    name = re.sub(r"^batch_size='(\w+)'$", r"\1 samples", name)
    return re.sub(r"batch_size=|'", "", name).replace("rate=", "rate ")


def in_words(side: Side) -> str:
    """``222 steps of 1.05 ms: 233 ms``, or that no run arrives."""
    if not side.arrived:
        return f"never arrives, {side.steps:,.0f} steps"
    some = "" if side.arrived == side.runs else f", {side.arrived} of {side.runs} arrive"
    taken = f"{side.steps:,.0f} steps of {format_seconds(side.pace)}"
    return f"{taken}: {format_seconds(side.seconds)}{some}"


def rectangle(side: Side, box: Box, hue: str) -> list[Markup]:
    """Filled where the side arrives; else open and dashed, as more steps would not end it."""
    right, up = box.x(side.steps), box.y(1000 * side.pace)
    if not side.arrived:
        return [svg.path([(box.left, up), (right, up)], f"line {hue}", "6 5")]
    corner = [(box.left, up), (right, up), (right, box.bottom)]
    filled = svg.rect(box.left, up, right - box.left, box.bottom - up, f"band {hue}")
    return [filled, svg.path(corner, f"line {hue}")]
