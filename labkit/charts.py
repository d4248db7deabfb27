"""The one picture of each result, as SVG.

A panel shows it live, the output of a cell keeps it, pages show the same. Each function takes a
partial result, too, and gives each kind of picture its height beforehand: nothing jumps. Sizes are
parts of the width there is; ink and paper are those of the page. Recorded runs of other machines,
``recorded``, are pairs of a label and a result: they are muted.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from labkit.show import FARTHEST, Bar, Markup, element
from labkit.text import format_bytes, format_factor, format_rate, listed

WIDTH, EDGE, LINE = 640.0, 8.0, 26.0
# About as many letters have room in a line of a narrow picture.
LETTERS = 56
# A picture with more of them is large and shows no more.
MOST_DOTS = 1000
# A scale of ratios ends at one of these, or at its inverse: it grows in few steps.
RUNGS = (1.02, 1.05, 1.1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)
DASHES = ("7 4", "2 3", "9 3 2 3")
TONES = ("baseline", "candidate", "arm3", "arm4", "arm5", "arm6")


class Timed(Protocol):
    """Two sides that were timed, as `labkit.results.Comparison`."""

    @property
    def sentence(self) -> str: ...
    @property
    def verdict(self) -> str: ...
    @property
    def speed_bars(self) -> Sequence[Bar]: ...
    @property
    def peak_bars(self) -> Sequence[Bar]: ...
    @property
    def ratios(self) -> Sequence[float]: ...
    @property
    def speedup(self) -> float: ...
    @property
    def interval(self) -> tuple[float, float]: ...
    @property
    def noise_floor(self) -> float: ...


class Side(Protocol):
    """One side of a comparison in a sweep, as `labkit.results.Measurement`."""

    @property
    def settings(self) -> dict[str, Any]: ...
    @property
    def throughput(self) -> float: ...
    @property
    def unit(self) -> str: ...


class Swept(Protocol):
    """One comparison of a sweep."""

    @property
    def verdict(self) -> str: ...
    @property
    def speedup(self) -> float: ...
    @property
    def interval(self) -> tuple[float, float]: ...

    @property
    def conclusion(self) -> str: ...
    @property
    def arms(self) -> tuple[Side, Side]: ...


class Run(Protocol):
    """One training of a race, as `labkit.racing.RaceRun`."""

    @property
    def arm(self) -> str: ...
    @property
    def curve(self) -> Sequence[tuple[int, float, float]]: ...
    @property
    def reached(self) -> bool: ...


class Raced(Protocol):
    """A race, as `labkit.racing.RaceResult`; it may have no runs yet."""

    @property
    def sentence(self) -> str: ...
    @property
    def metric(self) -> str: ...
    @property
    def target(self) -> float: ...
    @property
    def higher_is_better(self) -> bool: ...
    @property
    def arms(self) -> Sequence[str]: ...
    @property
    def runs(self) -> Sequence[Run]: ...
    def arrival(self, arm: str) -> str: ...


class Step(Protocol):
    """The memory of one step, as `labkit.memory_timeline.Timeline`."""

    @property
    def alive(self) -> Sequence[int]: ...
    @property
    def parts(self) -> Sequence[tuple[int, str]]: ...
    @property
    def before(self) -> int: ...
    @property
    def peak_text(self) -> str: ...


class Remembered(Protocol):
    """What is alive when, of two sides, as `labkit.memory_timeline.MemoryComparison`."""

    @property
    def sentence(self) -> str: ...
    @property
    def bars(self) -> Sequence[Bar]: ...
    @property
    def arms(self) -> tuple[Step, Step]: ...


class Box(NamedTuple):
    """Where a plot lies, and the values at its edges: ``x`` and ``y`` keep within it."""

    left: float
    top: float
    right: float
    bottom: float
    across: tuple[float, float]
    up: tuple[float, float] = (0.0, 1.0)

    def x(self, value: float) -> float:
        """The place of a value along the plot."""
        return self.left + (self.right - self.left) * _part(value, *self.across)

    def y(self, value: float) -> float:
        """The place of a value up the plot."""
        return self.bottom - (self.bottom - self.top) * _part(value, *self.up)


def comparison(
    result: Timed,
    *,
    recorded: Sequence[tuple[str, Timed]] = (),
    guess: float | None = None,
) -> Markup:
    """Both sides as bars; below each pair of blocks as a dot, with interval and noise floor.

    Of more than 1,000 pairs every so many are dots.
    """
    parts = _sides(result.speed_bars, result.peak_bars)
    known = [other.speedup for _, other in recorded if other.ratios]
    ends = [guess, *known] if guess else known
    top = SIDES + LINE
    box = Box(EDGE, top, WIDTH - EDGE, top + 84, _ratio_scale(result, ends))
    parts += _strip(result, box)
    for number, (label, other) in enumerate(recorded, 2):
        parts += _lane(label, other, box, box.bottom + number * LINE)
    if guess:
        parts += _guess(guess, box)
    return _picture(box.bottom + LINE * (len(recorded) + 1.4), result.sentence, parts)


def sweep(
    results: Sequence[Swept],
    control: str,
    *,
    recorded: Sequence[tuple[str, Sequence[Swept]]] = (),
) -> Markup:
    """Over the values of the swept control: the throughput of both sides, and the speed-up."""
    values = [_value(result, control) for result in results]
    others = [other for _, every in recorded for other in every]
    places = _places(values, [_value(other, control) for other in others])
    most = 1.1 * _most(side.throughput for result in results for side in result.arms) or 1.0
    upper = Box(72, LINE + 8, WIDTH - EDGE, 164, places.ends, (0, most))
    scale = _sweep_scale([*results, *others])
    lower = Box(72, 164 + 1.8 * LINE, WIDTH - EDGE, 350, places.ends, scale)
    parts = [*_rates(results, places, control, upper), *_ratio_levels(lower)]
    parts.append(_text(lower.left, lower.top - 8, "speed-up, 95 % interval", "small"))
    for number, (_, every) in enumerate(recorded):
        parts += _other_sweep(every, places, control, lower, number)
    parts += _speedups(results, places, control, lower)
    slanted = not places.joined and sum(len(name) + 2 for name in places.names) > LETTERS - 12
    parts += _value_names(values, places, lower, slanted)
    below = lower.bottom + (90 if slanted else 20 + LINE)
    parts.append(_text(WIDTH - EDGE, below, control, "small", "end"))
    parts += _legend([label for label, _ in recorded], below)
    found = zip((result.conclusion for result in results), values, strict=True)
    words = f"Sweep of {control}: {listed(found) or 'no results'}"
    return _picture(below + LINE * (len(recorded) + 0.4), words, parts)


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
    seconds = _most(point[1] for run in [*runs, *others] for point in run.curve)
    ends = _metric_scale(result.target, [*runs, *others])
    box = Box(72, top, WIDTH - EDGE, top + 220, (0, 1.03 * (seconds or 1)), ends)
    worst = box.bottom if result.higher_is_better else box.top
    parts = _axes(box, result.metric)
    for number, arm in enumerate(arms, 1):
        parts.append(_swatch(tones[arm], LINE * number))
        words = result.arrival(arm) if arm in result.arms else ""
        parts += _line_of_words(arm, words, LINE * number, 28)
    for number, (_, other) in enumerate(recorded):
        parts += _other_race(other, box, number)
    for run in runs:
        parts += _curve(run, box, tones[run.arm], worst, run is going)
    parts += _target(result.target, box)
    below = box.bottom + 2 * LINE
    parts.append(_text(EDGE, below, "● arrived  × did not  ▲ beyond", "small"))
    parts.append(_text(WIDTH - EDGE, below, "training seconds", "small", "end"))
    parts += _legend([label for label, _ in recorded], below)
    return _picture(below + LINE * (len(recorded) + 0.4), result.sentence, parts)


def memory(result: Remembered) -> Markup:
    """What is alive when, in one step of each side, on one scale; the peak is marked."""
    parts = _sides(result.bars, ())
    most = 1.25 * (_most(size for side in result.arms for size in side.alive) or 1)
    middle, top = WIDTH / 2 + 32, SIDES - 8
    lefts, width = (80, middle), WIDTH - EDGE - middle
    for side, left, tone in zip(result.arms, lefts, TONES, strict=False):
        box = Box(left, top, left + width, top + 170, (0, max(1, len(side.alive))), (0, most))
        parts += _timeline(side, box, tone)
    for size in (0, most / 2.5, most / 1.25):
        y = box.y(size)
        parts.append(_text(72, y + 5, format_bytes(size) if size else "0", "small", "end"))
    words = "bytes alive after each operator of a step"
    parts.append(_text(80, box.bottom + 3 * LINE, words, "small"))
    return _picture(box.bottom + 3.4 * LINE, result.sentence, parts)


def themed(picture: Markup, *, dark: bool) -> Markup:
    """The picture in one of the themes, for a file that a page shows beside its text."""
    theme = "dark" if dark else "light"
    return Markup(picture.replace("<svg ", f'<svg data-theme="{theme}" ', 1))


# Blocks of pictures


def _picture(height: float, words: str, parts: Iterable[str]) -> Markup:
    style = Markup(f"<style>{_styles()}</style>")
    return element(
        "svg",
        style,
        *parts,
        kind="svg",
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH:.0f} {height:.0f}",
        role="img",
        aria_label=words,
    )


@cache
def _styles() -> str:
    lines = Path(__file__).with_name("chart.css").read_text(encoding="utf-8").splitlines()
    return " ".join(line.strip() for line in lines)


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> Markup:
    return element("text", words, kind=kind, x=_n(x), y=_n(y), text_anchor=anchor)


def _rect(x: float, y: float, width: float, height: float, kind: str) -> Markup:
    size = {"width": _n(max(0.0, width)), "height": _n(max(0.0, height))}
    return element("rect", x=_n(x), y=_n(y), **size, kind=kind)


def _path(points: Iterable[tuple[float, float]], kind: str, dashes: str = "") -> Markup:
    """A line through the points."""
    d = "M" + "L".join(f"{_n(x)} {_n(y)}" for x, y in points)
    return element("path", d=d, kind=kind, **({"stroke_dasharray": dashes} if dashes else {}))


def _dots(points: Iterable[tuple[float, float]], kind: str) -> Markup:
    """Round dots: lines without a length."""
    d = "".join(f"M{_n(x)} {_n(y)}h0" for x, y in points)
    return element("path", d=d, kind=f"dots {kind}")


def _line_of_words(label: str, words: str, y: float, left: float = EDGE) -> list[Markup]:
    """A label, its end cut where it would meet the words at the right."""
    room = int(LETTERS * (1 - left / WIDTH)) - len(words)
    parts = [_text(left, y, _cut(label, room), "bold")]
    if words:
        parts.append(_text(WIDTH - EDGE, y, words, "", "end"))
    return parts


def _swatch(tone: str, y: float) -> Markup:
    return _rect(EDGE, y - 11, 13, 13, f"fill {tone}")


def _legend(labels: Sequence[str], above: float) -> list[Markup]:
    """Recorded machines, a line each: a dashed stroke and a name."""
    parts = []
    for number, label in enumerate(labels):
        y = above + LINE * (number + 1)
        dashes = DASHES[number % len(DASHES)]
        parts.append(_path([(EDGE, y - 5), (EDGE + 44, y - 5)], "line recorded", dashes))
        parts.append(_text(EDGE + 52, y, _cut(label, LETTERS - 6), "recorded"))
    return parts


# The height of both sides' bars.
SIDES = 140.0


def _sides(speeds: Sequence[Bar], peaks: Sequence[Bar]) -> list[Markup]:
    """Each side: its name and figures, its bar, and below a thin one for its memory."""
    most = _most(end for bar in speeds for end in (bar.value, *(bar.interval or ())))
    most_memory = _most(bar.value for bar in peaks)
    parts = []
    for number, bar in enumerate(speeds):
        y = 20 + 64.0 * number
        words = bar.text
        if peaks:
            words += f" · {peaks[number].text}"
        parts += _named(bar, words, y)
        parts += _bar(bar, most, y + 8, 18)
        if peaks:
            parts += _bar(peaks[number], most_memory, y + 28, 5)
    return parts


def _named(bar: Bar, words: str, y: float) -> list[Markup]:
    """The label of a side with its note, and the words of its bar at the right."""
    name = element("tspan", bar.label, kind="bold")
    note = _cut(bar.note, LETTERS - len(bar.label) - len(words) - 3)
    rest = element("tspan", f" {note}" if note else "", kind="small")
    full = element("title", f"{bar.label} {bar.note}")
    parts = [element("text", name, rest, full, x=_n(EDGE), y=_n(y), text_anchor="start")]
    parts.append(_text(WIDTH - EDGE, y, words, "", "end"))
    return parts


def _bar(bar: Bar, most: float, y: float, height: float) -> list[Markup]:
    """A bar from the left edge on, and its interval over its end."""
    wide = WIDTH - 2 * EDGE
    parts = [_rect(EDGE, y, wide, height, "track")]
    if not most:
        return parts
    if math.isfinite(bar.value):
        parts.append(_rect(EDGE, y, wide * bar.value / most, height, f"fill {bar.tone}"))
    low, high = bar.interval or (math.nan, math.nan)
    if math.isfinite(low + high):
        ends, middle = [EDGE + wide * end / most for end in (low, high)], y + height / 2
        for end in ends:
            parts.append(_path([(end, y + 4), (end, y + height - 4)], "whisker"))
        parts.append(_path([(end, middle) for end in ends], "whisker"))
    return parts


# A comparison's strip of ratios


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
    return -math.log(_rung(1 / min(values))), math.log(_rung(max(values)))


def _rung(value: float) -> float:
    return next((rung for rung in RUNGS if rung >= value), RUNGS[-1])


def _strip(result: Timed, box: Box) -> list[Markup]:
    """Floor, interval, dots, and the line of no difference."""
    parts = [_rect(box.left, box.top, box.right - box.left, box.bottom - box.top, "track")]
    if math.isfinite(result.noise_floor):
        ends = box.x(-result.noise_floor), box.x(result.noise_floor)
        parts.append(_rect(ends[0], box.top, ends[1] - ends[0], box.bottom - box.top, "floor"))
    parts += _ratio_ticks(box)
    if _known(result.interval):
        parts.append(_band(result.interval, box, box.top, box.bottom, result.verdict))
    every = math.ceil(len(result.ratios) / MOST_DOTS) or 1
    points = []
    for number, ratio in enumerate(result.ratios[::every]):
        # Each dot keeps its height while others come: parts of the golden ratio fill it evenly.
        part = (0.5 + number * 0.618034) % 1
        points.append((box.x(_log(ratio)), box.top + 8 + part * (box.bottom - box.top - 16)))
    if points:
        parts.append(_dots(points, result.verdict))
    if math.isfinite(result.speedup):
        parts.append(_upright(box, box.x(_log(result.speedup)), f"line middle {result.verdict}"))
    above = box.top - 8
    parts.append(_text(box.left, above, "← slower", "small"))
    parts.append(_text(WIDTH / 2, above, "each dot: a pair of blocks", "small", "middle"))
    parts.append(_text(box.right, above, "faster →", "small", "end"))
    return parts


def _band(interval: tuple[float, float], box: Box, top: float, bottom: float, tone: str) -> Markup:
    """An interval; one too narrow to be filled is still seen."""
    low, high = (box.x(_log(end)) for end in interval)
    return _rect(low, top, max(2.0, high - low), bottom - top, f"band {tone}")


def _upright(box: Box, x: float, kind: str, dashes: str = "") -> Markup:
    return _path([(x, box.top), (x, box.bottom)], kind, dashes)


def _ratio_ticks(box: Box) -> list[Markup]:
    """A line at 1, and as many round ratios as have room for their names."""
    parts: list[Markup] = []
    taken: list[float] = []
    for ratio in _round_ratios(*box.across):
        x, words = box.x(math.log(ratio)), f"{ratio:.3g}×"
        if all(abs(x - other) > 76 for other in taken):
            taken.append(x)
            parts.append(_upright(box, x, "one" if ratio == 1 else "grid"))
            anchor = "start" if x < 40 else "end" if x > WIDTH - 40 else "middle"
            parts.append(_text(x, box.bottom + 20, words, "small", anchor))
    return parts


def _guess(guess: float, box: Box) -> list[Markup]:
    """The reader's guess: a dashed line, and its name on the side where there is room."""
    x = box.x(_log(guess))
    right = x < WIDTH / 2
    words = f"your guess {format_factor(guess)}×"
    place, anchor = (x + 6, "start") if right else (x - 6, "end")
    parts = [_upright(box, x, "line guess", "5 4")]
    parts.append(_text(place, box.top + 20, words, "guess", anchor))
    return parts


def _lane(label: str, other: Timed, box: Box, y: float) -> list[Markup]:
    """A recorded machine: its interval and its speed-up on the strip's scale, and its name."""
    words = f"{label}: no pairs"
    parts = []
    x = WIDTH
    if other.ratios:
        words = f"{label}: {format_factor(other.speedup)}×"
        x = box.x(_log(other.speedup))
        if _known(other.interval):
            parts.append(_band(other.interval, box, y - 13, y + 3, "recorded"))
        parts.append(_rect(x - 2, y - 15, 4, 20, "fill recorded"))
    place, anchor = (x - 10, "end") if x > WIDTH / 2 else (x + 10, "start")
    parts.append(_text(place, y, _cut(words, LETTERS), "recorded", anchor))
    return parts


# A sweep's two plots


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
    return -math.log(_rung(1 / min([1.0, *known]))), math.log(_rung(max([1.0, *known])))


def _rates(results: Sequence[Swept], places: Places, control: str, box: Box) -> list[Markup]:
    """The upper plot: the throughput of both sides."""
    unit = results[0].arms[0].unit if results else "samples"
    parts = _level_ticks(box, lambda rate: format_rate(rate, unit).split("/")[0].removesuffix(unit))
    parts.append(_text(box.left, box.top - 8, f"{unit} per second", "small"))
    place = WIDTH - EDGE
    for name, tone in zip(TONES[1::-1], TONES[1::-1], strict=True):
        parts.append(_text(place, box.top - 8, name, "", "end"))
        place -= 12.0 * len(name)
        parts.append(_rect(place - 10, box.top - 19, 13, 13, f"fill {tone}"))
        place -= 24
    for number, tone in enumerate(TONES[:2]):
        points = []
        for result in results:
            rate = result.arms[number].throughput
            if math.isfinite(rate):
                points.append((box.x(places.of(_value(result, control))), box.y(rate)))
        parts += _joined(points, places.joined, tone)
    return parts


def _joined(
    points: Sequence[tuple[float, float]], joined: bool, tone: str, dashes: str = ""
) -> list[Markup]:
    if not points:
        return []
    parts = [_dots(points, tone)]
    if joined and len(points) > 1:
        parts.insert(0, _path(points, f"line thin {tone}", dashes))
    return parts


def _speedups(results: Sequence[Swept], places: Places, control: str, box: Box) -> list[Markup]:
    """The lower plot: each speed-up, with its interval, in the colour of its verdict."""
    parts, points, dots = [], [], []
    for result in results:
        x = box.x(places.of(_value(result, control)))
        if not math.isfinite(result.speedup):
            parts.append(_text(x, box.bottom - 6, "×", "bold", "middle"))
            continue
        y = box.y(_log(result.speedup))
        points.append((x, y))
        dots.append(_dots([(x, y)], result.verdict))
        if _known(result.interval):
            low, high = (box.y(_log(end)) for end in result.interval)
            dots.append(_rect(x - 4, high, 8, max(2.0, low - high), f"band {result.verdict}"))
    if places.joined and len(points) > 1:
        parts.append(_path(points, "line thin unclear"))
    return parts + dots


def _other_sweep(
    others: Sequence[Swept], places: Places, control: str, box: Box, number: int
) -> list[Markup]:
    """A recorded sweep: a muted line, or dots where values are words."""
    points = []
    for other in others:
        place = places.of(_value(other, control))
        if math.isfinite(place + other.speedup):
            points.append((box.x(place), box.y(_log(other.speedup))))
    points.sort()
    return _joined(points, places.joined, "recorded", DASHES[number % len(DASHES)])


def _value_names(values: Sequence[Any], places: Places, box: Box, slanted: bool) -> list[Markup]:
    """The values below the plot; where there is no room for all, every so many."""
    parts = []
    last = -math.inf
    for value in values:
        x, y, words = box.x(places.of(value)), box.bottom + 20, _cut(str(value), 16)
        if slanted:
            name = _text(x, y, words, "small", "end")
            turned = f' transform="rotate(-25 {_n(x)} {_n(y)})"'
            parts.append(Markup(name.replace("<text", f"<text{turned}", 1)))
            continue
        wide = 11.0 * len(words)
        if x - wide / 2 > last:
            last = x + wide / 2 + 6
            parts.append(_text(x, y, words, "small", "middle"))
    return parts


# A race's plot


def _metric_scale(target: float, runs: Sequence[Run]) -> tuple[float, float]:
    """The ends of a scale that holds the target and the curves, save where one explodes.

    A curve counts up to three times as far from the target as a quarter of the curves stay.
    """
    far = []
    for run in runs:
        known = [abs(point[2] - target) for point in run.curve if math.isfinite(point[2])]
        if known:
            far.append(max(known))
    most = 3 * sorted(far)[(len(far) - 1) // 4] if far else abs(target) or 1.0
    values = [target]
    for run in runs:
        values += [v for *_, v in run.curve if math.isfinite(v) and abs(v - target) <= most]
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
        parts.insert(0, _path(points, f"line {tone}" if going else f"line thin {tone}"))
    end = points[-1] if points else (box.left, worst)
    if run.reached or going:
        return [*parts, _dots([end], f"end {tone}")]
    return [*parts, _cross(*end, tone)]


def _beyond(x: float, y: float, box: Box, tone: str) -> Markup:
    """A triangle that points out of the plot."""
    tip, base = (-2, 10) if y < (box.top + box.bottom) / 2 else (2, -10)
    d = f"M{_n(x)} {_n(y + tip)}L{_n(x - 6)} {_n(y + base)}L{_n(x + 6)} {_n(y + base)}Z"
    return element("path", d=d, kind=f"beyond fill {tone}")


def _cross(x: float, y: float, tone: str) -> Markup:
    arms = f"M{_n(x - 4)} {_n(y - 4)}l8 8m0 -8l-8 8"
    return element("path", d=arms, kind=f"cross line {tone}")


def _target(target: float, box: Box) -> list[Markup]:
    y = box.y(target)
    parts = [_path([(box.left, y), (box.right, y)], "one", "5 4")]
    # Away from the nearer edge.
    side = -7 if y > box.top + 30 else 20
    parts.append(_text(box.right - 4, y + side, f"target {target:g}", "", "end"))
    return parts


def _other_race(other: Raced, box: Box, number: int) -> list[Markup]:
    """A recorded race: its curves muted, each clipped at the edges."""
    parts = []
    for run in other.runs:
        points = [(box.x(at), box.y(value)) for _, at, value in run.curve if math.isfinite(value)]
        if points:
            parts.append(_path(points, "line thin recorded", DASHES[number % len(DASHES)]))
    return parts


# A step's memory


def _timeline(side: Step, box: Box, tone: str) -> list[Markup]:
    """What is alive after each operator, on top of what was there before; parts, and the peak."""
    parts = [_rect(box.left, box.top, box.right - box.left, box.bottom - box.top, "track")]
    y = box.y(side.before)
    parts.append(_rect(box.left, y, box.right - box.left, box.bottom - y, f"band {tone}"))
    alive = _thinned(side.alive)
    if alive:
        corners = [(box.left, box.bottom)]
        for number, size in alive:
            corners += [(box.x(number), corners[-1][1]), (box.x(number), box.y(size))]
        corners += [(box.right, corners[-1][1]), (box.right, box.bottom)]
        parts.append(_path(corners, f"band {tone}"))
        parts.append(_path(corners[1:-1], f"line thin {tone}"))
    for number, (begin, name) in enumerate(side.parts):
        parts += _part_name(side.parts, number, begin, name, box)
    if alive:
        highest = max(side.alive)
        x, y = box.x(side.alive.index(highest) + 0.5), box.y(highest)
        parts.append(_dots([(x, y)], f"end {tone}"))
        anchor, place = ("end", x - 8) if x > (box.left + box.right) / 2 else ("start", x + 8)
        parts.append(_text(place, y - 6, format_bytes(highest), "", anchor))
    return parts


def _part_name(
    every: Sequence[tuple[int, str]], number: int, begin: int, name: str, box: Box
) -> list[Markup]:
    """A line where a part of the step begins; names that follow stand on two levels."""
    parts = []
    x, anchor = box.x(begin), "start"
    if number:
        parts.append(_upright(box, x, "grid"))
        if x > box.left + 0.6 * (box.right - box.left):
            x, anchor = box.right, "end"
    y = box.bottom + 18 + (number % 2) * 22
    parts.append(_text(x, y, name, "small", anchor))
    return parts


def _thinned(alive: Sequence[int]) -> list[tuple[int, int]]:
    """Operators and bytes: of neighbours the highest, so that no peak is lost."""
    every = math.ceil(len(alive) / 240) or 1
    return [(begin, max(alive[begin : begin + every])) for begin in range(0, len(alive), every)]


# Scales


def _axes(box: Box, name: str) -> list[Markup]:
    """Round values at the left and below, and the name of what goes up."""
    parts = [_rect(box.left, box.top, box.right - box.left, box.bottom - box.top, "track")]
    parts += _level_ticks(box, lambda value: f"{value:.3g}")
    for value in _round_values(*box.across):
        parts.append(_text(box.x(value), box.bottom + 20, f"{value:.3g}", "small", "middle"))
    parts.append(_text(box.left, box.top - 8, name, "small"))
    return parts


def _level_ticks(box: Box, words: Callable[[float], str]) -> list[Markup]:
    parts = []
    for value in _round_values(*box.up):
        y = box.y(value)
        parts.append(_path([(box.left, y), (box.right, y)], "grid"))
        parts.append(_text(box.left - 6, y + 5, words(value), "small", "end"))
    return parts


def _ratio_levels(box: Box) -> list[Markup]:
    """A line at 1, and round ratios."""
    parts: list[Markup] = []
    taken: list[float] = []
    for ratio in _round_ratios(*box.up):
        y = box.y(math.log(ratio))
        if all(abs(y - other) > 22 for other in taken):
            taken.append(y)
            kind = "one" if ratio == 1 else "grid"
            parts.append(_path([(box.left, y), (box.right, y)], kind))
            parts.append(_text(box.left - 6, y + 5, f"{ratio:.3g}×", "small", "end"))
    return parts


def _round_ratios(low: float, high: float) -> list[float]:
    """1, then round ratios between two logarithms, the outermost first."""
    rungs = [1.0]
    for rung in reversed(RUNGS):
        rungs += [rung, 1 / rung]
    return [rung for rung in rungs if low - 1e-9 <= math.log(rung) <= high + 1e-9]


def _round_values(low: float, high: float) -> list[float]:
    """About four round numbers from low to high."""
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    step = next(power * digit for digit in (1, 2, 5, 10) if power * digit >= rough * 0.99)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _part(value: float, low: float, high: float) -> float:
    """Where a value lies between two others, from 0 to 1; the nearer end of one beyond them."""
    return min(1.0, max(0.0, (value - low) / (high - low)))


def _log(ratio: float) -> float:
    return math.log(min(FARTHEST, max(1 / FARTHEST, ratio)))


def _known(interval: tuple[float, float]) -> bool:
    return not math.isnan(interval[0] + interval[1])


def _most(values: Iterable[float]) -> float:
    """The largest finite value; 0 without one."""
    return max((value for value in values if math.isfinite(value)), default=0.0)


def _cut(words: str, room: int) -> str:
    return words if len(words) <= room else f"{words[: max(1, room - 1)]}…"


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
