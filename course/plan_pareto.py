"""Memory against time: what each method offers, on one figure and in one table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

import course.searches  # noqa: F401  # adds its methods to the planner's
from labkit.text import format_bytes, format_seconds
from sublinear.chain import Chain
from sublinear.plan import Plan, keep_all
from sublinear.planner import BUDGETED, METHODS, BudgetedMethod

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARKS = dict(zip([name for name in METHODS if name not in BUDGETED], "oX^vDP", strict=True))
_LINES = dict(zip(BUDGETED, ("-", "--", ":"), strict=True))


@dataclass(frozen=True)
class Point:
    """One plan of one method: its predicted peak (bytes) and time (seconds a step)."""

    method: str
    peak_bytes: int
    seconds: float
    plan: Plan


@dataclass(frozen=True)
class Pareto:
    """The plans of every method for one chain.

    ``plain``: training without checkpoints, which the others are compared with. ``points``: by
    method, then from the lowest peak on; none is beaten by another of its method.
    """

    plain: Point
    points: tuple[Point, ...]
    title: str = ""

    def ratios(self, point: Point) -> tuple[float, float]:
        """Memory and time of a point, relative to plain training."""
        return point.peak_bytes / self.plain.peak_bytes, point.seconds / self.plain.seconds

    def __str__(self) -> str:
        rows = [("method", "peak", "of plain", "time", "of plain")]
        for point in self.points:
            peak, seconds = format_bytes(point.peak_bytes), format_seconds(point.seconds)
            memory, time = self.ratios(point)
            rows.append((point.method, peak, f"{memory:.3f}", seconds, f"{time:.3f}"))
        first, *widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [self.title] if self.title else []
        for method, *cells in rows:
            line = method.ljust(first)
            for cell, width in zip(cells, widths, strict=True):
                line += "  " + cell.rjust(width)
            lines.append(line)
        return "\n".join(lines)

    def figure(self, *, dark: bool = False) -> Figure:
        """Time over peak memory, both relative to plain training.

        Curves are methods that mind a budget, marks are single plans.
        """
        from labkit.plots import GREY, legend, new_figure

        figure, (axis,) = new_figure(height=4.2, dark=dark)
        axis.axhline(1, color=GREY, lw=1, ls="--")
        for method in dict.fromkeys(point.method for point in self.points):
            ratios = [self.ratios(point) for point in self.points if point.method == method]
            memory, time = zip(*ratios, strict=True)
            mark, line = _MARKS.get(method, "."), _LINES.get(method, "")
            axis.plot(memory, time, label=method, lw=1.2, marker=mark, ls=line, ms=6)
        title = "Memory against time"
        if self.title:
            title += f": {self.title}"
        axis.set(xlabel="peak memory / plain", ylabel="time per step / plain", title=title)
        axis.set_xlim(0, None)
        legend(axis)
        return figure


def pareto(chain: Chain, *, methods: Iterable[str] = METHODS, count: int = 16) -> Pareto:
    """What each of ``methods`` offers for ``chain``.

    Those that mind a budget give up to ``count`` plans each.
    """
    methods = tuple(methods)
    if not set(methods) <= set(METHODS) or count < 2:
        raise ValueError(
            f"methods={methods!r}, count={count!r}: methods are {', '.join(METHODS)}; "
            "count is 2 or more"
        )
    points: list[Point] = []
    for method in methods:
        search = METHODS[method]
        if not isinstance(search, BudgetedMethod):
            points.append(_point(search(chain)))
        else:
            points += _unbeaten(list(map(_point, _front(chain, search, count))))
    title = f"batch {chain.batch_size} on {chain.device}, {chain.source}"
    return Pareto(_point(keep_all(chain)), tuple(points), title)


def _front(chain: Chain, search: BudgetedMethod, count: int) -> list[Plan]:
    """``count`` plans from the lowest peak to that of plain training.

    They are evenly spaced in memory.
    """
    plain = keep_all(chain)
    least, most = search.lowest_peak(chain).costs.peak_bytes, plain.costs.peak_bytes
    table = search.table_of(chain, most)
    plans = []
    for memory in np.linspace(least, most, count)[:-1]:
        plans.append(table.plan(int(memory)))
    return [plan.named(search.name) for plan in (*plans, plain)]


def _point(plan: Plan) -> Point:
    return Point(plan.method, plan.costs.peak_bytes, plan.costs.seconds, plan)


def _unbeaten(points: Sequence[Point]) -> list[Point]:
    """Those that no other beats in both memory and time, from the lowest peak on."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda point: (point.peak_bytes, point.seconds)):
        if not kept or point.seconds < kept[-1].seconds:
            kept.append(point)
    return kept
