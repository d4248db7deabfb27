"""02: every run of a race by the clock, in the form of the moving picture's chart of losses."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, cycle, takewhile

from course.measured.curves import HUES, MOST_POINTS, ROOF, exploded, finite, levels, star
from labkit.charts import svg
from labkit.charts.plot import Box, field
from labkit.charts.svg import EDGE, LINE, WIDTH
from labkit.racing import RaceResult, RaceRun
from labkit.show import Markup
from labkit.text import format_short

LEFT, HEIGHT = 60.0, 200.0
# A metric is never drawn nearer to its least value than such a part of it.
NEAR = 1e-4
DASH = "5 4"
# A run that begins so many times as high as another one is beyond the chart.
FAR = 30
# With more runs of a side than these they are pale, but for one in the middle.
FEW = 5


def by_clock(result: object, least: float = 0.0) -> str:
    """The metric of every run by its milliseconds of training, both scales logarithmic.

    A function for a panel; "" for all but a race to a small metric, such as a loss, that has begun.
    ``least``: the lowest value that the metric can have; what is above it is drawn.
    """
    if not isinstance(result, RaceResult) or result.higher_is_better:
        return ""
    goal = goal_words(result, least)
    result = above(result, least)
    values = list(finite(result.runs))
    if not values or min(values) <= 0 or result.target <= 0:
        return ""
    hues = dict(zip(result.arms, cycle(HUES), strict=False))
    box = box_of(result, values)
    title = f"{result.metric}{' above the least' * bool(least)}, {result.seeds}"
    middle = {arm: usual(result.of(arm)) for arm in result.arms}
    if any(middle.values()):
        title += ", the middle one bold"
    parts = [field(box._replace(top=box.top - ROOF)), *scales(box)]
    parts.append(svg.text(LEFT, box.top - ROOF - 8, title, "small"))
    words = {arm: ended(result.of(arm)) for arm in result.arms}
    for number, arm in enumerate(result.arms, 1):
        parts.append(svg.rect(EDGE, LINE * number - 11, 13, 13, f"fill {hues[arm]}"))
        parts += svg.named(LINE * number, arm, words[arm], left=28)
        thin = "pale" if middle[arm] else "thin"
        parts += chain.from_iterable(curve(run, box, hues[arm], thin) for run in result.of(arm))
    parts += [
        svg.path(places(run, box), f"line middle {hues[arm]}") for arm, run in middle.items() if run
    ]
    y = box.y(math.log(result.target))
    parts.append(svg.path([(box.left, y), (box.right, y)], "one", DASH))
    foot = box.bottom + 2 * LINE - 6
    parts += legend(foot, goal)
    spoken = "; ".join(f"{arm}: {said}" for arm, said in words.items())
    return svg.picture(foot + 12, f"{result.metric} of every run by the clock: {spoken}", parts)


def goal_words(result: RaceResult, least: float) -> str:
    """The target, as high as it is drawn: ``target: 0.0034 above the least``."""
    if not least:
        return f"target {result.target:g}"
    return f"target: {format_short(result.target - least)} above the least"


def legend(y: float, goal: str) -> list[Markup]:
    """What the marks mean; the target's words are here, where no curve is."""
    return [
        svg.dots([(EDGE + 8, y - 4)], "end baseline"),
        svg.text(EDGE + 22, y, "arrived", "small"),
        star(EDGE + 108, y - 4, "line exploded baseline"),
        svg.text(EDGE + 126, y, "exploded", "small"),
        svg.path([(EDGE + 210, y - 4), (EDGE + 236, y - 4)], "one", DASH),
        svg.text(EDGE + 244, y, goal, "small"),
        svg.text(WIDTH - EDGE, y, "time of training", "small", "end"),
    ]


def above(result: RaceResult, least: float) -> RaceResult:
    """The same race to a metric that is lower by ``least``."""
    runs = []
    for run in result.runs:
        # Rounding may put a value at the least, which has no logarithm.
        curve = ((step, time, max(value - least, NEAR * least)) for step, time, value in run.curve)
        runs.append(replace(run, curve=tuple(curve)) if least else run)
    return replace(result, runs=tuple(runs), target=result.target - least)


def box_of(result: RaceResult, values: Sequence[float]) -> Box:
    """Where the curves are drawn, in logarithms of milliseconds and of the metric."""
    began = [next(finite([run])) for run in result.runs if any(finite([run]))]
    # Where one step is enough to explode, the lowest beginning is the usual one.
    high = max(min(max(began), FAR * min(began)), result.target)
    up = math.log(0.9 * min(*values, result.target)), math.log(1.3 * high)
    drawn = (seen(run, 1.3 * high) for run in result.runs)
    times = [1000 * seconds for seconds, _ in chain.from_iterable(drawn)]
    across = math.log(min(times)), math.log(1.05 * max(times))
    top = LINE * (len(result.arms) + 1) + ROOF + 8
    return Box(LEFT, top, WIDTH - EDGE, top + HEIGHT, across, up)


def scales(box: Box) -> list[Markup]:
    """Round values of the metric at the left, powers of ten in milliseconds below."""
    parts = levels(box)
    for value in (10.0**power for power in range(-6, 7)):
        if box.across[0] <= math.log(value) <= box.across[1]:
            x = box.x(math.log(value))
            parts.append(svg.below(x, box.bottom + 20, f"{format_short(value)} ms"))
    return parts


def seen(run: RaceRun, high: float) -> list[tuple[float, float]]:
    """Seconds and metrics that are drawn: of a run that explodes, until it is above ``high``."""
    known = [(seconds, value) for _, seconds, value in run.curve if math.isfinite(value)]
    if not exploded(run):
        return known
    inside = list(takewhile(lambda at: at[1] < high, known))
    return known[: len(inside) + 1]


def usual(runs: Sequence[RaceRun]) -> RaceRun | None:
    """The run in the middle, by when it arrived; None where there are few."""
    arrived = sorted((run for run in runs if run.reached), key=lambda run: run.curve[-1][1])
    return arrived[len(arrived) // 2] if arrived and len(runs) > FEW else None


def places(run: RaceRun, box: Box) -> list[tuple[float, float]]:
    """Where a run is drawn."""
    known = seen(run, math.exp(box.up[1]))
    points = [(box.x(math.log(1000 * s)), box.y(math.log(value))) for s, value in known]
    every = math.ceil(len(points) / MOST_POINTS) or 1
    return points[::-every][::-1]


def curve(run: RaceRun, box: Box, hue: str, thin: str) -> list[Markup]:
    """One run: a dot where it arrived; a star where it leaves the chart on its way to explode."""
    points = places(run, box)
    if not points:
        return []
    parts = [svg.path(points, f"line {thin} {hue}")]
    if run.reached:
        parts.append(svg.dots(points[-1:], f"end {hue}"))
    if exploded(run):
        parts.append(star(*points[-1], f"line exploded {hue}"))
    return parts


def ended(runs: Sequence[RaceRun]) -> str:
    """What became of the runs of a side: ``9 arrive (1.2–1.9 ms)``, ``2 arrive, 1 explodes``."""
    return ", ".join(_ended(runs)) or "has not begun"


def _ended(runs: Sequence[RaceRun]) -> Iterator[str]:
    arrived = [1000 * run.curve[-1][1] for run in runs if run.reached]
    lost = sum(exploded(run) for run in runs)
    never = len(runs) - len(arrived) - lost
    if arrived:
        low, high = format_short(min(arrived)), format_short(max(arrived))
        between = low if low == high else f"{low}–{high}"
        yield f"{len(arrived)} {'arrives' if len(arrived) == 1 else 'arrive'} ({between} ms)"
    if lost:
        yield f"{lost} {'explodes' if lost == 1 else 'explode'}"
    if never:
        yield f"{never} never {'arrives' if never == 1 else 'arrive'}"
