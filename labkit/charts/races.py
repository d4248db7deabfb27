"""The picture of a race: the metric of every run against its training seconds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from labkit.charts import svg
from labkit.charts.given import Raced, Run
from labkit.charts.plot import DASHES, TONES, Box, axes, legend, line_of_words, most_of, swatch
from labkit.charts.svg import EDGE, LINE, WIDTH
from labkit.show import Markup

# Of one curve.
MOST_POINTS = 120


def race(
    result: Raced,
    *,
    going: Run | None = None,
    recorded: Sequence[tuple[str, Raced]] = (),
) -> Markup:
    """The metric against training seconds, of every run: also one that explodes or never arrives.

    Before the first run, ``result`` has none; ``going`` is the run that is not over yet.
    """
    runs = [*result.runs, *([going] if going else [])]
    arms = list(dict.fromkeys([*result.arms, *(run.arm for run in runs)]))
    tones = dict(zip(arms, itertools.cycle(TONES), strict=False))
    top = LINE * (max(2, len(arms)) + 1) + 8
    others = [run for _, other in recorded for run in other.runs]
    seconds = most_of(point[1] for run in [*runs, *others] for point in run.curve)
    ends = _metric_scale(result.target, [*runs, *others])
    box = Box(72, top, WIDTH - EDGE, top + 220, (0, 1.03 * (seconds or 1)), ends)
    worst = box.bottom if result.higher_is_better else box.top
    parts = axes(box, result.metric)
    for number, arm in enumerate(arms, 1):
        parts.append(swatch(tones[arm], LINE * number))
        words = result.arrival(arm) if arm in result.arms else ""
        parts += line_of_words(arm, words, LINE * number, 28)
    for number, (_, other) in enumerate(recorded):
        parts += _other_race(other, box, number)
    for run in runs:
        parts += _curve(run, box, tones[run.arm], worst, run is going)
    parts += _target(result.target, box)
    below = box.bottom + 2 * LINE
    parts.append(svg.text(EDGE, below, "● arrived  × did not  ▲ beyond", "small"))
    parts.append(svg.text(WIDTH - EDGE, below, "training seconds", "small", "end"))
    parts += legend([label for label, _ in recorded], below)
    return svg.picture(below + LINE * (len(recorded) + 0.4), result.sentence, parts)


def _metric_scale(target: float, runs: Sequence[Run]) -> tuple[float, float]:
    """The ends of a scale that holds the target and the curves, save where one explodes.

    Curves count up to three times as far from the target as those began that arrived; where none
    did, as the middle one began.
    """
    began, arrived = [], []
    for run in runs:
        known = [abs(value - target) for *_, value in run.curve if math.isfinite(value)]
        began += known[:1]
        if run.reached:
            arrived += known[:1]
    usual = max(arrived, default=0.0)
    if began and not arrived:
        usual = sorted(began)[(len(began) - 1) // 2]
    values = [target]
    for run in runs:
        values += [value for *_, value in run.curve if abs(value - target) <= 3 * usual]
    room = 0.08 * (max(values) - min(values)) or 0.5 * abs(target) or 0.5
    return min(values) - room, max(values) + room


def _curve(run: Run, box: Box, tone: str, worst: float, going: bool) -> list[Markup]:
    """One run, clipped at the edges of the plot; a mark where it leaves, and one at its end."""
    points, parts, outside = [], [], False
    for _, seconds, value in run.curve:
        # What is no number any more has exploded.
        x, y = box.x(seconds), box.y(value) if math.isfinite(value) else worst
        beyond = not box.up[0] <= value <= box.up[1]
        if beyond and not outside:
            parts.append(_beyond(x, y, box, tone))
        outside = beyond
        points.append((x, y))
    if points:
        kind = f"line {tone}" if going else f"line thin {tone}"
        parts.insert(0, svg.path(_thinned(points), kind))
    end = points[-1] if points else (box.left, worst)
    if run.reached or going:
        return [*parts, svg.dots([end], f"end {tone}")]
    return [*parts, _cross(*end, tone)]


def _thinned(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """Every so many points, and always the last."""
    every = math.ceil(len(points) / MOST_POINTS) or 1
    return points[::-every][::-1]


def _beyond(x: float, y: float, box: Box, tone: str) -> Markup:
    """A triangle that points out of the plot."""
    tip, base = (-2, 10) if y < (box.top + box.bottom) / 2 else (2, -10)
    corners = (x, y + tip), (x - 6, y + base), (x + 6, y + base)
    return svg.path(corners, f"beyond fill {tone}")


def _cross(x: float, y: float, tone: str) -> Markup:
    corners = f"M{svg.number(x - 4)} {svg.number(y - 4)}l8 8m0 -8l-8 8"
    return svg.element("path", d=corners, kind=f"cross line {tone}")


def _target(target: float, box: Box) -> list[Markup]:
    y = box.y(target)
    parts = [svg.path([(box.left, y), (box.right, y)], "one", "5 4")]
    # Where a curve begins none is near the target yet; and away from the nearer edge.
    side = -7 if y > box.top + 30 else 20
    parts.append(svg.text(box.left + 6, y + side, f"target {target:g}"))
    return parts


def _other_race(other: Raced, box: Box, number: int) -> list[Markup]:
    """A recorded race: its curves muted, each clipped at the edges."""
    parts = []
    for run in other.runs:
        points = [(box.x(at), box.y(value)) for _, at, value in run.curve if math.isfinite(value)]
        if points:
            points = list(_thinned(points))
            parts.append(svg.path(points, "line thin recorded", DASHES[number % len(DASHES)]))
    return parts
