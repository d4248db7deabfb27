"""The picture of a sweep: throughput and speed-up over the values of a control."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from labkit.charts import svg
from labkit.charts.given import Swept
from labkit.charts.plot import (
    DASHES,
    TONES,
    Box,
    is_known,
    legend,
    level_ticks,
    log_of,
    ratio_levels,
    rung,
    short,
    swatch,
)
from labkit.charts.svg import EDGE, LETTER, LETTERS, LINE, WIDTH
from labkit.show import Markup
from labkit.text import listed


def sweep(
    results: Sequence[Swept],
    control: str,
    *,
    recorded: Sequence[tuple[str, Sequence[Swept]]] = (),
    levels: Sequence[tuple[str, float]] = (),
) -> Markup:
    """Over the values of the swept control: the throughput of both sides, and the speed-up.

    ``levels`` are lines across the throughputs, each with its label.
    """
    values = [_value(result, control) for result in results]
    others = [other for _, every in recorded for other in every]
    places = _places(values, [_value(other, control) for other in others])
    upper = Box(72, LINE + 8, WIDTH - EDGE, 164, places.ends, _rate_scale(results, levels))
    scale = _sweep_scale([*results, *others])
    lower = Box(72, 164 + 1.8 * LINE, WIDTH - EDGE, 350, places.ends, scale)
    parts = [*_rates(results, places, control, upper, levels), *ratio_levels(lower)]
    parts.append(svg.text(lower.left, lower.top - 8, "speed-up, 95 % interval", "small"))
    for number, (_, every) in enumerate(recorded):
        parts += _other_sweep(every, places, control, lower, number)
    parts += _speedups(results, places, control, lower)
    slanted = not places.joined and sum(len(name) + 2 for name in places.names) > LETTERS - 12
    parts += _value_names(values, places, lower, slanted)
    below = lower.bottom + (90 if slanted else 20 + LINE)
    parts.append(svg.text(WIDTH - EDGE, below, control, "small", "end"))
    parts += legend([label for label, _ in recorded], below)
    found = zip((result.conclusion for result in results), values, strict=True)
    words = f"Sweep of {control}: {listed(found) or 'no results'}"
    return svg.picture(below + LINE * (len(recorded) + 0.4), words, parts)


class Places(NamedTuple):
    """Where the values of a control lie; ``joined``: they are numbers, a line may join them."""

    names: tuple[str, ...]
    joined: bool
    octaves: bool
    ends: tuple[float, float]

    def of(self, value: Any) -> float:
        """The place of a value; nan for a word that is not among them."""
        if self.joined:
            if not _is_number(value) or (self.octaves and value <= 0):
                return math.nan
            return math.log(value) if self.octaves else float(value)
        return float(self.names.index(str(value))) if str(value) in self.names else math.nan


def _places(values: Sequence[Any], others: Sequence[Any]) -> Places:
    """Numbers on a scale, logarithmic where they span three octaves; words side by side."""
    names = tuple(map(str, values))
    if not values or not all(map(_is_number, values)):
        return Places(names, False, False, (-0.5, max(1, len(values)) - 0.5))
    octaves = min(values) > 0 and max(values) >= 8 * min(values)
    places = Places(names, True, octaves, (0.0, 1.0))
    known = [places.of(value) for value in [*values, *others]]
    known = [place for place in known if not math.isnan(place)]
    low, high = min(known), max(known)
    room = 0.04 * (high - low) or 1.0
    return places._replace(ends=(low - room, high + room))


def _value(result: Swept, control: str) -> Any:
    return result.arms[1].settings[control]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _sweep_scale(every: Sequence[Swept]) -> tuple[float, float]:
    """The logarithms of the ends of a scale for the speed-ups; an interval is cut at twice it."""
    known = [result.speedup for result in every if math.isfinite(result.speedup)]
    low, high = min(known, default=1.0), max(known, default=1.0)
    for result in every:
        for end in result.interval:
            if low / 2 <= end <= 2 * high:
                known.append(end)
    return -math.log(rung(1 / min([1.0, *known]))), math.log(rung(max([1.0, *known])))


# Throughputs that span more have a logarithmic scale.
WIDE = 30


def _rate_scale(
    results: Sequence[Swept], levels: Sequence[tuple[str, float]]
) -> tuple[float, float]:
    """The ends of a scale for the throughputs; where it does not begin at 0, their logarithms."""
    rates = [side.throughput for result in results for side in result.arms]
    rates = [rate for rate in [*rates, *(rate for _, rate in levels)] if math.isfinite(rate)]
    most = max(rates, default=1.0)
    if most > WIDE * min(rates, default=1.0) > 0:
        return math.log10(min(rates)) - 0.2, math.log10(most) + 0.2
    return 0.0, 1.1 * most


def _rates(
    results: Sequence[Swept],
    places: Places,
    control: str,
    box: Box,
    levels: Sequence[tuple[str, float]],
) -> list[Markup]:
    """The upper plot: the throughput of both sides, and the levels."""
    octaves = box.up[0] != 0
    unit = results[0].arms[0].unit if results else "samples"
    parts = level_ticks(box, (lambda power: short(10**power)) if octaves else short)
    parts.append(svg.text(box.left, box.top - 8, f"{unit} per second", "small"))
    for tone, place in zip(TONES, (360, 500), strict=False):
        parts.append(swatch(tone, box.top - 8, place))
        parts.append(svg.text(place + 20, box.top - 8, tone))

    def up(rate: float) -> float:
        return box.y(math.log10(rate) if octaves else rate)

    for number, tone in enumerate(TONES[:2]):
        points = []
        for result in results:
            rate = result.arms[number].throughput
            if math.isfinite(rate):
                points.append((box.x(places.of(_value(result, control))), up(rate)))
        parts += _joined(points, places.joined, tone)
    for label, rate in levels:
        parts.append(svg.path([(box.left, up(rate)), (box.right, up(rate))], "line faster", "5 4"))
        parts.append(svg.text(box.right, up(rate) + 16, label, "small", "end"))
    return parts


def _joined(
    points: Sequence[tuple[float, float]], joined: bool, tone: str, dashes: str = ""
) -> list[Markup]:
    if not points:
        return []
    parts = [svg.dots(points, f"end {tone}")]
    if joined and len(points) > 1:
        parts.insert(0, svg.path(points, f"line thin {tone}", dashes))
    return parts


def _speedups(results: Sequence[Swept], places: Places, control: str, box: Box) -> list[Markup]:
    """The lower plot: each speed-up, with its interval, in the colour of its verdict."""
    parts, points, dots = [], [], []
    for result in results:
        x = box.x(places.of(_value(result, control)))
        if not math.isfinite(result.speedup):
            parts.append(svg.text(x, box.bottom - 6, "×", "bold", "middle"))
            continue
        y = box.y(log_of(result.speedup))
        points.append((x, y))
        dots.append(svg.dots([(x, y)], f"end {result.tone}"))
        if is_known(result.interval):
            low, high = (box.y(log_of(end)) for end in result.interval)
            dots.append(svg.rect(x - 4, high, 8, max(2.0, low - high), f"band {result.tone}"))
    if places.joined and len(points) > 1:
        parts.append(svg.path(points, "line thin unclear"))
    return parts + dots


def _other_sweep(
    others: Sequence[Swept], places: Places, control: str, box: Box, number: int
) -> list[Markup]:
    """A recorded sweep: a muted line, or dots where values are words."""
    points = []
    for other in others:
        place = places.of(_value(other, control))
        if math.isfinite(place + other.speedup):
            points.append((box.x(place), box.y(log_of(other.speedup))))
    points.sort()
    return _joined(points, places.joined, "recorded", DASHES[number % len(DASHES)])


def _value_names(values: Sequence[Any], places: Places, box: Box, slanted: bool) -> list[Markup]:
    """The values below the plot; where there is no room for all, every so many."""
    parts = []
    last = -math.inf
    for value in values:
        x, y, words = box.x(places.of(value)), box.bottom + 20, svg.cut(str(value), 16)
        if slanted:
            name = svg.text(x, y, words, "small", "end")
            turned = f' transform="rotate(-25 {svg.number(x)} {svg.number(y)})"'
            parts.append(Markup(name.replace("<text", f"<text{turned}", 1)))
            continue
        half = LETTER * len(words) / 2
        if x - half > last:
            last = x + half + 6
            parts.append(svg.below(x, y, words))
    return parts
