"""19's picture, measured: channels of the reader's network before a norm and behind it, with a
bias and without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.module import register_module_forward_hook

from course.measured.sides import both, legend
from labkit.charts import svg
from labkit.charts.svg import EDGE, LINE, WIDTH
from labkit.restore import preserve_rng
from labkit.results import Workload
from labkit.show import Markup
from labkit.text import format_seconds, format_share

# Channels that are drawn, numbers of each that are looked at, bins of a histogram.
CHANNELS, NUMBERS, BINS = 8, 4096, 40
# As in the explorable: deviations of the outputs, below which a change is rounding.
NOTICED = 1e-3
ROW, BAR, GAP = 24.0, 20.0, 40.0
# Of all numbers, the share beyond each end of a chart.
BEYOND = 0.002
SAME, CHANGED, OTHER = "fill baseline", "fill arm5", "line candidate"
ROLES = ("baseline", "candidate")


class Seen(NamedTuple):
    """Of a network's first norm: what it gets and gives, both (channels, numbers)."""

    before: Tensor
    after: Tensor


class Side(NamedTuple):
    """One side of a run; ``seconds`` of a step are None without times."""

    name: str
    seen: Seen
    seconds: float | None


class Channels:
    """A function for `LabPanel(picture=...)`: what a run's two networks give behind a norm.

    The workloads have to be watched. For other results than comparisons it returns "".
    """

    def __init__(self) -> None:
        self._seen: dict[str, Seen] = {}

    def watch(self, make: Callable[..., Workload]) -> Callable[..., Workload]:
        """The same workloads; of a first one of each setting, apart, a step is looked at."""

        @wraps(make)
        def watched(**settings: Any) -> Workload:
            key = _key(settings)
            if key not in self._seen:
                with preserve_rng():
                    self._seen[key] = look(make(**settings).step)
            return make(**settings)

        return watched

    def __call__(self, result: object) -> Markup | str:
        def side(settings: Mapping[str, Any], seconds: float | None) -> Side | None:
            seen = self._seen.get(_key(settings))
            return None if seen is None else Side(str(settings["bias"]), seen, seconds)

        sides = [found for _, found in both(result, side)]
        return draw(sides) if len(sides) == len(ROLES) else ""


def _key(settings: Mapping[str, Any]) -> str:
    return repr(sorted(settings.items()))


def look(step: Callable[[], object]) -> Seen:
    """What the first norm gets and gives in a step; what stands for it where it is folded.

    ValueError where nothing of the kind is called.
    """
    found: list[Seen] = []

    def note(module: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> None:
        if not found and isinstance(module, _BatchNorm | nn.Identity):
            found.append(Seen(_by_channel(given[0]), _by_channel(output)))

    handle = register_module_forward_hook(note)
    try:
        step()
    finally:
        handle.remove()
    if not found:
        raise ValueError("the step calls neither a batch norm nor an nn.Identity in its place")
    return found[0]


def _by_channel(x: Tensor) -> Tensor:
    """The first channels of (N, C, ...), in the CPU's memory: (channels, numbers)."""
    some = x.detach()[:, :CHANNELS].transpose(0, 1).flatten(1)[:, :NUMBERS]
    return some.float().cpu()


def changes(one: Tensor, other: Tensor) -> list[float]:
    """By how much each channel differs, as a root mean square in deviations of the first."""
    by = (one - other).square().mean(1).sqrt()
    return (by / one.std(1).clamp_min(1e-12)).tolist()


# ------------------------------------------------------------------------------------------- drawn


def draw(sides: Sequence[Side]) -> Markup:
    """A bar for each side's step; below, its channels before the norm and behind it."""
    one, other = sides
    parts, top = _steps(sides)
    told = sentence(sides)
    parts.append(svg.text(EDGE, top + LINE, told, "bold"))
    top += 2.8 * LINE
    wide = (WIDTH - 2 * EDGE - GAP) / 2
    charts = (
        ("before the norm", one.seen.before, other.seen.before),
        ("behind it", one.seen.after, other.seen.after),
    )
    for number, (title, *pair) in enumerate(charts):
        left = EDGE + number * (wide + GAP)
        parts.append(svg.text(left, top - 10, title, "small"))
        # What differs before the norm is the bias.
        by = changes(*pair) if number else [0.0] * CHANNELS
        parts += _chart(pair, by, left, wide, top)
    top += ROW * CHANNELS + 2 * LINE
    entries = [(SAME, one.name), (OTHER, other.name), (CHANGED, "changed")]
    parts += legend(entries, EDGE, top)
    return svg.picture(top + 0.6 * LINE, told, parts)


def sentence(sides: Sequence[Side]) -> str:
    """Whether both sides give the same behind the norm."""
    one, other = sides
    by = max(changes(one.seen.after, other.seen.after))
    if by <= NOTICED:
        return "Behind the norm nothing has changed but rounding."
    return f"The norm's outputs differ by {format_share(by)} of a deviation."


def _steps(sides: Sequence[Side]) -> tuple[list[Markup], float]:
    """A line and a bar for each side, and their foot."""
    longest = max(side.seconds or 0.0 for side in sides)
    parts: list[Markup] = []
    top = 0.0
    for role, side in zip(ROLES, sides, strict=True):
        words = "" if side.seconds is None else f"{format_seconds(side.seconds)} per step"
        parts += svg.named(top + 0.7 * LINE, f"{role}: {side.name}", words)
        if side.seconds:
            wide = (WIDTH - 2 * EDGE) * side.seconds / longest
            parts.append(svg.rect(EDGE, top + LINE, wide, 0.4 * LINE, f"fill {role}"))
        top += 1.7 * LINE
    return parts, top


def _chart(
    pair: Sequence[Tensor], by: Sequence[float], left: float, wide: float, top: float
) -> Iterator[Markup]:
    """Histograms, a row for each channel: the first side's as bars, the other's as an outline."""
    low, high = _range(torch.cat(list(pair)))
    for channel, (one, other) in enumerate(zip(*pair, strict=True)):
        y = top + ROW * (channel + 1)
        bars, line = _bins(one, low, high), _bins(other, low, high)
        most = max(*bars, *line)
        look = CHANGED if by[channel] > NOTICED else SAME
        pitch = wide / BINS
        for place, count in enumerate(bars):
            if count:
                tall = BAR * count / most
                yield svg.rect(left + pitch * place, y - tall, pitch - 1, tall, look)
        outline = []
        for place, count in enumerate(line):
            x, level = left + pitch * place, y - BAR * count / most
            outline += [(x, level), (x + pitch, level)]
        yield svg.path(outline, OTHER)
    for value in (low, high):
        x = left if value == low else left + wide
        anchor = "start" if value == low else "end"
        foot = top + ROW * CHANNELS + 0.8 * LINE
        yield svg.text(x, foot, f"{value:.1f}".replace("-", "−"), "small", anchor)


def _range(values: Tensor) -> tuple[float, float]:
    """From the lowest to the highest number, without those that are rare."""
    flat = values.flatten()
    low, high = torch.quantile(flat, torch.tensor([BEYOND, 1 - BEYOND])).tolist()
    return (low, high) if high > low else (low - 1, low + 1)


def _bins(values: Tensor, low: float, high: float) -> list[float]:
    return torch.histc(values.clamp(low, high), BINS, low, high).tolist()
