"""Figures at the end of a cell: the pictures of results, and an empty figure of matplotlib.

No pyplot: figures are drawn in threads, after the timing.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from labkit import charts, show
from labkit.results import Comparison, RaceResult
from labkit.show import Markup, Ratio
from labkit.sweep import Sweep
from labkit.text import format_factor

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, told apart under every common colour blindness.
BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#888888"
PURPLE, SKY = "#CC79A7", "#56B4E9"
PALETTE = (BLUE, ORANGE, GREEN, PURPLE, RED, SKY)


def new_figure(
    columns: int = 1,
    *,
    rows: int = 1,
    width: float = 8.0,
    height: float = 3.2,
    dark: bool = False,
) -> tuple[Figure, list[Axes]]:
    """An empty figure in the course's style, for drawings of your own.

    Returned with its axes, from left to right, row by row.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    ink, paper = ("#dddddd", "#111111") if dark else ("#333333", "#ffffff")
    figure = Figure(figsize=(width, height), layout="constrained", facecolor=paper)
    FigureCanvasAgg(figure)
    # Without pyplot nothing else makes a notebook show the figure.
    figure._repr_png_ = partial(_png, figure)  # type: ignore[attr-defined]
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axis in axes:
        axis.set_facecolor(paper)
        axis.spines[["top", "right"]].set_visible(False)
        axis.spines[["left", "bottom"]].set_color(ink)
        axis.tick_params(colors=ink, labelsize=9)
        axis.grid(alpha=0.25)
        for text in (axis.xaxis.label, axis.yaxis.label, axis.title):
            text.set_color(ink)
        axis.title.set_fontsize(10)
        axis.set_prop_cycle(color=PALETTE)
    return figure, axes


def _png(figure: Figure) -> bytes:
    figure.savefig(buffer := io.BytesIO(), format="png")
    return buffer.getvalue()


def legend(axis: Axes) -> None:
    """A legend that reads on light and dark paper alike."""
    axis.legend(fontsize=8, framealpha=0, labelcolor=axis.title.get_color())


class Drawing:
    """A picture of `labkit.charts` that shows itself at the end of a cell."""

    def __init__(self, words: str, picture: Markup) -> None:
        self._words, self._picture = words, picture

    def _repr_html_(self) -> str:
        return show.result(self._picture)

    def __repr__(self) -> str:
        return self._words


def figure(result: Comparison | RaceResult | Sweep) -> Drawing:
    """The picture of a result as the output of a cell."""
    return Drawing(result.sentence, result.picture())


comparison_figure = race_figure = figure


def sweep_figure(results: Sequence[Comparison], control: str) -> Drawing:
    """The picture of a sweep as the output of a cell."""
    return figure(Sweep(control, tuple(results)))


def bar_figure(
    sweeps: Sequence[Comparison] | Mapping[str, Sequence[Comparison]],
    control: str,
    *,
    slowdown: bool = False,
    title: str = "",
) -> Drawing:
    """The speed-ups of one sweep, or of several by name: those of one value stand together.

    ``slowdown``: candidate / baseline instead.
    """
    if not isinstance(sweeps, Mapping):
        sweeps = {"": sweeps}
    named: dict[str, list[Ratio]] = {}
    for name, results in sweeps.items():
        for result in results:
            value = str(result.candidate.settings[control])
            row = result.row(value, name)
            named.setdefault(value, []).append(_inverse(row, result) if slowdown else row)
    rows = [row for each in named.values() for row in each]
    words = title or f"Sweep of {control}"
    ends = ("faster", "slower") if slowdown else ("slower", "faster")
    return Drawing(words, charts.ratios(words, rows, ends=ends, below=title))


def _inverse(row: Ratio, result: Comparison) -> Ratio:
    low, high = row.interval
    turned = replace(row, value=1 / row.value, interval=(1 / high, 1 / low))
    if result.missing:
        return turned
    return replace(turned, text=f"{format_factor(turned.value)}× the time, {result.conclusion}")
