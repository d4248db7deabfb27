"""01: what one call takes of the matrices, and the measured time of a step, for each way that was
run: the grids of the moving picture with the reader's calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
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
Factors = Mapping[tuple[str, str], float]


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


class Calls:
    """A function for `LabPanel(picture=...)`: all ways that were run of the same task and size.

    ``pieces(per_call, n)``: rows and columns of the result for each call, as indices of torch;
    ``tile``: the side of the reader's own tiles. "" for all but a comparison of times.
    """

    def __init__(self, pieces: Pieces, tile: int) -> None:
        self._pieces, self._tile = pieces, tile
        self._seconds: dict[tuple[str, int], dict[str, float]] = {}
        # The panel's factors, of pairs: baseline, candidate.
        self._factors: dict[tuple[str, int], dict[tuple[str, str], float]] = {}

    def __call__(self, result: object) -> str:
        if not isinstance(result, Comparison) or result.missing:
            return ""
        task, n = (result.candidate.settings[name] for name in ("task", "n"))
        known = self._seconds.setdefault((task, n), {})
        for side in result.arms:
            settings = side.settings
            if (settings["task"], settings["n"]) == (task, n):
                known[settings["per_call"]] = side.median
        before, after = (str(side.settings["per_call"]) for side in result.arms)
        factors = self._factors.setdefault((task, n), {})
        factors |= {(before, after): result.speedup, (after, before): 1 / result.speedup}
        ways = [self._way(name, task, n, seconds) for name, seconds in known.items()]
        ways.sort(key=lambda way: -way.seconds)
        return draw(ways, n, after, factors)

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


def draw(ways: Sequence[Way], n: int, newest: str, factors: Factors) -> Markup:
    """A row for each way, the slowest first: the grids of one call, and a bar of time."""
    left = EDGE + len(ways[0].parts) * (GRID + GAP)
    box = Box(left, 0, WIDTH - EDGE, 0, (0, max(way.seconds for way in ways)))
    parts: list[Markup] = []
    for number, way in enumerate(ways):
        top = 8 + ROW * number
        tone = "candidate" if way.name == newest else "baseline"
        parts += _grids(way.parts, n, top)
        parts += svg.named(top + 14, way.name, format_seconds(way.seconds), left=left)
        parts.append(svg.rect(left, top + 21, box.x(way.seconds) - left, 10, f"fill {tone}"))
        parts.append(
            svg.text(left, top + 52, f"{number_of(way.calls, 'call')}, {way.note}", "small")
        )
    foot = 8 + ROW * len(ways) + 0.5 * LINE
    parts.append(svg.text(EDGE, foot, _gains(ways, factors), "bold"))
    grids = "A = B × C" if len(ways[0].parts) > 1 else "A"
    words = f"{grids}; blue: what one call takes; lines touched: by all calls together"
    parts.append(svg.text(EDGE, foot + LINE, words, "small"))
    told = "; ".join(
        f"{way.name}: {format_seconds(way.seconds)}, {way.calls:,} calls" for way in ways
    )
    return svg.picture(foot + 1.4 * LINE, told, parts)


def _gains(ways: Sequence[Way], known: Factors) -> str:
    """The factor of each row over the one above it where few were run, and of all."""
    if len(ways) < 2:
        return ""
    factors = [
        known.get((before.name, after.name), before.seconds / after.seconds)
        for before, after in pairwise(ways)
    ]
    whole = f"{format_factor(prod(factors))} times as fast"
    if 1 < len(factors) <= FEW:
        return f"{' × '.join(map(format_factor, factors))} = {whole}"
    return f"{ways[-1].name}: {whole} as {ways[0].name}"


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
