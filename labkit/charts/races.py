"""The picture of a race: the metric of every run against its training seconds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from labkit.charts import svg
from labkit.charts.plot import DASHES, TONES, Box, axes, legend, most_of
from labkit.charts.svg import EDGE, LINE, WIDTH
from labkit.show import Markup

# Of one curve.
MOST_POINTS = 120

Points = Sequence[tuple[float, float]]


class Curve(NamedTuple):
    """One run: (training seconds, metric) at each evaluation; ``going`` is not over yet."""

    arm: str
    points: Points
    reached: bool
    going: bool = False


def race(
    words: str,
    metric: str,
    target: float,
    arms: Mapping[str, str],
    curves: Sequence[Curve],
    *,
    higher_is_better: bool,
    recorded: Sequence[tuple[str, Sequence[Curve]]] = (),
) -> Markup:
    """The metric against training seconds, of every run: also one that explodes or never arrives.

    ``arms`` has the words that stand behind the name of each.
    """
    tones = dict(zip(arms, itertools.cycle(TONES), strict=False))
    top = LINE * (max(2, len(arms)) + 1) + 8
    every = [*curves, *(curve for _, others in recorded for curve in others)]
    seconds = most_of(at for curve in every for at, _ in curve.points)
    ends = _metric_scale(target, every)
    box = Box(72, top, WIDTH - EDGE, top + 220, (0, 1.03 * (seconds or 1)), ends)
    parts = axes(box, metric)
    for number, (arm, arrival) in enumerate(arms.items(), 1):
        parts.append(svg.rect(EDGE, LINE * number - 11, 13, 13, f"fill {tones[arm]}"))
        parts += svg.named(LINE * number, arm, arrival, left=28)
    for number, (_, others) in enumerate(recorded):
        parts += _recorded(others, box, DASHES[number % len(DASHES)])
    for curve in curves:
        parts += _curve(curve, box, tones[curve.arm], box.bottom if higher_is_better else box.top)
    parts += _target(target, box)
    below = box.bottom + 2 * LINE
    parts.append(svg.text(EDGE, below, "● arrived  × did not  ▲ beyond", "small"))
    parts.append(svg.text(WIDTH - EDGE, below, "training seconds", "small", "end"))
    parts += legend([label for label, _ in recorded], below)
    return svg.picture(below + LINE * (len(recorded) + 0.4), words, parts)


def _metric_scale(target: float, curves: Sequence[Curve]) -> tuple[float, float]:
    """The ends of a scale that holds the target and the curves, save where one explodes.

    Curves count up to three times as far from the target as those began that arrived; where none
    did, as the middle one began.
    """
    began, arrived = [], []
    for curve in curves:
        known = [abs(value - target) for _, value in curve.points if math.isfinite(value)]
        began += known[:1]
        if curve.reached:
            arrived += known[:1]
    usual = max(arrived, default=0.0)
    if began and not arrived:
        usual = sorted(began)[(len(began) - 1) // 2]
    values = [target]
    for curve in curves:
        values += [value for _, value in curve.points if abs(value - target) <= 3 * usual]
    room = 0.08 * (max(values) - min(values)) or 0.5 * abs(target) or 0.5
    return min(values) - room, max(values) + room


def _curve(curve: Curve, box: Box, tone: str, worst: float) -> list[Markup]:
    """One run, clipped at the edges of the plot; a mark where it leaves, and one at its end."""
    points, parts, outside = [], [], False
    for seconds, value in curve.points:
        # What is no number any more has exploded.
        x, y = box.x(seconds), box.y(value) if math.isfinite(value) else worst
        beyond = not box.up[0] <= value <= box.up[1]
        if beyond and not outside:
            parts.append(_beyond(x, y, box, tone))
        outside = beyond
        points.append((x, y))
    if points:
        parts.insert(0, svg.path(_thinned(points), f"line {'' if curve.going else 'thin'} {tone}"))
    end = points[-1] if points else (box.left, worst)
    if curve.reached or curve.going:
        return [*parts, svg.dots([end], f"end {tone}")]
    return [*parts, _cross(*end, tone)]


def _recorded(curves: Sequence[Curve], box: Box, dashes: str) -> list[Markup]:
    """A recorded race: its curves muted, each clipped at the edges."""
    parts = []
    for curve in curves:
        points = [(box.x(at), box.y(value)) for at, value in curve.points if math.isfinite(value)]
        if points:
            parts.append(svg.path(_thinned(points), "line thin recorded", dashes))
    return parts


def _thinned(points: Points) -> Points:
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
