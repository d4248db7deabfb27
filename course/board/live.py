"""What is known of a measurement while it goes on, as a race that a reader can watch.

What is timed in turn is drawn as two runners, each at the pace that was measured so far, and a dot
for each pair. What is raced to an accuracy is drawn as it learns. Ahead is always to the right, or
higher up: longer is faster.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import median

from labkit.charts import svg
from labkit.charts.plot import Box, most_of, upright
from labkit.charts.plot import field as paper
from labkit.show import Markup
from labkit.text import format_bytes, format_factor, format_share

NAMES = ("without it", "with it")
TONES = ("baseline", "candidate")
# The track of the runners, its end, and how far two lanes are apart.
LEFT, RIGHT, LANE = 96.0, 624.0, 30.0
# A pair that is so many times as fast lies at the edge of its strip, or further in.
EDGE = 1.5
# Of a side that is as many times as fast nobody says that it is ahead.
EVEN = 1.02
# Seconds of the shortest axis.
SHORTEST = 10.0


@dataclass(frozen=True)
class Lap:
    """One training: whose, its seed, and its accuracy after so many seconds."""

    switched: bool
    seed: int
    points: tuple[tuple[float, float], ...] = ()
    begin: float = 0.0
    over: bool = False

    @property
    def accuracy(self) -> float:
        """The latest."""
        return self.points[-1][1] if self.points else 0.0

    def at(self, seconds: float) -> float:
        """The accuracy that it had after so many seconds."""
        return max((each for when, each in self.points if when <= seconds), default=0.0)


@dataclass
class Live:
    """``seconds`` have passed; ``rates`` are images per second, and ``peaks`` bytes, of both sides.

    ``ratios`` are those of the pairs, ``laps`` the trainings of a race to ``target``.
    """

    seconds: float = 0.0
    doing: str = "reading the images"
    rates: tuple[float, float] = (math.nan, math.nan)
    peaks: tuple[float, ...] = ()
    ratios: tuple[float, ...] = ()
    laps: list[Lap] = field(default_factory=list)
    target: float = math.nan
    # Of the epoch that goes on: the steps done, and all.
    steps: tuple[int, int] = (0, 0)
    # Whether one script trains, beside no other.
    alone: bool = False

    @property
    def factor(self) -> float:
        """How many times as fast the switched side is so far; nan while that is not known."""
        if self.ratios:
            return median(self.ratios)
        return self.rates[1] / self.rates[0]

    def words(self) -> str:
        """How it stands, in a sentence; empty before anything is known."""
        if self.laps:
            return _race_in_words(self.laps, self.steps, self.alone)
        texts = [_bytes_in_words(self.peaks)] if self.peaks else []
        if math.isfinite(self.factor):
            pairs = (
                f" after {_count(len(self.ratios), 'pair')}" if self.ratios else " at first sight"
            )
            texts.append(f"{_ahead(self.factor)}{pairs}.")
        return " ".join(texts)


def picture(live: Live, part: float, before: float, now: float = 0.0) -> Markup:
    """The race, of which so large a ``part`` of the time is over, and ``before`` at the last look.

    ``now`` is the moment on the clock of the laps. Empty while there is nothing to see.
    """
    if live.laps:
        return _curves(live, now)
    if not math.isfinite(live.factor):
        return _bytes(live) if live.peaks else Markup()
    return _track(live, part, before)


@cache
def styles() -> Markup:
    """Those of what moves."""
    return Markup(
        f"<style>{Path(__file__).with_name('live.css').read_text(encoding='utf-8')}</style>"
    )


def _track(live: Live, part: float, before: float) -> Markup:
    """Two runners; who is as fast as the faster one reaches the end when the time is over."""
    fastest = max(live.rates)
    parts: list[str] = [styles(), svg.path([(RIGHT, 4), (RIGHT, 2 * LANE)], "one", "4 4")]
    for lane, (name, tone, rate) in enumerate(zip(NAMES, TONES, live.rates, strict=True)):
        y = LANE * (lane + 0.5) + 4
        parts += [svg.text(0, y + 4, name), svg.path([(LEFT, y), (RIGHT, y)], "grid")]
        ends = [LEFT + (RIGHT - LEFT) * each * rate / fastest for each in (before, part)]
        parts.append(_runner(ends[0], ends[1], y, tone))
    height = 2 * LANE + 8
    if live.ratios:
        parts += _pairs(live.ratios, height + 12)
        height += 52
    return svg.picture(height, live.words(), parts)


def _bytes(live: Live) -> Markup:
    """A bar for each side whose bytes are counted, before anything is timed."""
    parts, most = [], most_of(live.peaks)
    for lane, (name, tone, peak) in enumerate(zip(NAMES, TONES, live.peaks, strict=False)):
        y = LANE * lane + 6
        parts.append(svg.text(0, y + 14, name))
        parts.append(svg.rect(LEFT, y, (RIGHT - LEFT) * peak / most, 18, f"fill {tone}"))
        parts.append(svg.text(LEFT + 8, y + 14, format_bytes(peak)))
    return svg.picture(2 * LANE + 4, live.words(), parts)


def _runner(before: float, after: float, y: float, tone: str) -> Markup:
    """A disc that glides from where it was to where it is."""
    disc = svg.element("circle", cx="0", cy=svg.number(y), r="9", kind=f"fill {tone}")
    style = f"--from:{svg.number(before)}px;--to:{svg.number(after)}px"
    return svg.element("g", disc, kind="runner", style=style)


def _pairs(ratios: Sequence[float], top: float) -> list[Markup]:
    """A dot for each pair: to the right of the line where the switch was faster."""
    edge = math.log(max(EDGE, *ratios, *(1 / each for each in ratios if each > 0)))
    middle, half = (LEFT + RIGHT) / 2, (RIGHT - LEFT) / 2 - 8
    parts = [
        svg.text(0, top + 4, "each pair"),
        svg.rect(LEFT, top - 10, RIGHT - LEFT, 20, "field"),
        svg.path([(middle, top - 12), (middle, top + 12)], "one"),
        svg.text(LEFT, top + 27, "slower with it", "small"),
        svg.text(RIGHT, top + 27, "faster with it", "small", "end"),
    ]
    for tone in ("slower", "same", "faster"):
        places = [
            (middle + half * math.log(each) / edge, top)
            for each in ratios
            if each > 0 and _tone(each) == tone
        ]
        if places:
            parts.append(svg.dots(places, f"end {tone}"))
    return parts


def _tone(ratio: float) -> str:
    if 1 / EVEN <= ratio <= EVEN:
        return "same"
    return "faster" if ratio > 1 else "slower"


def _curves(live: Live, now: float) -> Markup:
    """Accuracy over the seconds of each training; the one that goes on has a disc at its end."""
    latest = live.laps[-1]
    reach = 0.0 if latest.over else max(0.0, now - latest.begin)
    longest = _axis(max(reach, most_of(when for lap in live.laps for when, _ in lap.points)))
    best = most_of(lap.accuracy for lap in live.laps)
    box = Box(LEFT, 8, RIGHT, 118, (0.0, longest), (0.0, 1.15 * max(best, live.target)))
    goal = box.y(live.target)
    parts: list[str] = [styles(), paper(box)]
    parts.append(svg.path([(LEFT, goal), (RIGHT, goal)], "one", "4 4"))
    parts.append(svg.text(0, goal + 4, f"goal {format_share(live.target)}"))
    parts.append(svg.text(0, box.bottom, "0 % right", "small"))
    parts.append(svg.text(RIGHT, box.bottom + 18, f"{longest:.0f} s", "small", "end"))
    for lap in live.laps:
        now_run = lap.seed == latest.seed
        tone = TONES[lap.switched]
        points = [(box.x(0), box.y(0)), *((box.x(x), box.y(y)) for x, y in lap.points)]
        parts.append(svg.path(points, f"line {tone}" if now_run else f"line thin {tone}"))
    at = box.x(max([reach, *(when for when, _ in latest.points)]))
    parts.append(upright(box, at, "grid"))
    tone = TONES[latest.switched]
    parts.append(_runner(at, at, box.y(latest.accuracy), tone))
    parts += [] if live.alone else _legend(box.bottom + 18)
    return svg.picture(box.bottom + 26, live.words(), parts)


def _axis(seconds: float) -> float:
    """The end of the axis: it jumps now and then, so that the runner moves along it."""
    return SHORTEST * 2 ** max(0, math.ceil(math.log2(max(seconds, 1e-9) / SHORTEST)))


def _legend(y: float) -> list[Markup]:
    parts = []
    for number, (name, tone) in enumerate(zip(NAMES, TONES, strict=True)):
        x = LEFT + 130 * number
        parts.append(svg.path([(x, y - 4), (x + 24, y - 4)], f"line {tone}"))
        parts.append(svg.text(x + 30, y, name, "small"))
    return parts


def _race_in_words(laps: Sequence[Lap], steps: tuple[int, int], alone: bool = False) -> str:
    """``Seed 2, with it: 24 % right after 8 s; without it had 18 % by then.``"""
    lap = laps[-1]
    words = "Your script: " if alone else f"Seed {lap.seed + 1}, {NAMES[lap.switched]}: "
    if not lap.points:
        return f"{words}first pass, batch {steps[0]} of {steps[1]}."
    seconds = lap.points[-1][0]
    words += f"{format_share(lap.accuracy)} right after {seconds:.0f} s"
    other = [each for each in laps if (each.seed, each.switched) == (lap.seed, not lap.switched)]
    if not other:
        return f"{words}."
    had = other[0].at(seconds)
    tone = "level" if had == lap.accuracy else "ahead" if lap.accuracy > had else "behind"
    return f"{words}, {tone}: {NAMES[not lap.switched]} had {format_share(had)} by then."


def _ahead(factor: float) -> str:
    if _tone(factor) == "same":
        return "Neck and neck"
    name = NAMES[factor > 1]
    return f"Ahead: {name}, {format_factor(max(factor, 1 / factor))} times as fast"


def _bytes_in_words(peaks: Sequence[float]) -> str:
    """The peaks that were counted so far."""
    told = [f"{format_bytes(each)} {name}" for each, name in zip(peaks, NAMES, strict=False)]
    return f"Memory at the peak: {', '.join(told)}."


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"
