"""The tank of 10, measured: steps that wait for the device over the time of one round of updates.

A watched device notes when each call was queued, begun and ended, and when the host waited in a
read. What it costs, a few microseconds per call, both sides of a comparison pay alike.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

import torch

from course.measured.sides import both, legend, times
from course.stand_in import GPU, Device
from labkit.charts import svg
from labkit.charts.plot import Box, field
from labkit.charts.svg import EDGE, LINE, WIDTH
from labkit.results import Comparison
from labkit.show import Markup
from labkit.text import format_seconds

clock = time.perf_counter
# So many rounds of a setting are kept: one of them is a typical one.
FEW = 40
LEFT, LEVEL, STRIP, GAP = 92.0, 62.0, 15.0, 6.0
LEVELS, LAMP = "line candidate", "fill arm3"
PREPARES, WAITS = "band candidate", "fill slower"
LEGEND = ((LAMP, "device works"), (PREPARES, "host prepares"), (WAITS, "host waits"))
TANK = ((LEVELS, "updates in the tank: queued, not done yet"),)


class Job(NamedTuple):
    """One call, in seconds from the round's begin: when it was queued, begun and ended.

    ``back``: when the host could go on; without a queue, once the call was done.
    """

    queued: float
    begin: float
    end: float
    back: float


@dataclass(frozen=True)
class Round:
    """The calls of one step, the waits of the host, and the seconds of all."""

    jobs: tuple[Job, ...]
    waits: tuple[tuple[float, float], ...]
    seconds: float

    @property
    def lit(self) -> float:
        """The share of time in which the device works."""
        return sum(job.end - job.begin for job in self.jobs) / self.seconds

    @property
    def prepares(self) -> list[tuple[float, float]]:
        """When the host prepared each call: since it could go on, or its read ended."""
        spans = []
        for number, job in enumerate(self.jobs):
            free = [0.0, *(end for _, end in self.waits if end <= job.queued)]
            free += [earlier.back for earlier in self.jobs[:number]]
            spans.append((max(free), job.queued))
        return spans

    def level(self, moment: float) -> float:
        """Calls in the tank; one that is worked off drains evenly."""
        return sum(1 - _done(job, moment) for job in self.jobs if job.queued <= moment)


def _done(job: Job, moment: float) -> float:
    if moment >= job.end:
        return 1.0
    return max(0.0, moment - job.begin) / (job.end - job.begin)


class Tanks:
    """The rounds of each setting that was run, the newest few of them.

    >>> from course.stand_in import SecondCore
    >>> tanks = Tanks()
    >>> device = tanks.watch(SecondCore(), 2, read_every=2)
    >>> for _ in range(2):
    ...     device.submit(pow, 2, 3)
    >>> device.read()
    8
    >>> len(tanks.of({"read_every": 2, "width": 4}).jobs)
    2
    >>> device.close()
    """

    def __init__(self) -> None:
        self._rounds: dict[tuple[tuple[str, Any], ...], deque[Round]] = {}

    def watch(self, device: Device, updates: int, /, **settings: Any) -> Watched:
        """The device, watched; a round has so many ``updates``, and ends with a read."""
        key = tuple(settings.items())
        # The settings that ran last are the last.
        self._rounds[key] = self._rounds.pop(key, deque(maxlen=FEW))
        return Watched(device, updates, self._rounds[key])

    def of(self, settings: Mapping[str, Any], seconds: float | None = None) -> Round | None:
        """The round noted under any of these settings that took most nearly ``seconds``.

        The newest one without.
        """
        for key, rounds in reversed(self._rounds.items()):
            if rounds and all(settings.get(name) == value for name, value in key):
                if seconds is None:
                    return rounds[-1]
                return min(rounds, key=lambda each: abs(each.seconds - seconds))
        return None


class Watched:
    """A device that notes the rounds of what is submitted to it."""

    def __init__(self, device: Device, updates: int, rounds: deque[Round]) -> None:
        self._device, self._updates, self._rounds = device, updates, rounds
        self._now = _event if isinstance(device, GPU) else clock
        self._anew()

    def submit(self, function: Callable[..., Any], *arguments: Any) -> None:
        queued, marks = clock(), []

        def timed(*given: Any) -> Any:
            marks.append(self._now())
            value = function(*given)
            marks.append(self._now())
            return value

        self._device.submit(timed, *arguments)
        self._calls.append((queued, marks, clock()))

    def read(self) -> Any:
        begin = clock()
        value = self._device.read()
        end = clock()
        self._waits.append((begin - self._began, end - self._began))
        if len(self._calls) >= self._updates:
            self._rounds.append(self._round(end))
            self._anew()
        return value

    def close(self) -> None:
        self._device.close()

    def _anew(self) -> None:
        self._calls: list[tuple[float, list[Any], float]] = []
        self._waits: list[tuple[float, float]] = []
        self._zero, self._began = self._now(), clock()

    def _round(self, end: float) -> Round:
        jobs = []
        for queued, marks, back in self._calls:
            begin, done = (_since(self._zero, mark) for mark in marks)
            jobs.append(Job(queued - self._began, begin, done, back - self._began))
        return Round(tuple(jobs), tuple(self._waits), end - self._began)


def _event() -> Any:
    """A moment in the queue of a GPU."""
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _since(zero: Any, moment: Any) -> float:
    """Seconds between two moments of the device."""
    if isinstance(moment, float):
        return moment - float(zero)
    return float(zero.elapsed_time(moment)) / 1000


# ------------------------------------------------------------------------------------ the picture


def of(tanks: Tanks) -> Callable[[object], str]:
    """For a panel's ``picture``: a round of each side that took as long as the median one.

    "" for what is no comparison, and where no round was noted.
    """

    def picture(result: object) -> str:
        rounds = [each for _, each in both(result, tanks.of)]
        if not rounds or not isinstance(result, Comparison):
            return ""
        return draw(list(zip(_names(result), rounds, strict=True)))

    return picture


def _names(result: Comparison) -> list[str]:
    """Each side by what the other one has not, such as ``read every 16 updates``."""
    settings = [side.settings for side in result.arms]
    differ = [name for name in settings[0] if settings[0][name] != settings[1][name]]
    if not differ:
        return ["baseline", "candidate"]
    return [", ".join(_named(name, each[name]) for name in differ) for each in settings]


def _named(setting: str, value: object) -> str:
    if setting == "read_every":
        return "read every update" if value == 1 else f"read every {value} updates"
    return f"{setting.replace('_', ' ')} {value}"


def draw(sides: Sequence[tuple[str, Round]]) -> Markup:
    """The level of each side's tank, and what device and host do, on one scale of time.

    ``sides``: pairs of a name and its round.
    """
    longest = max(each.seconds for _, each in sides)
    most = max(each.level(job.queued) for _, each in sides for job in each.jobs)
    parts, top = [], 0.0
    for name, each in sides:
        parts += svg.named(top + 0.8 * LINE, name, _per_update(each))
        parts.append(svg.text(EDGE, top + 1.7 * LINE, _in_words(each), "small"))
        box = Box(LEFT, top + 2.1 * LINE, WIDTH - EDGE, 0, (0.0, longest), (0.0, 1.1 * most))
        box = box._replace(bottom=box.top + LEVEL)
        parts += _level(each, box, most)
        parts += _strips(each, box)
        top = box.bottom + 2 * (STRIP + GAP) + 2 * GAP
    parts += times(box._replace(bottom=top), longest)
    parts += legend(LEGEND, EDGE, top + 1.7 * LINE)
    parts += legend(TANK, EDGE, top + 2.6 * LINE)
    words = "; ".join(f"{name}: {_in_words(each)}" for name, each in sides)
    return svg.picture(top + 3 * LINE, f"Updates in the tank over time. {words}", parts)


def _per_update(each: Round) -> str:
    return f"{format_seconds(each.seconds / len(each.jobs))} per update"


def _in_words(each: Round) -> str:
    prepared = fmean(end - begin for begin, end in each.prepares)
    worked = fmean(job.end - job.begin for job in each.jobs)
    usual = f"host {format_seconds(prepared)}, device {format_seconds(worked)} an update"
    return f"{usual}, busy {100 * each.lit:.0f} %"


def _level(each: Round, box: Box, most: float) -> list[Markup]:
    """Updates in the tank: a jump where one is queued, a slope where one is worked off."""
    moments = sorted({moment for job in each.jobs for moment in job} | {each.seconds})
    before = 1e-9
    points = [(box.x(0), box.y(0))]
    for moment in moments:
        points += [(box.x(at), box.y(each.level(at))) for at in (moment - before, moment)]
    parts = [field(box)]
    for level in (0, math.floor(most)):
        y = box.y(level)
        parts.append(svg.path([(box.left, y), (box.right, y)], "grid"))
        parts.append(svg.text(box.left - 6, y + 5, str(level), "small", "end"))
    return [*parts, svg.path(points, LEVELS)]


def _strips(each: Round, box: Box) -> list[Markup]:
    """What device and host do. What fills none of the two: the host computes by itself."""
    works = [(LAMP, job.begin, job.end) for job in each.jobs]
    host = [(PREPARES, *span) for span in each.prepares] + [(WAITS, *span) for span in each.waits]
    # Their names keep clear of the level's 0.
    parts, top = [], box.bottom + 2 * GAP
    for name, spans in (("device", works), ("host", host)):
        parts.append(svg.text(LEFT - 6, top + STRIP - 1, name, "small", "end"))
        parts.append(svg.rect(LEFT, top, box.x(each.seconds) - LEFT, STRIP, "field"))
        for kind, begin, end in spans:
            parts.append(svg.rect(box.x(begin), top, box.x(end) - box.x(begin), STRIP, kind))
        top += STRIP + GAP
    return parts
