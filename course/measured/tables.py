"""24's picture, measured: the memory of a step in tables of scores, or its time and its kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from typing import Any, NamedTuple

from course.measured.backends import NOTHING, TABLE, kernel_of
from labkit.charts import svg
from labkit.charts.plot import Box
from labkit.charts.svg import EDGE, LINE, WIDTH
from labkit.memory_timeline import MemoryComparison, Timeline
from labkit.results import Comparison, Measurement, Workload
from labkit.show import Markup
from labkit.text import format_bytes, format_seconds

# Pixels of the largest table's side, and between two tables.
SIDE, GAP = 112.0, 7.0
MASKS = {"causal": ", is_causal", "tensor": ", mask tensor", "none": ", no mask"}
OWN = "your tiles"


class Side(NamedTuple):
    """One side: its role, its name, the bytes of one table of its length, and what it needed."""

    role: str
    name: str
    table: int
    bytes: int | None
    seconds: float | None
    kernel: str


class Tables:
    """A function for `LabPanel(picture=...)`: the memory of both sides in tables of scores.

    ``heads`` are those of a batch together, ``size`` the bytes of a number. The workloads have to
    be watched: then it knows which kernel ran. For other results it returns "".
    """

    def __init__(self, heads: int, size: int) -> None:
        self._heads, self._size = heads, size
        self._kernels: dict[str, str] = {}

    def watch(self, make: Callable[..., Workload]) -> Callable[..., Workload]:
        """The same workloads; the first step of each setting tells its kernel."""

        @wraps(make)
        def watched(**settings: Any) -> Workload:
            workload = make(**settings)
            key = _key(settings)
            if key not in self._kernels:
                self._kernels[key] = kernel_of(workload.step)
            return workload

        return watched

    def kernel(self, settings: Mapping[str, Any]) -> str:
        """The kernel that ran under these settings; `NOTHING` where none has."""
        return self._kernels.get(_key(settings), NOTHING)

    def table(self, length: int) -> int:
        """Bytes of the scores of so many tokens, of all heads."""
        return self._heads * length * length * self._size

    def __call__(self, result: object) -> Markup | str:
        if not isinstance(result, MemoryComparison | Comparison):
            return ""
        masks = {str(side.settings["mask"]) for side in result.arms}
        # The usual one is named beside another one only.
        name = partial(_name, plain=masks == {"causal"})
        arms: Sequence[Timeline | Measurement] = result.arms
        times = result.step_times if isinstance(result, Comparison) else (None, None)
        sides = [
            self._side(role, name(side.settings), side, seconds)
            for role, side, seconds in zip(("baseline", "candidate"), arms, times, strict=True)
        ]
        if isinstance(result, MemoryComparison):
            return "" if result.why_no_factor else draw_memory(sides)
        if result.error or not all(side.times for side in result.arms):
            return ""
        return draw_time(sides)

    def _side(
        self, role: str, name: str, side: Timeline | Measurement, seconds: float | None
    ) -> Side:
        table, kernel = self.table(int(side.settings["length"])), self.kernel(side.settings)
        peak = side.peak if isinstance(side, Timeline) else side.peak_bytes
        return Side(role, name, table, peak, seconds, kernel)


def _name(settings: Mapping[str, Any], *, plain: bool) -> str:
    mask = "" if plain else MASKS[str(settings["mask"])]
    return f"{settings['attention']}{mask}, {int(settings['length']):,} tokens"


def _key(settings: Mapping[str, Any]) -> str:
    return repr(sorted(settings.items()))


# ------------------------------------------------------------------------------------------ drawn


def draw_memory(sides: Sequence[Side]) -> Markup:
    """Squares, each as large as one table of the side's length, filled by the memory needed."""
    longest = max(side.table for side in sides)
    scale = min(SIDE, *(_room(side, longest) for side in sides))
    parts, top = [], 20.0
    for side in sides:
        amount = _tables(side)
        words = f"{format_bytes(side.bytes or 0)} = {_number(amount)}"
        parts += svg.named(top, side.name, words)
        each = scale * math.sqrt(side.table / longest)
        for number in range(math.ceil(amount)):
            x = EDGE + number * (each + GAP)
            full = each * min(1.0, amount - number)
            parts.append(svg.rect(x, top + 12, each, each, "field"))
            parts.append(svg.rect(x, top + 12 + each - full, each, full, f"fill {side.role}"))
        top += each + 12 + 1.5 * LINE
    sizes = dict.fromkeys(format_bytes(side.table) for side in sides)
    note = f"A square is one table of scores: {' and '.join(sizes)}."
    parts.append(svg.text(EDGE, top - 4, note, "small"))
    parts.append(svg.text(EDGE, top + 0.8 * LINE, "Filled: the peak memory of a step.", "small"))
    told = "; ".join(f"{side.name}: {format_bytes(side.bytes or 0)}" for side in sides)
    return svg.picture(top + 1.2 * LINE, told, parts)


def _tables(side: Side) -> float:
    return (side.bytes or 0) / side.table


def _number(tables: float) -> str:
    words = f"{tables:.2g}" if tables < 10 else f"{tables:.0f}"
    return f"{words} {'table' if words == '1' else 'tables'}"


def _room(side: Side, longest: int) -> float:
    """The largest table's side at which all squares of this side have room in a row."""
    count = math.ceil(_tables(side))
    each = (WIDTH - 2 * EDGE) / max(1, count) - GAP
    return each / math.sqrt(side.table / longest)


def draw_time(sides: Sequence[Side]) -> Markup:
    """A bar of time for each side, and which kernel it was."""
    box = Box(EDGE, 0, WIDTH - EDGE, 0, (0, max(side.seconds or 0 for side in sides)))
    parts, top = [], 20.0
    for side in sides:
        seconds = side.seconds or 0.0
        parts += svg.named(top, side.name, format_seconds(seconds))
        parts.append(svg.rect(EDGE, top + 10, box.x(seconds) - EDGE, 22, f"fill {side.role}"))
        parts.append(svg.text(EDGE, top + 52, _how(side), "small"))
        top += 86
    told = "; ".join(f"{side.name}: {format_seconds(side.seconds or 0)}" for side in sides)
    return svg.picture(top - 0.5 * LINE, told, parts)


def _how(side: Side) -> str:
    memory = f"; {_number(_tables(side))} of memory" if side.bytes else ""
    if side.kernel == TABLE:
        return f"stores the table of scores{memory}"
    if side.kernel == NOTHING:
        return f"{OWN}{memory}"
    return f"kernel: {side.kernel}{memory}"
