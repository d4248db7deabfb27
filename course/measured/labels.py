"""Names of the dots in a plot, where they lie on nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise, product
from typing import NamedTuple

from labkit.charts import svg
from labkit.charts.svg import LETTER
from labkit.show import Markup

Point = tuple[float, float]
# Pixels above and below the line that words are written on.
ABOVE, BELOW = 14.0, 4.0


class Room(NamedTuple):
    """A rectangle that words take."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Room) -> bool:
        """Whether the two overlap."""
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom

    def has(self, point: Point) -> bool:
        """Whether a point lies in it."""
        return self.left < point[0] < self.right and self.top < point[1] < self.bottom

    def within(self, other: Room) -> bool:
        """Whether it lies wholly in the other one."""
        across = other.left <= self.left and self.right <= other.right
        return across and other.top <= self.top and self.bottom <= other.bottom


class Name(NamedTuple):
    """Words at a place, and how they are drawn."""

    x: float
    y: float
    words: str
    kind: str
    anchor: str

    @property
    def room(self) -> Room:
        """What they take, of letters of the usual size."""
        wide = LETTER * len(self.words)
        left = self.x - wide if self.anchor == "end" else self.x
        return Room(left, self.y - ABOVE, left + wide, self.y + BELOW)

    def drawn(self) -> Markup:
        """The words, as SVG."""
        return svg.text(self.x, self.y, self.words, self.kind, self.anchor)


class Taken(NamedTuple):
    """A plot and what lies in it: names, dots, and lines by their corners."""

    plot: Room
    names: Sequence[Name]
    dots: Sequence[Point]
    lines: Sequence[Sequence[Point]]


def beside(dot: Point, words: str, taken: Taken) -> Name:
    """The name of a dot: below or above it, at its left or right, wherever it meets least."""
    x, y = dot
    sides = ((x - 10, "end"), (x + 10, "start"))
    heights = (y + 20, y - 8, y + 40, y - 28)
    around = [
        Name(at, height, words, "bold", side) for height, (at, side) in product(heights, sides)
    ]
    points = [point for line in taken.lines for point in _along(line)]
    return min(around, key=lambda name: _met(name.room, taken, points))


def _met(room: Room, taken: Taken, points: Sequence[Point]) -> tuple[int, bool]:
    """What words would lie on: names, dots and the plot's edge first, then lines."""
    on = sum(room.meets(name.room) for name in taken.names) + sum(map(room.has, taken.dots))
    return on + (not room.within(taken.plot)), any(map(room.has, points))


def _along(corners: Sequence[Point]) -> list[Point]:
    """Points of a line, a few pixels apart."""
    found = []
    for (x1, y1), (x2, y2) in pairwise(corners):
        parts = 1 + int(math.hypot(x2 - x1, y2 - y1) / 4)
        shares = [number / parts for number in range(parts + 1)]
        found += [(x1 + share * (x2 - x1), y1 + share * (y2 - y1)) for share in shares]
    return found
