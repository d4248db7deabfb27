"""22's picture, measured: eager and compiled run for so many steps; the one with code to write
starts late.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import wraps
from typing import Any, NamedTuple

from course.compiling import graphs_made
from course.measured.sides import legend
from labkit import count
from labkit.charts import svg
from labkit.charts.svg import EDGE, LINE, WIDTH
from labkit.device import synchronize
from labkit.graphs import watched_replays
from labkit.results import Comparison, Measurement, Workload
from labkit.show import Markup
from labkit.text import format_seconds, number_of

ROLES = ("baseline", "candidate")
# The box of the first step, and where the track begins; heights of a track and of a step's bar.
BOX, LEFT = 140.0, 156.0
LANE, BAR = 26.0, 14.0
ROW = 112.0
RIGHT = WIDTH - EDGE
# Steps of the track where nobody ever catches up.
NEVER = 1000
# Operators that are drawn apart, in pixels at least.
APART = 2.0
LEGEND = (("fill arm5", "first step"), ("fill arm3", "operators called"))


class Runner(NamedTuple):
    """A side: seconds of its first step and of each later one, the operators that it calls, and
    the graphs that it traces anew.
    """

    name: str
    first: float
    each: float
    operators: int
    graphs: int = 0

    def after(self, steps: int) -> float:
        """Seconds of so many steps."""
        return self.first + (steps - 1) * self.each

    def done(self, seconds: float, steps: int) -> float:
        """Steps that are done by then, of so many."""
        if seconds < self.first:
            return 0.0
        return min(float(steps), 1 + (seconds - self.first) / self.each)


class Seen(NamedTuple):
    """What a first build showed."""

    first: float
    operators: int
    graphs: int


class Runners:
    """A function for `LabPanel(picture=...)`: two runners on a track of steps.

    ``code``: from settings to the code that they run. What is compiled once serves all builds with
    the same code, and its first step is the first of them; ``first`` has the seconds of those that
    ran before. The workloads have to be watched. For other results it returns "".
    """

    def __init__(
        self, code: Callable[..., Hashable], first: Mapping[Hashable, float] | None = None
    ) -> None:
        self._code = code
        self._first = dict(first or {})
        self._later: dict[str, tuple[int, int]] = {}

    def watch(self, make: Callable[..., Workload]) -> Callable[..., Workload]:
        """The same workloads, whose first step is made and noted when they are built."""

        @wraps(make)
        def watched(**settings: Any) -> Workload:
            workload = make(**settings)
            self._look(workload.step, settings)
            return workload

        return watched

    def _look(self, step: Callable[[], Any], settings: Mapping[str, Any]) -> None:
        code, key = self._code(**settings), _key(settings)
        if code not in self._first:
            synchronize()
            begin = time.perf_counter()
            step()
            synchronize()
            self._first[code] = time.perf_counter() - begin
        if key not in self._later:
            # One that is not the first here, whoever ran that.
            before = graphs_made()
            with watched_replays() as replays:
                step()
            graphs = graphs_made() - before
            # A graph is replayed by one call, and shows no operators.
            self._later[key] = replays.count or count(step).launches, graphs

    def seen(self, settings: Mapping[str, Any]) -> Seen:
        """Of these settings. KeyError where no such step has run."""
        return Seen(self._first[self._code(**settings)], *self._later[_key(settings)])

    def __call__(self, result: object) -> Markup | str:
        if not isinstance(result, Comparison) or result.missing:
            return ""
        if not all(_key(side.settings) in self._later for side in result.arms):
            return ""
        first, second = map(self._runner, result.arms, result.step_times)
        return draw(first, second, result.verdict)

    def _runner(self, side: Measurement, seconds: float) -> Runner:
        seen = self.seen(side.settings)
        name = str(side.settings["execution"])
        return Runner(name, seen.first, seconds, seen.operators, seen.graphs)


def _key(settings: Mapping[str, Any]) -> str:
    return repr(sorted(settings.items()))


def paid(eager: Runner, other: Runner, *, faster: bool) -> float:
    """The steps after which the other one is not behind any more; inf where it is not faster.

    >>> eager, other = Runner("eager", 0.1, 0.1, 9), Runner("compile", 10.0, 0.05, 1)
    >>> paid(eager, other, faster=True)
    199
    """
    saved = eager.each - other.each
    if not faster or saved <= 0:
        return math.inf
    return 1 + max(0, math.ceil((other.first - eager.first) / saved))


def round_above(least: float) -> int:
    """The next of 10, 20, 50, 100, 200, ... from there on.

    >>> round_above(199), round_above(0)
    (200, 10)
    """
    power = 10 ** max(1, math.floor(math.log10(max(1.0, least))))
    return next(power * digit for digit in (1, 2, 5, 10) if power * digit >= least)


# ------------------------------------------------------------------------------------------- drawn


def draw(eager: Runner, other: Runner, verdict: str) -> Markup:
    """Both tracks at the moment at which the first one arrives; a step of each, on one scale.

    ``verdict``: what is known of the other one's step.
    """
    after = paid(eager, other, faster=verdict == "faster")
    steps = NEVER if math.isinf(after) else round_above(1.2 * after)
    now = min(side.after(steps) for side in (eager, other))
    longest = max(eager.each, other.each)
    wait = max(eager.first, other.first)
    parts: list[Markup] = []
    for place, side in enumerate((eager, other)):
        top = ROW * place
        told = f"{steps:,} steps: {format_seconds(side.after(steps))}"
        parts += svg.named(top + 18, side.name, told)
        parts += _track(side, ROLES[place], now, steps, wait, top + 28)
        parts += _step(side, longest, top + 28 + LANE + 8)
    if 1 < after <= steps:
        parts += _mark(after, steps, ROW + 28)
    foot = 2 * ROW + 4
    parts += legend(LEGEND, EDGE, foot)
    words = in_words(after, verdict)
    parts.append(svg.text(EDGE, foot + LINE, words, "bold"))
    return svg.picture(foot + LINE + 12, words, parts)


def in_words(after: float, verdict: str) -> str:
    """``the second runner is behind for 1,200 steps``."""
    if math.isinf(after):
        if verdict == "unclear":
            return "whose step is faster is not clear, nor who is ahead in the end"
        return "here the second runner never catches up"
    if after == 1:
        return "the second runner is ahead from its first step on"
    return f"the second runner is behind for {after:,.0f} steps"


def _track(
    side: Runner, role: str, now: float, steps: int, wait: float, top: float
) -> Iterator[Markup]:
    """``wait``: seconds of the longer first step, which fills its box."""
    ready = min(side.first, now) / wait if wait else 0.0
    yield svg.rect(EDGE, top, BOX, LANE, "field")
    yield svg.rect(EDGE, top, BOX * ready, LANE, "band arm5")
    yield svg.text(EDGE + BOX / 2, top + 18, format_seconds(side.first), "small", "middle")
    x = LEFT + (RIGHT - LEFT) * side.done(now, steps) / steps
    yield svg.rect(LEFT, top, RIGHT - LEFT, LANE, "field")
    yield svg.rect(LEFT, top, x - LEFT, LANE, f"band {role}")
    yield svg.dots([(min(RIGHT - 6, max(LEFT + 6, x)), top + LANE / 2)], f"end {role}")


def _step(side: Runner, longest: float, top: float) -> Iterator[Markup]:
    """A bar as long as the step takes, with a stroke for each operator that Python calls."""
    wide = (RIGHT - LEFT) * side.each / longest
    yield svg.text(LEFT - 8, top + 12, "a step", "small", "end")
    yield svg.rect(LEFT, top, wide, BAR, "band arm3")
    pitch = wide / side.operators if side.operators else 0.0
    if pitch >= APART:
        for number in range(side.operators):
            yield svg.rect(LEFT + pitch * number, top, max(1.0, pitch - 1), BAR, "fill arm3")
    elif side.operators:
        yield svg.rect(LEFT, top, wide, BAR, "fill arm3")
    called = number_of(side.operators, "operator") if side.operators else "no operator"
    traced = f", {number_of(side.graphs, 'graph')} traced" if side.graphs else ""
    words = f"{format_seconds(side.each)}, {called} called{traced}"
    yield svg.text(LEFT, top + BAR + 18, words, "small")


def _mark(after: float, steps: int, top: float) -> Iterator[Markup]:
    x = LEFT + (RIGHT - LEFT) * after / steps
    yield svg.path([(x, top - 4), (x, top + LANE + 4)], "one", "5 4")
    yield svg.text(x - 6, top + 18, "paid", "bold", "end")
