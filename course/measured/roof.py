"""The roofline of notebook 06, measured: the reader's steps under the roofs of their machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple, Protocol

import torch

from course.machine import copy_rate, matmul_rate
from course.measured.elsewhere import Found, alike, in_lines
from course.measured.labels import Name, Point, Room, Taken, beside
from course.measured.work import Work, work_of
from labkit import Lab, pick_device, seed_all
from labkit.charts import svg
from labkit.charts.plot import Box, field
from labkit.charts.svg import EDGE, LINE, WIDTH
from labkit.comparing import measuring
from labkit.restore.switches import torch_flags
from labkit.results import Comparison, Measurement
from labkit.show import Markup
from labkit.text import format_rate, format_short

FULL, HALF = "fp32", "bf16"
TONES = {FULL: "baseline", HALF: "candidate"}


class Roofs(NamedTuple):
    """The most that a machine does: operations per second by format, bytes per second."""

    peaks: dict[str, float]
    bandwidth: float

    def at(self, form: str, intensity: float) -> float:
        """Operations per second at so many operations per byte."""
        return min(self.peaks[form], self.bandwidth * intensity)


class Dot(NamedTuple):
    """One side: its label, its format, what a step does, and in how many seconds."""

    label: str
    form: str
    work: Work
    seconds: float

    @property
    def rate(self) -> float:
        """Operations per second."""
        return self.work.flops / self.seconds


class Recorded(Protocol):
    """Recorded runs of other machines, as `course.records.reference` has them."""

    def matching(self, own: Any) -> Sequence[Found]: ...


def under_roofs(lab: Lab, recorded: Recorded | None = None) -> Callable[[object], str]:
    """For a panel's ``picture``: both sides of a Comparison as dots under measured roofs.

    A side's format is its ``precision``; whatever is not "fp32" is taken for bf16. What the best
    machine of ``recorded`` gained is written below. "" for other results.
    """

    def picture(result: object) -> str:
        if not isinstance(result, Comparison) or result.missing:
            return ""
        # 0: not known.
        threads = result.threads or None
        dots = [_dot(lab, side, threads) for side in result.arms]
        found = alike(result, recorded.matching(result)) if recorded else []
        return draw(measured_roofs(threads), dots, in_lines(found))

    return picture


@cache
def measured_roofs(threads: int | None) -> Roofs:
    """The best products in both formats, and a copy in memory: a second, once per process."""
    device = pick_device()
    # Of the convolutions, too: CUDA rounds their inputs to TF32 unless told otherwise.
    rounded = device.type == "cuda" and bool(torch_flags().get("cudnn.allow_tf32"))
    with measuring(threads):
        full = matmul_rate(torch.float32, device, tf32=rounded)
        half = matmul_rate(torch.bfloat16, device)
        bandwidth = copy_rate(device, device)
    peaks = {FULL: full, HALF: half}
    return Roofs({form: rate for form, rate in peaks.items() if rate}, bandwidth)


def _dot(lab: Lab, side: Measurement, threads: int | None) -> Dot:
    """What a step of this side does, of a workload that is built once more."""
    form = FULL if side.settings["precision"] == FULL else HALF
    with measuring(threads):
        seed_all(lab.seed)
        assert callable(lab.make_workload), "its workload is built here"
        work = work_of(lab.make_workload(**side.settings).step)
    return Dot(str(side.settings["precision"]), form, work, side.median)


# ------------------------------------------------------------------------------------ the picture


def draw(roofs: Roofs, dots: Sequence[Dot], notes: Sequence[str] = ()) -> Markup:
    """Operations per byte across, operations per second upwards, as in the explorable."""
    box = _plane(roofs, dots)
    parts = [field(box), *_axes(box)]
    for form in roofs.peaks:
        parts += _roof(roofs, form, box)
    parts += _arrow(dots, box)
    for dot in dots:
        parts += _under(roofs, dot, box)
    parts += [name.drawn() for name in names(roofs, dots, box)]
    y = box.bottom + 2.6 * LINE
    for line in _notes(roofs, dots):
        parts.append(svg.text(EDGE, y, line, "small"))
        y += 0.75 * LINE
    # The first is the gain, for who has none here.
    for number, line in enumerate(notes):
        y += 0 if number else 6
        parts.append(svg.text(EDGE, y, line, "small" if number else "bold"))
        y += 0.75 * LINE
    return svg.picture(y, ". ".join(_in_words(roofs, dot) for dot in dots), parts)


def _plane(roofs: Roofs, dots: Sequence[Dot]) -> Box:
    """Room for the roofs with their corners, and for the dots; both axes in decades."""
    across = [dot.work.intensity for dot in dots]
    corners = [peak / roofs.bandwidth for peak in roofs.peaks.values()]
    up = [dot.rate for dot in dots]
    least, most = min(across) / 16, 8 * max(*across, *corners)
    low, high = min(*up, *roofs.peaks.values()) / 3, 2.5 * max(*up, *roofs.peaks.values())
    left, right, bottom, top = map(math.log10, (least, most, low, high))
    return Box(76.0, 30.0, WIDTH - EDGE, 214.0, (left, right), (bottom, top))


def _axes(box: Box) -> list[Markup]:
    parts = [svg.text(box.left, box.top - 10, "operations per second", "small")]
    parts.append(svg.text(box.right, box.bottom + 40, "operations per byte moved", "small", "end"))
    for power in _decades(*box.up):
        y = box.y(power)
        parts.append(svg.path([(box.left, y), (box.right, y)], "grid"))
        parts.append(svg.text(box.left - 6, y + 5, format_short(10.0**power), "small", "end"))
    for power in _decades(*box.across):
        parts.append(svg.below(box.x(power), box.bottom + 20, format_short(10.0**power)))
    return parts


def _decades(low: float, high: float) -> range:
    return range(math.ceil(low), math.floor(high) + 1)


def _place(box: Box, intensity: float, rate: float) -> tuple[float, float]:
    return box.x(math.log10(intensity)), box.y(math.log10(rate))


def _line(roofs: Roofs, form: str, box: Box) -> list[Point]:
    """A roof's corners: up with the bytes, then flat at the peak."""
    corner = roofs.peaks[form] / roofs.bandwidth
    left, right = (10.0**end for end in box.across)
    left = max(left, 10.0 ** box.up[0] / roofs.bandwidth)
    ends = [at for at in (left, corner) if at <= corner] or [left]
    return [_place(box, at, roofs.at(form, at)) for at in (*ends, right)]


def _roof(roofs: Roofs, form: str, box: Box) -> list[Markup]:
    return [svg.path(_line(roofs, form, box), f"line {TONES[form]}")]


def _under(roofs: Roofs, dot: Dot, box: Box) -> list[Markup]:
    """A dot, and a dashed line up to its roof."""
    parts, tone = [], TONES[dot.form]
    x, y = _place(box, dot.work.intensity, dot.rate)
    if dot.form in roofs.peaks:
        _, top = _place(box, dot.work.intensity, roofs.at(dot.form, dot.work.intensity))
        if y - top > 10:
            parts.append(svg.path([(x, y), (x, top)], f"line thin {tone}", "3 4"))
    return [*parts, svg.dots([(x, y)], f"end {tone}")]


def names(roofs: Roofs, dots: Sequence[Dot], box: Box) -> list[Name]:
    """Those of the roofs at the right, and of the dots where they meet no other name or dot."""
    found = [_of_roof(roofs, form, box) for form in roofs.peaks]
    places = [_place(box, dot.work.intensity, dot.rate) for dot in dots]
    plot = Room(box.left, box.top, box.right, box.bottom)
    # The last is the arrow.
    lines = [*(_line(roofs, form, box) for form in roofs.peaks), places[:2]]
    for dot, place in zip(dots, places, strict=True):
        found.append(beside(place, dot.label, Taken(plot, found, places, lines)))
    return found


def _of_roof(roofs: Roofs, form: str, box: Box) -> Name:
    """Above the highest roof, below any other."""
    peak = roofs.peaks[form]
    y = _line(roofs, form, box)[-1][1] + (-8 if peak == max(roofs.peaks.values()) else 18)
    words = f"roof of {form}: {format_short(peak)}"
    return Name(box.right - 4, y, words, "small", "end")


def _arrow(dots: Sequence[Dot], box: Box) -> list[Markup]:
    """From the baseline to the candidate, where there is room for it."""
    (x1, y1), (x2, y2) = (_place(box, dot.work.intensity, dot.rate) for dot in dots[:2])
    length = math.hypot(x2 - x1, y2 - y1)
    if length < 24:
        return []
    dx, dy = (x2 - x1) / length, (y2 - y1) / length
    tip, back = (x2 - 8 * dx, y2 - 8 * dy), (x2 - 16 * dx, y2 - 16 * dy)
    wings = [(back[0] + side * 4 * dy, back[1] - side * 4 * dx) for side in (1, -1)]
    line = [(x1 + 8 * dx, y1 + 8 * dy), tip]
    return [svg.path(line, "line arm3"), svg.path([wings[0], tip, wings[1]], "line arm3")]


def _notes(roofs: Roofs, dots: Sequence[Dot]) -> list[str]:
    """What the gaps are, and where a figure needs a word."""
    lines = ["A dashed gap is time that is not spent on products."]
    return lines + list(dict.fromkeys(filter(None, (_why_above(roofs, dot) for dot in dots))))


def _why_above(roofs: Roofs, dot: Dot) -> str:
    """Why a dot may lie above its roof; "" for one below."""
    if dot.form not in roofs.peaks or dot.rate <= roofs.at(dot.form, dot.work.intensity):
        return ""
    if dot.rate > roofs.peaks[dot.form]:
        return f"{dot.form} is above its roof: emulation differs by shape."
    return "A dot above the slope: a cache keeps what it moves."


def _in_words(roofs: Roofs, dot: Dot) -> str:
    """What a dot shows, for who does not see it."""
    words = f"{dot.label}: {format_rate(dot.rate, 'operations')}"
    if dot.form in roofs.peaks:
        roof = roofs.at(dot.form, dot.work.intensity)
        words += f", {dot.rate / roof:.0%} of its roof"
    return words
