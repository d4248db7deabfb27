"""01: what one call takes of the matrices, and the measured time of a step, for each way that was
run: the grids of the moving picture with the reader's calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import ceil, prod
from typing import NamedTuple

from labkit.charts import svg
from labkit.charts.plot import Box
from labkit.charts.svg import EDGE, LINE, WIDTH
from labkit.results import Comparison
from labkit.show import Markup
from labkit.text import format_bytes, format_factor, format_seconds, number_of

# Numbers of four bytes in a line of memory.
IN_LINE = 16
# Numbers of a point, of which distances are taken.
POINT = 64
GRID, GAP, ROW = 42.0, 18.0, 70.0
# Factors that have room in a line.
FEW = 3
# The reader's own tiles; their side is given.
YOURS = "your tiles"
Place = int | slice
Pieces = Callable[[str, int], Iterable[tuple[Place, Place]]]


class Part(NamedTuple):
    """What a call takes of a matrix: its size, and the first row and column of a typical one."""

    rows: int
    columns: int
    row: int = 0
    column: int = 0

    @property
    def lines(self) -> int:
        """Lines of memory that it touches, of a matrix that is stored by rows."""
        return self.rows * ceil(self.columns / IN_LINE)


class Way(NamedTuple):
    """One way to do a step: its name, calls, what each takes by matrix, and the step's seconds."""

    name: str
    calls: int
    parts: dict[str, Part]
    note: str
    seconds: float


class Gain(NamedTuple):
    """How many times as fast one way was as another, of the panel's pairs."""

    before: str
    after: str
    factor: float


class Runs:
    """All runs of one task and size: seconds by way, and the steps that led to the newest one."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.gains: list[Gain] = []

    def add(self, gain: Gain, before: float, after: float) -> None:
        """The newest run. Earlier ones are scaled to the speed that the machine has in it."""
        known = [
            (name, now)
            for name, now in zip(gain[:2], (before, after), strict=True)
            if name in self.seconds
        ]
        if known:
            name, now = known[0]
            scale = now / self.seconds[name]
            self.seconds = {each: scale * time for each, time in self.seconds.items()}
        self.seconds |= {gain.before: before, gain.after: after}
        while self.gains and self.gains[-1].after != gain.before:
            self.gains.pop()
        self.gains.append(gain)


class Calls:
    """A function for `LabPanel(picture=...)`: all ways that were run of the same task and size.

    ``pieces(per_call, n)``: rows and columns of the result for each call, as indices of torch;
    ``tile``: the side of the reader's own tiles. "" for all but a comparison of times.
    """

    def __init__(self, pieces: Pieces, tile: int) -> None:
        self._pieces, self._tile = pieces, tile
        self._runs: dict[tuple[str, int], Runs] = {}

    def __call__(self, result: object) -> str:
        if not isinstance(result, Comparison) or result.missing:
            return ""
        work = [(side.settings["task"], side.settings["n"]) for side in result.arms]
        if work[0] != work[1]:
            return ""
        task, n = work[0]
        runs = self._runs.setdefault((task, n), Runs())
        first, second = (str(side.settings["per_call"]) for side in result.arms)
        runs.add(Gain(first, second, result.speedup), *result.step_times)
        ways = [self._way(name, task, n, seconds) for name, seconds in runs.seconds.items()]
        ways.sort(key=lambda way: -way.seconds)
        return draw(ways, n, runs.gains)

    def _way(self, name: str, task: str, n: int, seconds: float) -> Way:
        if name == YOURS:
            side = min(self._tile, n)
            tile = Part(side, side, side, side) if side < n else Part(n, n)
            parts = dict.fromkeys("ABC", tile)
            return Way(
                name, ceil(n / side) ** 3, parts, _touched(ceil(n / side) ** 3, parts), seconds
            )
        pairs = list(self._pieces(name, n))
        # One of the first third: it is seen best.
        rows, columns = (_span(place, n) for place in pairs[len(pairs) // 3])
        part = Part(len(rows), len(columns), rows.start, columns.start)
        if task == "product":
            row = Part(len(rows), n, rows.start)
            parts = {"A": part, "B": row, "C": Part(n, len(columns), 0, columns.start)}
        else:
            parts = {"A": part}
        note = _touched(len(pairs), parts)
        if task == "distances":
            note = f"a tensor of {format_bytes(4 * POINT * part.rows * part.columns)} per call"
        return Way(name, len(pairs), parts, note, seconds)


def _span(place: Place, n: int) -> range:
    """The rows, or columns, that an index takes."""
    if isinstance(place, slice):
        return range(*place.indices(n))
    return range(place, place + 1)


def _touched(calls: int, parts: dict[str, Part]) -> str:
    """In words: the lines of memory that the calls of a step touch."""
    return f"{calls * sum(part.lines for part in parts.values()):,} lines touched"


# ------------------------------------------------------------------------------------------ drawn


def draw(ways: Sequence[Way], n: int, gains: Sequence[Gain]) -> Markup:
    """A row for each way, the slowest first: the grids of one call, and a bar of time."""
    newest = gains[-1]
    left = EDGE + len(ways[0].parts) * (GRID + GAP)
    box = Box(left, 0, WIDTH - EDGE, 0, (0, max(way.seconds for way in ways)))
    parts: list[Markup] = []
    for number, way in enumerate(ways):
        top = 8 + ROW * number
        tone = "candidate" if way.name == newest.after else "baseline"
        parts += _grids(way.parts, n, top)
        parts += svg.named(top + 14, way.name, format_seconds(way.seconds), left=left)
        parts.append(svg.rect(left, top + 21, box.x(way.seconds) - left, 10, f"fill {tone}"))
        parts.append(
            svg.text(left, top + 52, f"{number_of(way.calls, 'call')}, {way.note}", "small")
        )
    foot = 8 + ROW * len(ways) + 0.5 * LINE
    parts.append(svg.text(EDGE, foot, _gained(gains), "bold"))
    grids = "A = B × C" if len(ways[0].parts) > 1 else "A"
    notes = [f"{grids}; blue: one call; lines: of all its calls"]
    if {"row", "column"} <= {way.name for way in ways}:
        notes.append(f"A line: {IN_LINE} numbers of a row, 1 of a column")
    if len(ways) > len(newest[:2]):
        notes.append("Other bars: earlier runs, scaled to this one")
    for number, words in enumerate(notes):
        parts.append(svg.text(EDGE, foot + (1 + 0.8 * number) * LINE, words, "small"))
    told = "; ".join(
        f"{way.name}: {format_seconds(way.seconds)}, {way.calls:,} calls" for way in ways
    )
    return svg.picture(foot + (0.6 + 0.8 * len(notes)) * LINE, told, parts)


def _gained(gains: Sequence[Gain]) -> str:
    """The newest run's factor, or the product of the steps that led there from the first one."""
    first, newest = gains[0], gains[-1]
    factors = [gain.factor for gain in gains]
    words = f"{format_factor(prod(factors))} times as fast as {first.before}"
    if 1 < len(factors) <= FEW:
        return f"{' × '.join(map(format_factor, factors))} = {words}"
    return f"{newest.after}: {words}"


def _grids(parts: dict[str, Part], n: int, top: float) -> list[Markup]:
    """A = B × C, or A alone, in which one call's part is filled."""
    drawn = []
    for number, part in enumerate(parts.values()):
        left = EDGE + number * (GRID + GAP)
        if number:
            sign = "=×"[number - 1]
            drawn.append(svg.text(left - GAP / 2, top + GRID / 2 + 5, sign, "small", "middle"))
        drawn.append(svg.rect(left, top, GRID, GRID, "field"))
        unit = GRID / n
        # Thin, and yet to be seen.
        wide, high = (max(2.0, unit * length) for length in (part.columns, part.rows))
        x, y = left + unit * part.column, top + unit * part.row
        drawn.append(svg.rect(x, y, wide, high, "fill candidate"))
    return drawn
