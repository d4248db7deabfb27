"""18: every curve of a race, in the form of the moving picture's chart of losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, cycle

from labkit.charts import svg
from labkit.charts.plot import TONES, Box, field
from labkit.charts.svg import EDGE, LINE, WIDTH
from labkit.racing import RaceResult, RaceRun
from labkit.show import Markup
from labkit.text import format_short

LEFT, HEIGHT = 60.0, 200.0
# Room above the scale, for what has left it.
ROOF = 14.0
# Red and blue, as the balls of the moving picture; then as in other races.
HUES = ("slower", "candidate", *TONES[2:])
# A loss of so many times the first one is beyond the chart.
BEYOND = 3.0
# Of one curve.
MOST_POINTS = 300
TAU = 2 * math.pi
# The place of a number of steps, before it is put between the edges of a chart.
Scale = Callable[[float], float]
RAYS = [TAU * ray / 8 for ray in range(8)]


def curves(result: object) -> str:
    """The metric of every run by its steps, on a logarithmic scale: a function for a panel.

    A run whose metric is no finite number any more has exploded: a star at the upper edge marks its
    step. "" for all but a race to a small metric, such as a loss.
    """
    if not isinstance(result, RaceResult) or result.higher_is_better:
        return ""
    known = list(finite(result.runs))
    if not known or min(known) <= 0 or result.target <= 0:
        return ""
    hues = dict(zip(result.arms, cycle(HUES), strict=False))
    box, scale = box_of(result, min(known)), scale_of(result.runs)
    title = f"{result.metric} after each step, {result.seeds}"
    parts = [field(box._replace(top=box.top - ROOF)), *scales(box, scale)]
    parts.append(svg.text(LEFT, box.top - ROOF - 8, title, "small"))
    rows = {arm: in_words(result.of(arm)) for arm in result.arms}
    for number, (arm, words) in enumerate(rows.items(), 1):
        parts.append(svg.rect(EDGE, LINE * number - 11, 13, 13, f"fill {hues[arm]}"))
        parts += svg.named(LINE * number, arm, words, left=28)
        parts += chain.from_iterable(curve(run, box, hues[arm], scale) for run in result.of(arm))
    parts += target(result.target, box)
    parts += explosions(result.runs, box, scale)
    said = "; ".join(f"{arm}: {words}" for arm, words in rows.items())
    foot = box.bottom + 2 * LINE - 6
    parts += legend(foot)
    return svg.picture(foot + 12, f"{result.metric} of every run by step: {said}", parts)


def finite(runs: Sequence[RaceRun]) -> Iterator[float]:
    """All metrics that are numbers."""
    for run in runs:
        yield from (value for _, _, value in run.curve if math.isfinite(value))


def exploded(run: RaceRun) -> bool:
    """Whether its metric ended as no finite number."""
    return bool(run.curve) and not math.isfinite(run.curve[-1][2])


def in_words(runs: Sequence[RaceRun]) -> str:
    """What became of the runs of a side: ``4 arrive (steps 41–54)``, ``1 arrives, 3 explode``."""
    ended = {
        "arrive": [run for run in runs if run.reached],
        "explode": [run for run in runs if exploded(run)],
        "never arrive": [run for run in runs if not run.reached and not exploded(run)],
    }
    words = []
    for verb, those in ended.items():
        if not those:
            continue
        if len(those) == 1:
            verb = verb.replace("arrive", "arrives").replace("explode", "explodes")
        # Where a side's runs end in several ways there is no room for their steps.
        at = f" ({steps_of(those)})" if len(those) == len(runs) and "never" not in verb else ""
        words.append(f"{len(those)} {verb}{at}")
    return ", ".join(words)


def steps_of(runs: Sequence[RaceRun]) -> str:
    """``step 3``, or ``steps 41–54``: where their curves end."""
    ends = [run.curve[-1][0] for run in runs]
    low, high = min(ends), max(ends)
    return f"step {low}" if low == high else f"steps {low}–{high}"


# --------------------------------------------------------------------------------------- drawing


def box_of(result: RaceResult, least: float) -> Box:
    """Where the curves are drawn; its scale up is one of logarithms."""
    # Where one step is enough to explode, the lowest beginning is the usual one.
    began = min(next(finite([run]), math.inf) for run in result.runs)
    low, high = 0.8 * min(least, result.target), BEYOND * max(began, result.target)
    # No higher than what there is to see.
    high = min(high, 1.1 * max(*finite(result.runs), result.target))
    top = LINE * (len(result.arms) + 1) + ROOF + 8
    up = math.log(low), math.log(high)
    return Box(LEFT, top, WIDTH - EDGE, top + HEIGHT, across(result.runs), up)


def scale_of(runs: Sequence[RaceRun]) -> Scale:
    """How steps are drawn: by their logarithms where a run explodes, since that comes early."""
    return math.log if any(map(exploded, runs)) else float


def across(runs: Sequence[RaceRun]) -> tuple[float, float]:
    """The edges of the chart, on the scale of its steps."""
    steps = [step for run in runs for step, _, _ in run.curve]
    if scale_of(runs) is math.log:
        return math.log(0.9 * min(steps)), math.log(1.1 * max(steps))
    return 0, 1.03 * max(steps)


def scales(box: Box, scale: Scale) -> list[Markup]:
    """Round values of the metric at the left, steps below."""
    return [*levels(box), *steps_below(box, scale)]


def levels(box: Box) -> list[Markup]:
    """Round values of the metric at the left, on a scale of logarithms."""
    parts = []
    for power in range(-6, 7):
        for value in (digit * 10.0**power for digit in (1, 2, 3, 5)):
            if box.up[0] <= math.log(value) <= box.up[1]:
                y = box.y(math.log(value))
                parts.append(svg.path([(box.left, y), (box.right, y)], "grid"))
                parts.append(svg.text(box.left - 6, y + 5, format_short(value), "small", "end"))
    return parts


def steps_below(box: Box, scale: Scale = float) -> list[Markup]:
    """A few round numbers of steps."""
    marks = [digit * 10**power for power in range(9) for digit in (1, 2, 5)]
    low, high = box.across
    if scale is not math.log:
        pace = next(mark for mark in marks if high / mark <= 5)
        marks = list(range(0, int(high) + 1, pace))
    inside = [mark for mark in marks if low <= scale(mark) <= high]
    return [svg.below(box.x(scale(mark)), box.bottom + 20, str(mark)) for mark in inside]


def curve(
    run: RaceRun, box: Box, hue: str, scale: Scale = float, look: str = "line thin"
) -> list[Markup]:
    """One run, kept within the chart, and a mark at its end."""
    points = [(box.x(scale(step)), height(value, box)) for step, _, value in run.curve]
    if not points:
        return []
    every = math.ceil(len(points) / MOST_POINTS)
    parts = [svg.path(points[::-every][::-1], f"{look} {hue}")]
    if run.reached:
        return [*parts, svg.dots(points[-1:], f"end {hue}")]
    if exploded(run):
        return [*parts, star(*points[-1], f"line exploded {hue}")]
    return [*parts, cross(*points[-1], f"line never {hue}")]


def height(value: float, box: Box) -> float:
    """The place of a metric up the chart; its upper edge for what has exploded."""
    return box.y(math.log(value)) if math.isfinite(value) else box.top


def star(x: float, y: float, kind: str) -> Markup:
    """Eight rays."""
    number = svg.number
    rays = []
    for turn in RAYS:
        dx, dy = math.cos(turn), math.sin(turn)
        rays.append(f"M{number(x + 4 * dx)} {number(y + 4 * dy)}")
        rays.append(f"L{number(x + 11 * dx)} {number(y + 11 * dy)}")
    return svg.element("path", d="".join(rays), kind=kind)


def cross(x: float, y: float, kind: str) -> Markup:
    corners = f"M{svg.number(x - 4)} {svg.number(y - 4)}l8 8m0 -8l-8 8"
    return svg.element("path", d=corners, kind=kind)


def explosions(runs: Sequence[RaceRun], box: Box, scale: Scale = float) -> list[Markup]:
    """At which steps runs explode, beside the last of their stars."""
    those = [run for run in runs if exploded(run)]
    if not those:
        return []
    ends = [box.x(scale(run.curve[-1][0])) for run in those]
    right = max(ends)
    words = f"exploded: {steps_of(those)}"
    if right > (box.left + box.right) / 2:
        return [svg.text(min(ends) - 16, box.top + 24, words, "bold", "end")]
    return [svg.text(right + 16, box.top + 24, words, "bold")]


def target(value: float, box: Box) -> list[Markup]:
    """A dashed line, and below it its value: curves end at the line."""
    y = box.y(math.log(value))
    line = svg.path([(box.left, y), (box.right, y)], "one", "5 4")
    return [line, svg.text(box.left + 6, y + 18, f"target {value:g}")]


def legend(y: float) -> list[Markup]:
    """What the marks at the ends of curves mean."""
    kind = "line baseline"
    return [
        svg.dots([(EDGE + 8, y - 4)], "end baseline"),
        svg.text(EDGE + 22, y, "arrived", "small"),
        star(EDGE + 118, y - 4, kind),
        svg.text(EDGE + 136, y, "exploded", "small"),
        cross(EDGE + 250, y - 4, kind),
        svg.text(EDGE + 264, y, "never arrived", "small"),
        svg.text(WIDTH - EDGE, y, "steps", "small", "end"),
    ]
