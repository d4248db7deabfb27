"""Memory against time: what each method offers, on one figure and in one table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from labkit.text import format_bytes, format_seconds
from sublinear.chain import Chain
from sublinear.cost import simulate
from sublinear.plan import Plan
from sublinear.planner import FIXED, METHODS, SEARCHES
from sublinear.searches.simple import keep_all
from sublinear.searches.table import front

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Point:
    """One plan of one method: its predicted peak (bytes) and time (seconds a step)."""

    method: str
    peak_bytes: int
    seconds: float
    plan: Plan


@dataclass(frozen=True)
class Pareto:
    """The plans of every method for one chain. ``plain``: training without checkpoints, which the others are
    compared with. ``points``: by method, then from the lowest peak on; none is beaten by another of its method."""

    plain: Point
    points: tuple[Point, ...]
    title: str = ""

    def __str__(self) -> str:
        rows = [("method", "peak", "of plain", "time", "of plain")]
        for point in self.points:
            peak, seconds = format_bytes(point.peak_bytes), format_seconds(point.seconds)
            memory, time = (
                point.peak_bytes / self.plain.peak_bytes,
                point.seconds / self.plain.seconds,
            )
            rows.append((point.method, peak, f"{memory:.3f}", seconds, f"{time:.3f}"))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = (
            f"{row[0]:{widths[0]}}"
            + "".join(f"  {c:>{w}}" for c, w in zip(row[1:], widths[1:], strict=True))
            for row in rows
        )
        return "\n".join([self.title, *lines] if self.title else lines)

    def figure(self, *, dark: bool = False) -> Figure:
        """Time over peak memory, both relative to plain training: curves for searches, marks for single plans."""
        from labkit.plots import GREY, legend, new_figure

        figure, (axis,) = new_figure(height=4.2, dark=dark)
        axis.axhline(1, color=GREY, lw=1, ls="--")
        marks, lines = (
            dict(zip(FIXED, "oX^vDP", strict=True)),
            dict(zip(SEARCHES, ("-", "--", ":"), strict=True)),
        )
        for method in dict.fromkeys(point.method for point in self.points):
            mine = [point for point in self.points if point.method == method]
            memory = [point.peak_bytes / self.plain.peak_bytes for point in mine]
            time = [point.seconds / self.plain.seconds for point in mine]
            style: dict[str, Any] = {
                "marker": marks.get(method, "."),
                "ls": lines.get(method, ""),
                "ms": 6,
            }
            axis.plot(memory, time, label=method, lw=1.2, **style)
        title = f"Memory against time{': ' * bool(self.title)}{self.title}"
        axis.set(
            xlabel="peak memory / plain",
            ylabel="time per step / plain",
            xlim=(0, None),
            title=title,
        )
        legend(axis)
        return figure


def pareto(chain: Chain, *, methods: Iterable[str] = METHODS, count: int = 16) -> Pareto:
    """What each of ``methods`` offers for ``chain``; searches that mind a budget give up to ``count`` plans each."""
    methods = tuple(methods)
    if not set(methods) <= set(METHODS) or count < 2:
        raise ValueError(
            f"methods={methods!r}, count={count!r}: methods are {', '.join(METHODS)}; count is 2 or more"
        )
    points: list[Point] = []
    for method in methods:
        if method in FIXED:
            points.append(_point(chain, FIXED[method](chain)))
        else:
            search = SEARCHES[method]
            plans = front(chain, search.table, search.lowest_peak(chain), count)
            points += _unbeaten([_point(chain, found) for found in plans])
    title = f"batch {chain.batch_size} on {chain.device}, {chain.source}"
    return Pareto(_point(chain, keep_all(chain)), tuple(points), title)


def _point(chain: Chain, found: Plan) -> Point:
    costs = simulate(chain, found)
    return Point(found.method, costs.peak_bytes, costs.seconds, found)


def _unbeaten(points: Sequence[Point]) -> list[Point]:
    """Those that no other beats in both memory and time, from the lowest peak on."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda point: (point.peak_bytes, point.seconds)):
        if not kept or point.seconds < kept[-1].seconds:
            kept.append(point)
    return kept
