"""The picture of a comparison: both sides, and below each pair of blocks as a dot."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from labkit.charts import svg
from labkit.charts.given import Timed
from labkit.charts.plot import Box, is_known, log_of, round_ratios, rung, times, upright
from labkit.charts.sides import SIDES, both_sides
from labkit.charts.svg import EDGE, LETTER, LINE, WIDTH
from labkit.show import Markup
from labkit.text import format_factor

# A picture with more of them is large and shows no more.
MOST_DOTS = 1000


def comparison(
    result: Timed,
    *,
    recorded: Sequence[tuple[str, Timed]] = (),
    guess: float | None = None,
) -> Markup:
    """Both sides as bars; below each pair of blocks as a dot, with interval and noise floor.

    Of more than 1,000 pairs every so many are dots.
    """
    parts = both_sides(result.speed_bars, result.peak_bars)
    known = [other.speedup for _, other in recorded if other.ratios]
    ends = [guess, *known] if guess else known
    top = SIDES + LINE
    box = Box(EDGE, top, WIDTH - EDGE, top + 84, _ratio_scale(result, ends))
    parts += _strip(result, box)
    for number, (label, other) in enumerate(recorded, 2):
        parts += _lane(label, other, box, box.bottom + number * LINE)
    if guess:
        parts += _guess(guess, box)
    return svg.picture(box.bottom + LINE * (len(recorded) + 1.4), result.sentence, parts)


def _ratio_scale(result: Timed, ends: Iterable[float]) -> tuple[float, float]:
    """The logarithms of the ends of a scale.

    What decides it: the bulk of the dots, since an outlier must not flatten the rest, the interval
    where it does not flatten them either, other machines, and the guess.
    """
    known = sorted(result.ratios) or [1.0]
    low, high = known[len(known) // 20], known[-1 - len(known) // 20]
    values = [low, high, *ends]
    for end in result.interval:
        if low / 2 <= end <= 2 * high:
            values.append(end)
    return -math.log(rung(1 / min(values))), math.log(rung(max(values)))


def _strip(result: Timed, box: Box) -> list[Markup]:
    """Floor, interval, dots, and the line of no difference."""
    parts = [svg.rect(box.left, box.top, box.right - box.left, box.bottom - box.top, "field")]
    if math.isfinite(result.noise_floor):
        ends = box.x(-result.noise_floor), box.x(result.noise_floor)
        parts.append(svg.rect(ends[0], box.top, ends[1] - ends[0], box.bottom - box.top, "floor"))
    parts += _ratio_ticks(box)
    if is_known(result.interval):
        parts.append(_band(result.interval, box, box.top, box.bottom, result.tone))
    every = math.ceil(len(result.ratios) / MOST_DOTS) or 1
    points = []
    for number, ratio in enumerate(result.ratios[::every]):
        # Each dot keeps its height while others come: parts of the golden ratio fill it evenly.
        part = (0.5 + number * 0.618034) % 1
        points.append((box.x(log_of(ratio)), box.top + 8 + part * (box.bottom - box.top - 16)))
    if points:
        parts.append(svg.dots(points, result.tone))
    if math.isfinite(result.speedup):
        parts.append(upright(box, box.x(log_of(result.speedup)), f"line middle {result.tone}"))
    above = box.top - 8
    parts.append(svg.text(box.left, above, "← slower", "small"))
    words = "each dot: a pair of blocks" if every == 1 else f"dots: one of {every} pairs of blocks"
    parts.append(svg.text(WIDTH / 2, above, words, "small", "middle"))
    parts.append(svg.text(box.right, above, "faster →", "small", "end"))
    return parts


def _band(interval: tuple[float, float], box: Box, top: float, bottom: float, tone: str) -> Markup:
    """An interval; one too narrow to be filled is still seen."""
    low, high = (box.x(log_of(end)) for end in interval)
    return svg.rect(low, top, max(2.0, high - low), bottom - top, f"band {tone}")


def _ratio_ticks(box: Box) -> list[Markup]:
    """A line at 1, and as many round ratios as have room for their names."""
    parts: list[Markup] = []
    taken: list[float] = []
    for ratio in round_ratios(*box.across):
        x, words = box.x(math.log(ratio)), times(ratio)
        if all(abs(x - other) > 76 for other in taken):
            taken.append(x)
            parts.append(upright(box, x, "one" if ratio == 1 else "grid"))
            parts.append(svg.below(x, box.bottom + 20, words))
    return parts


def _guess(guess: float, box: Box) -> list[Markup]:
    """The reader's guess: a dashed line, and its name on the side where there is room."""
    x = box.x(log_of(guess))
    right = x < WIDTH / 2
    words = f"your guess {format_factor(guess)}×"
    place, anchor = (x + 6, "start") if right else (x - 6, "end")
    parts = [upright(box, x, "line guess", "5 4")]
    parts.append(svg.text(place, box.top + 20, words, "guess", anchor))
    return parts


def _lane(label: str, other: Timed, box: Box, y: float) -> list[Markup]:
    """A recorded machine: its interval and its speed-up on the strip's scale, and its name."""
    if not other.ratios:
        return [svg.text(EDGE, y, f"no pairs: {label}", "recorded")]
    x = box.x(log_of(other.speedup))
    parts = [svg.rect(x - 2, y - 15, 4, 20, "fill recorded")]
    if is_known(other.interval):
        parts.append(_band(other.interval, box, y - 13, y + 3, "recorded"))
    place, anchor, room = x + 10, "start", WIDTH - x - 10
    if x > WIDTH / 2:
        place, anchor, room = x - 10, "end", x - 10
    words = f"{format_factor(other.speedup)}× {label}"
    parts.append(svg.text(place, y, words, "recorded", anchor, int(room / LETTER)))
    return parts
