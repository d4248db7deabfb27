"""Figures at the end of a cell: pictures of results, bars and heat maps, and an empty figure.

Of matplotlib `Figure` objects only, no pyplot: they are drawn in threads, after the timing.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Any, TypeVar

from labkit import charts, show
from labkit.results import Comparison, RaceResult
from labkit.show import Markup
from labkit.sweep import Sweep

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Kind = TypeVar("Kind")
# Label (machine and date) and result, of other machines.
Recorded = Sequence[tuple[str, Kind]]

# Okabe and Ito's palette, told apart under every common colour blindness.
BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#888888"
PURPLE, SKY = "#CC79A7", "#56B4E9"
PALETTE = (BLUE, ORANGE, GREEN, PURPLE, RED, SKY)
VERDICT_COLOUR = {"faster": GREEN, "slower": RED, "same": BLUE, "unclear": GREY}


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
    """A legend that reads on light and dark paper alike; a `Drawing` has its own."""
    if not isinstance(axis, Levels):
        axis.legend(fontsize=8, framealpha=0, labelcolor=axis.title.get_color())


class Drawing:
    """A picture of `labkit.charts` that shows itself at the end of a cell."""

    def __init__(self, sentence: str, draw: Callable[[], Markup]) -> None:
        self.axes: tuple[Levels, ...] = ()
        self._sentence = sentence
        self._draw = draw

    def _repr_html_(self) -> str:
        return show.result(self._draw())

    def __repr__(self) -> str:
        return self._sentence


class Levels:
    """The upper plot of a sweep, for who draws a line on it, as on an axis of matplotlib."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, float]] = []

    def axhline(self, value: float, *, label: str, **_: object) -> None:
        """A line across the throughputs, such as the machine's rate."""
        self.lines.append((label, value))

    def set_yscale(self, _: str) -> None:
        """Nothing: the scale follows the throughputs."""


def comparison_figure(result: Comparison, *, recorded: Recorded[Comparison] = ()) -> Drawing:
    """`labkit.charts.comparison` as the output of a cell."""
    return Drawing(result.sentence, partial(charts.comparison, result, recorded=recorded))


def sweep_figure(
    results: Sequence[Comparison],
    control: str,
    *,
    recorded: Recorded[Sequence[Comparison]] = (),
) -> Drawing:
    """`labkit.charts.sweep` as the output of a cell."""
    rates = Levels()
    draw = partial(charts.sweep, results, control, recorded=recorded, levels=rates.lines)
    drawing = Drawing(Sweep(control, tuple(results)).sentence, draw)
    drawing.axes = (rates,)
    return drawing


def race_figure(result: RaceResult, *, recorded: Recorded[RaceResult] = ()) -> Drawing:
    """`labkit.charts.race` as the output of a cell."""
    return Drawing(result.sentence, partial(charts.race, result, recorded=recorded))


def bar_figure(
    sweeps: Sequence[Comparison] | Mapping[str, Sequence[Comparison]],
    control: str,
    *,
    slowdown: bool = False,
    title: str = "",
    dark: bool = False,
) -> Figure:
    """A bar for each value of the swept control: the speed-up, with its 95 % interval.

    Bars begin at 1, on a logarithmic scale. A single sweep is coloured by its verdicts; of several,
    in a mapping by name, the bars of one value stand together, each in the colour of its sweep.
    ``slowdown``: candidate / baseline instead. Where a side ended early stands its reason.
    """
    if not isinstance(sweeps, Mapping):
        sweeps = {"": sweeps}
    values: dict[str, None] = {}
    for results in sweeps.values():
        values |= dict.fromkeys(str(each.candidate.settings[control]) for each in results)
    places = {value: place for place, value in enumerate(values)}
    thickness = 0.8 / max(1, len(sweeps))
    height = 1 + 0.25 * len(places) * max(1, len(sweeps))
    figure, (axis,) = new_figure(width=7, height=height, dark=dark)
    for number, (results, hue) in enumerate(zip(sweeps.values(), cycle(PALETTE), strict=False)):
        shift = (number - (len(sweeps) - 1) / 2) * thickness
        for result in results:
            colour = hue
            if len(sweeps) == 1:
                colour = VERDICT_COLOUR.get(result.verdict, GREY)
            place = places[str(result.candidate.settings[control])] + shift
            _ratio_bar(axis, result, place, 0.9 * thickness, colour, slowdown)
    axis.axvline(1, color=GREY, ls="--", lw=1)
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter("{x:g}")
    low, high = axis.get_xlim()
    # Room for the words.
    axis.set_xlim(min(0.45, low), 2.5 * max(1.5, high))
    axis.set_yticks(range(len(places)), list(places))
    axis.invert_yaxis()
    axis.set(xlabel="baseline / candidate", title=title)
    if slowdown:
        axis.set_xlabel("candidate / baseline")
    if len(sweeps) > 1:
        for name, hue in zip(sweeps, cycle(PALETTE), strict=False):
            axis.plot([], [], "s", color=hue, label=name)
        legend(axis)
    return figure


def _ratio_bar(
    axis: Axes, result: Comparison, place: float, thickness: float, colour: str, slowdown: bool
) -> None:
    words: dict[str, Any] = {"va": "center", "fontsize": 8, "color": axis.title.get_color()}
    if not result.ratios:
        reasons = [side.error for side in result.arms if side.error]
        axis.text(1, place, f"  {', '.join(reasons)}", **words)
        return
    ratio, (low, high) = result.speedup, result.interval
    if slowdown:
        ratio, low, high = 1 / ratio, 1 / high, 1 / low
    axis.barh(place, ratio - 1, left=1, height=thickness, color=colour)
    axis.plot([low, high], [place, place], color=words["color"], lw=1)
    axis.text(max(1, high), place, f"  {ratio:.2f}x {result.conclusion}", **words)


def heat_map(
    rows: Mapping[str, Sequence[tuple[float, str]]],
    columns: Sequence[str],
    *,
    title: str = "",
    dark: bool = False,
) -> Figure:
    """Rows against columns: cells of (ratio, text), red below 1, green above.

    A ratio of nan stays blank, with its text.
    """
    figure, (axis,) = new_figure(
        width=4.6 + 1.7 * len(columns), height=1.1 + 0.36 * len(rows), dark=dark
    )
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("gain", [RED, "#f4f4f4", GREEN])
    for y, cells in enumerate(rows.values()):
        for x, (ratio, text) in enumerate(cells):
            face: Any = "none"
            ink = GREY
            if not math.isnan(ratio):
                # Full at 4x and 1/4.
                shade = 0.5 + math.log2(min(4.0, max(0.25, ratio))) / 4
                face, ink = colours(shade), "#222222"
            axis.fill_between(
                [x - 0.5, x + 0.5], y - 0.5, y + 0.5, facecolor=face, edgecolor=GREY, lw=0.5
            )
            axis.text(x, y, text, ha="center", va="center", fontsize=8, color=ink)
    axis.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5))
    figure.suptitle(title, fontsize=10, color=axis.title.get_color())
    axis.set_xticks(range(len(columns)), columns)
    axis.tick_params(labeltop=True)
    axis.set_yticks(range(len(rows)), list(rows), fontsize=8)
    axis.grid(visible=False)
    return figure
