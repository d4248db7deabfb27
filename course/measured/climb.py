"""07: the accuracy of every run by its steps, and below it the scale of the loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import cycle

from course.measured.curves import cross
from course.measured.rates import short
from course.measured.updates import power_of_two
from labkit.charts import svg
from labkit.charts.plot import TONES, Box, axes, field
from labkit.charts.svg import EDGE, LINE, WIDTH
from labkit.racing import RaceResult, RaceRun
from labkit.show import Markup

LEFT, CLIMB, COURSE = 72.0, 110.0, 74.0
# The scale of a run at its looks: steps and scales.
Course = list[tuple[int, float]]


def draw(result: RaceResult, course_of: Callable[[RaceRun], Course]) -> tuple[list[Markup], float]:
    """Both charts, the second where a scale changes during a run; and their foot."""
    hues = dict(zip(result.arms, cycle(TONES), strict=False))
    last = max((run.curve[-1][0] for run in result.runs if run.curve), default=1)
    top = LINE * (len(result.arms) + 1) + 8
    parts = []
    for number, arm in enumerate(result.arms, 1):
        parts.append(svg.rect(EDGE, LINE * number - 11, 13, 13, f"fill {hues[arm]}"))
        parts += svg.named(LINE * number, short(arm), arrivals(result, arm), left=28)
    box = Box(LEFT, top, WIDTH - EDGE, top + CLIMB, (0, 1.03 * last), _ends(result))
    parts += axes(box, f"{result.metric} by step, {result.seeds}; dashed: the target")
    y = box.y(result.target)
    parts.append(svg.path([(box.left, y), (box.right, y)], "one", "5 4"))
    for run in result.runs:
        parts += _curve(run, box, hues[run.arm])
    parts += _marks(box.bottom + 2 * LINE - 6)
    foot = box.bottom + 2 * LINE
    changing = {
        run: course for run in result.runs if len(set(dict(course := course_of(run)).values())) > 1
    }
    if not changing:
        return parts, foot
    lower = Box(LEFT, foot + 1.4 * LINE, WIDTH - EDGE, 0, box.across)
    lower = lower._replace(bottom=lower.top + COURSE)
    parts += _courses(changing, lower, hues)
    return parts, lower.bottom + 0.6 * LINE


def arrivals(result: RaceResult, arm: str) -> str:
    """``5 of 5 arrive, step 120``: the median step of those that do."""
    steps = result.median(arm, "steps")
    words = f"{result.tally(arm)} arrive"
    return words if math.isinf(steps) else f"{words}, after {steps:g} steps"


def _ends(result: RaceResult) -> tuple[float, float]:
    """The edges of the chart, on the scale of the metric."""
    values = [value for run in result.runs for _, _, value in run.curve if math.isfinite(value)]
    low, high = min([*values, result.target]), max([*values, result.target])
    room = 0.06 * (high - low) or 0.5
    return low - room, high + room


def _curve(run: RaceRun, box: Box, hue: str) -> list[Markup]:
    points = [(box.x(step), box.y(value)) for step, _, value in run.curve if math.isfinite(value)]
    if not points:
        return []
    line = svg.path(points, f"line thin {hue}")
    if run.reached:
        return [line, svg.dots(points[-1:], f"end {hue}")]
    return [line, cross(*points[-1], f"line {hue}")]


def _marks(y: float) -> list[Markup]:
    """What the marks at the ends of curves mean."""
    return [
        svg.dots([(EDGE + 8, y - 4)], "end baseline"),
        svg.text(EDGE + 22, y, "arrived", "small"),
        cross(EDGE + 118, y - 4, "line baseline"),
        svg.text(EDGE + 132, y, "never arrived", "small"),
        svg.text(WIDTH - EDGE, y, "steps", "small", "end"),
    ]


def _courses(courses: Mapping[RaceRun, Course], box: Box, hues: Mapping[str, str]) -> list[Markup]:
    """Scales by step, on a scale of logarithms."""
    powers = [math.log2(scale) for course in courses.values() for _, scale in course]
    box = box._replace(up=(min(powers) - 1, max(powers) + 1))
    title = "the loss scale by step: it doubles, and halves after inf"
    parts = [field(box), svg.text(box.left, box.top - 8, title, "small")]
    every = max(1, math.ceil((max(powers) - min(powers)) / 3))
    for power in range(math.ceil(min(powers)), math.floor(max(powers)) + 1, every):
        y = box.y(power)
        parts.append(svg.path([(box.left, y), (box.right, y)], "grid"))
        parts.append(svg.text(box.left - 6, y + 5, power_of_two(power), "small", "end"))
    for run, course in courses.items():
        points = [(box.x(step), box.y(math.log2(scale))) for step, scale in course]
        parts.append(svg.path(points, f"line thin {hues[run.arm]}"))
        parts.append(svg.dots(points[-1:], f"end {hues[run.arm]}"))
    return parts
