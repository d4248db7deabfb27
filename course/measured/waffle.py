"""The squares of notebook 00, from the reader's own machine: one program, timed as if it were two.

Where both sides of a comparison are the same, each of its blocks may be called A or B. So one run
holds many small experiments, and each of them is judged twice: with the labels that the blocks had,
A B B A, and with those that they would have had one after the other, A A B B.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from statistics import fmean, stdev

from labkit.charts import svg
from labkit.charts.svg import EDGE, LINE, WIDTH
from labkit.results import Comparison
from labkit.results.statistics import student_t
from labkit.show import Markup

# Cycles A B B A of one experiment: ten blocks of each.
CYCLES = 5
# Fewer experiments show nothing.
FEWEST = 10
# A 95 % interval leaves out the truth so often.
BY_CHANCE = 0.05
ACROSS, SIZE = 15, 19.0
# Where the second waffle begins.
MIDDLE = WIDTH / 2 + EDGE

# Four blocks in the order in which they were timed; A is the first and the last.
Cycle = tuple[float, float, float, float]


def waffle(result: object) -> str:
    """Two waffles, a square for each experiment; "" where the sides differ or the run is short."""
    if not isinstance(result, Comparison) or result.changed or result.error:
        return ""
    found = experiments(cycles(result))
    if len(found) < FEWEST:
        return ""
    claims = [one_after_the_other(each) for each in found], [in_turn(each) for each in found]
    rows = math.ceil(len(found) / ACROSS)
    top = 2.3 * LINE
    foot = top + SIZE * rows + LINE
    parts = [
        *_waffle(EDGE, top, "One after the other", claims[0]),
        *_waffle(MIDDLE, top, "In turn", claims[1]),
        svg.text(EDGE, foot, f"{len(found)} experiments: one program, so each claim is wrong"),
        svg.text(EDGE, foot + LINE, "in the frame: wrong by chance alone, 5 in 100", "small"),
        svg.text(EDGE, foot + 2 * LINE, _drift(*claims), "small"),
    ]
    counts = [sum(each) for each in claims]
    words = (
        f"One program twice: of {len(found)} experiments {counts[0]} claim a difference one after "
        f"the other, {counts[1]} in turn"
    )
    return svg.picture(foot + 2.4 * LINE, words, parts)


def cycles(result: Comparison) -> list[Cycle]:
    """The blocks by fours, as they were timed: each build begins with a whole cycle."""
    before, after = result.baseline.times, result.candidate.times
    found = []
    for first in range(0, result.pairs - 1, 2):
        second = first + 1
        found.append((before[first], after[first], after[second], before[second]))
    return found


def experiments(found: Sequence[Cycle]) -> list[list[Cycle]]:
    """Cycles in groups, each of which reaches over the whole run: machines drift slowly."""
    count = len(found) // CYCLES
    return [list(found[first : count * CYCLES : count]) for first in range(count)]


def in_turn(experiment: Sequence[Cycle]) -> bool:
    """Whether the 95 % interval of B - A leaves out 0, by the differences inside each cycle."""
    inside = [(b1 + b2 - a1 - a2) / 2 for a1, b1, b2, a2 in experiment]
    half = student_t(len(inside) - 1) * stdev(inside) / math.sqrt(len(inside))
    return abs(fmean(inside)) > half


def one_after_the_other(experiment: Sequence[Cycle]) -> bool:
    """The same with the first half of the blocks as A and the second as B, as two groups."""
    times = list(chain.from_iterable(experiment))
    count = len(times) // 2
    a, b = times[:count], times[count:]
    error = math.sqrt((stdev(a) ** 2 + stdev(b) ** 2) / count)
    return abs(fmean(b) - fmean(a)) > student_t(2 * count - 2) * error


def _drift(sequence: Sequence[bool], turn: Sequence[bool]) -> str:
    """What the claims one after the other say of the machine: drift alone makes so many."""
    if sum(sequence) <= 3 * BY_CHANCE * len(sequence):
        return "this machine hardly drifted"
    told = "this machine drifted"
    return f"{told}; pairs are not misled" if sum(turn) < sum(sequence) else told


def _waffle(left: float, top: float, title: str, claims: Sequence[bool]) -> list[Markup]:
    """Its title, its count, and its squares, the claims first."""
    count = sum(claims)
    tone = "slower" if count else "baseline"
    parts = [
        svg.text(left, LINE - 6, title, "bold"),
        svg.text(left, 2 * LINE - 6, f"{count} of {len(claims)} claim a difference"),
    ]
    for number, claim in enumerate(sorted(claims, reverse=True)):
        x, y = left + SIZE * (number % ACROSS), top + SIZE * (number // ACROSS)
        kind = f"fill {tone}" if claim else "floor"
        parts.append(svg.rect(x, y, SIZE - 3, SIZE - 3, kind))
    expected = max(1, round(BY_CHANCE * len(claims)))
    parts.append(svg.rect(left - 2, top - 2, SIZE * expected + 1, SIZE + 1, "whisker"))
    return parts
