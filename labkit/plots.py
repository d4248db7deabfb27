"""matplotlib figures of results.

`Figure` objects only, no pyplot: they are drawn in threads, after the timing.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from labkit.memory_timeline import MemoryComparison
    from labkit.racing import RaceResult
    from labkit.results import Comparison

Kind = TypeVar("Kind")
# Label (machine and date) and result, of other machines.
Recorded = Sequence[tuple[str, Kind]]

# Okabe and Ito's palette, told apart under every common colour blindness.
BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#888888"
PURPLE, SKY = "#CC79A7", "#56B4E9"
PALETTE = (BLUE, ORANGE, GREEN, PURPLE, RED, SKY)
# Recorded runs of other machines: seen, but behind the reader's own.
MUTED = "#A08FB5"
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


def _muted_styles() -> Iterator[Any]:
    """Line styles that tell recorded machines apart, which all have the same muted colour."""
    return cycle(["--", ":", "-.", (0, (1, 3))])


def _png(figure: Figure) -> bytes:
    figure.savefig(buffer := io.BytesIO(), format="png")
    return buffer.getvalue()


def legend(axis: Axes) -> None:
    """A legend that reads on light and dark paper alike."""
    axis.legend(fontsize=8, framealpha=0, labelcolor=axis.title.get_color())


def comparison_figure(
    comparison: Comparison, *, recorded: Recorded[Comparison] = (), dark: bool = False
) -> Figure:
    """The paired ratios with interval and noise floor; the step times of both arms.

    Muted: ``recorded`` runs.
    """
    figure, (pairs, steps) = new_figure(2, dark=dark)
    colour = VERDICT_COLOUR.get(comparison.verdict, GREY)
    if comparison.ratios:
        floor, (low, high) = comparison.noise_floor, comparison.interval
        if math.isfinite(floor):
            pairs.axhspan(
                math.exp(-floor),
                math.exp(floor),
                color=GREY,
                alpha=0.3,
                lw=0,
                label="noise floor (A/A)",
            )
        pairs.plot(
            range(1, len(comparison.ratios) + 1),
            comparison.ratios,
            ".",
            color=colour,
            ms=4,
            alpha=0.6,
        )
        pairs.axhspan(low, high, color=colour, alpha=0.25, lw=0, label="95 % interval")
        pairs.axhline(comparison.speedup, color=colour, label=f"speed-up {comparison.speedup:.3f}x")
    for style, (label, other) in zip(_muted_styles(), recorded, strict=False):
        # A side of it ended early; the table says how.
        if not other.ratios:
            continue
        pairs.axhspan(*other.interval, color=MUTED, alpha=0.15, lw=0)
        pairs.axhline(
            other.speedup, color=MUTED, lw=1.2, ls=style, label=f"{label}: {other.speedup:.3f}x"
        )
    if comparison.ratios or recorded:
        legend(pairs)
    pairs.axhline(1, color=GREY, lw=1, ls="--")
    pairs.set(
        xlabel="pair of blocks",
        ylabel="baseline / candidate",
        title=f"Speed-up: {comparison.conclusion}",
    )
    for place, (arm, hue) in enumerate(zip(comparison.arms, (GREY, colour), strict=True)):
        if arm.times:
            steps.barh(
                place, arm.median * 1e3, xerr=arm.iqr * 500, color=hue, height=0.6, ecolor=GREY
            )
        text = f" {arm.label}" + (f": {arm.error}" if arm.error else "")
        steps.annotate(
            text,
            (0, place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color=steps.title.get_color(),
        )
    steps.set(
        yticks=[],
        ylim=(1.6, -0.6),
        xlim=(0, None),
        xlabel=f"ms per {comparison.one_step} (median, IQR)",
        title=f"{comparison.one_step.capitalize()} time",
    )
    return figure


def sweep_figure(
    results: Sequence[Comparison],
    control: str,
    *,
    recorded: Recorded[Sequence[Comparison]] = (),
    dark: bool = False,
) -> Figure:
    """Throughput of both arms and the speed-up, over the values of the swept control.

    ``recorded`` sweeps are muted.
    """
    figure, (rate, ratio) = new_figure(2, dark=dark)
    values = [result.candidate.settings[control] for result in results]
    numeric = all(map(_is_number, values))
    places: Sequence[Any] = values if numeric else range(len(values))
    # Between two words there is nothing to join.
    line = "-" if numeric else ""
    for name, hue in (("baseline", GREY), ("candidate", BLUE)):
        arms = [getattr(result, name) for result in results]
        rate.plot(places, [arm.throughput for arm in arms], f"o{line}", color=hue, label=name, ms=4)
    speedups = [result.speedup for result in results]
    ends = [[abs(result.interval[end] - result.speedup) for result in results] for end in (0, 1)]
    ratio.errorbar(places, speedups, yerr=ends, fmt=line or " ", color=GREY, capsize=3)
    for words, verdict in {result.conclusion: result.verdict for result in results}.items():
        hue = VERDICT_COLOUR.get(verdict, GREY)
        chosen = [
            (place, result.speedup)
            for place, result in zip(places, results, strict=True)
            if result.conclusion == words
        ]
        if chosen:
            ratio.plot(*zip(*chosen, strict=True), "o", color=hue, label=words)
    for style, (label, others) in zip(_muted_styles(), recorded, strict=False):
        # By text, since a record may hold a value by its name; numbers that only the other swept
        # have a place too.
        where = {str(value): place for value, place in zip(values, places, strict=True)}
        swept = [(other.candidate.settings[control], other) for other in others]
        # Of other values only numbers have a place, and only on an axis of numbers.
        placed = [(where.get(str(value), value), other) for value, other in swept]
        found = [
            (place, other)
            for place, other in placed
            if (numeric and _is_number(place)) or place in where.values()
        ]
        found.sort(key=lambda pair: pair[0])
        if not found:
            continue
        at, speedups = [place for place, _ in found], [other.speedup for _, other in found]
        ratio.plot(at, speedups, "s", ls=line and style, color=MUTED, ms=3, lw=1.2, label=label)
        ratio.vlines(
            at, *zip(*(other.interval for _, other in found), strict=True), color=MUTED, lw=1
        )
    ratio.axhline(1, color=GREY, lw=1, ls="--")
    for axis in (rate, ratio):
        axis.set_xlabel(control)
        if numeric and min(values) > 0 and max(values) / min(values) >= 8:
            axis.set_xscale("log", base=2)
        names = [str(value) for value in values]
        overlap = sum(map(len, names)) > 45
        slanted: dict[str, Any] = {"rotation": 40, "ha": "right"} if overlap else {}
        axis.set_xticks(places, names, **slanted)
        axis.minorticks_off()
        legend(axis)
    rate.set(ylabel=f"{results[0].baseline.unit}/s", title="Throughput", ylim=(0, None))
    ratio.set(ylabel="baseline / candidate", title="Speed-up with 95 % interval")
    return figure


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def race_figure(
    result: RaceResult, *, recorded: Recorded[RaceResult] = (), dark: bool = False
) -> Figure:
    """The metric against training time and against steps; a cross where the target was reached.

    ``recorded`` races are muted.
    """
    figure, axes = new_figure(2, height=3.4 + 0.2 * len(result.arms), dark=dark)
    for position, arm in enumerate(result.arms):
        hue = PALETTE[position % len(PALETTE)]
        for number, run in enumerate(result.of(arm)):
            steps, seconds, metric = zip(*run.curve, strict=True) if run.curve else ((), (), ())
            for axis, horizontal in zip(axes, (seconds, steps), strict=True):
                label = arm if number == 0 else None
                axis.plot(
                    horizontal,
                    metric,
                    color=hue,
                    lw=1.2,
                    alpha=0.7,
                    ls="-" if run.reached else ":",
                    label=label,
                )
                if run.reached:
                    axis.plot(horizontal[-1], metric[-1], "x", color=hue)
    for style, (label, other) in zip(_muted_styles(), recorded, strict=False):
        for number, run in enumerate(run for run in other.runs if run.curve):
            steps, seconds, metric = zip(*run.curve, strict=True)
            for axis, horizontal in zip(axes, (seconds, steps), strict=True):
                axis.plot(horizontal, metric, color=MUTED, lw=0.8, alpha=0.7, ls=style, zorder=1)
                axis.lines[-1].set_label(label if number == 0 else "_")
    for axis, name in zip(axes, ("training time, s", "steps"), strict=True):
        axis.axhline(
            result.target, color=GREY, ls="--", lw=1, label="target (dotted: never arrived)"
        )
        axis.set(xlabel=name, ylabel=result.metric, title=f"Against {name.split(',')[0]}")
    # Below the axes: the names are long, and curves fill every corner.
    figure.legend(
        handles=axes[0].get_legend_handles_labels()[0],
        loc="outside lower left",
        fontsize=8,
        framealpha=0,
        labelcolor=axes[0].title.get_color(),
    )
    return figure


def memory_figure(found: MemoryComparison, *, dark: bool = False) -> Figure:
    """What is alive when, in one step of each side, on one scale."""
    figure, axes = new_figure(2, dark=dark)
    most = max(max(side.alive, default=0) for side in found.arms) / 2**20
    for axis, side, hue in zip(axes, found.arms, (GREY, BLUE), strict=True):
        axis.fill_between(
            range(len(side.alive)), [size / 2**20 for size in side.alive], color=hue, alpha=0.5
        )
        axis.axhline(side.before / 2**20, color=hue, lw=1, ls="--", label="before the step")
        for begin, name in side.parts:
            axis.annotate(name, (begin, 1.04 * most), fontsize=8, color=axis.title.get_color())
        axis.set(
            ylim=(0, 1.15 * most or 1),
            xlabel="operator of the step",
            ylabel="MiB alive",
            title=f"{side.label}: peak {side.peak_text}",
        )
        legend(axis)
    return figure


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
