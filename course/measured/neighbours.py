"""21: whose outputs a bright spot changes, in the reader's own networks; above, every run."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import chain
from statistics import fmean, median

import torch
from torch import Tensor, nn

from course.measured import curves
from labkit.charts import svg
from labkit.charts.plot import Box, axes
from labkit.charts.svg import EDGE, LINE, WIDTH
from labkit.racing import RaceResult, RaceRun
from labkit.show import Markup
from labkit.text import format_short

LEFT, CHART = 72.0, 150.0
# Pixels of a square and the gap behind it; channels that are shown.
SQUARE, GAP, CHANNELS = 30.0, 4.0, 8
# Images in the picture. A noisy metric is lucky at times: no side shall win by one look.
SHOWN, LOOKS = 4, 3
# Images that are asked one by one: each is a call of its own.
ONE_BY_ONE = 100
# So many runs are kept: more than a race has.
FEW = 60
# A smaller change, in deviations of all outputs, is rounding.
CLEAR = 1e-4
# The spot: so much brighter than the images' deviation.
BRIGHTER = 4.0
HUES = ("baseline", "candidate")
TINTS = 5

Evaluate = Callable[[], float]


@dataclass
class Noted:
    """What was seen of one run; ``grid`` and ``changed`` are (images, channels), newest last look.

    ``side`` has the values of its settings, ``mean`` and ``deviation`` are of all outputs.
    """

    side: tuple[str, ...]
    metrics: list[float] = field(default_factory=list)
    grid: list[list[float]] = field(default_factory=list)
    changed: list[list[bool]] = field(default_factory=list)
    mean: float = math.nan
    deviation: float = math.nan


class Neighbours:
    """A function for `LabPanel(picture=...)` that remembers the networks of the runs it draws.

    "" for all but a race to a large metric, such as an accuracy, of two sides that have begun.

    >>> first = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
    >>> net = nn.Sequential(*first, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    >>> neighbours, images = Neighbours(), torch.randn(4, 3, 8, 8)
    >>> look = neighbours.beside(net, images, torch.zeros(4), False, "batch norm")
    >>> 0 <= look() <= 1, [all(row) for row in neighbours.latest.changed]
    (True, [True, True, True, True])
    """

    def __init__(self) -> None:
        self._noted: deque[Noted] = deque(maxlen=FEW)

    @property
    def latest(self) -> Noted:
        """Of the newest run; IndexError before there was one."""
        return self._noted[-1]

    def beside(
        self, net: nn.Sequential, images: Tensor, labels: Tensor, forgotten: bool, *side: str
    ) -> Evaluate:
        """The share of ``images`` that ``net`` gets right, a mean of the last `LOOKS` looks.

        ``forgotten``: one image at a time, in training mode. Each look notes, too, what a spot in
        the first image changes. ``net`` begins with a convolution and a norm; ``images``: (N, 3, H,
        W), as it gets them; ``side``: the values of its settings.
        """
        noted = Noted(side)
        self._noted.append(noted)
        shares: deque[float] = deque(maxlen=LOOKS)

        def look() -> float:
            _note(noted, net, images[:SHOWN])
            shares.append(accuracy(net, images, labels, forgotten))
            noted.metrics.append(fmean(shares))
            return noted.metrics[-1]

        return look

    def of(self, run: RaceRun, unlike: Sequence[str] = ()) -> Noted | None:
        """What was noted of a run, which is found by its metrics; ``unlike``: no such side.

        Two sides may have the same metrics, where nothing is learned.
        """
        wanted = [repr(value) for _, _, value in run.curve]
        for noted in reversed(self._noted):
            same = wanted and [repr(value) for value in noted.metrics] == wanted
            if same and noted.side != tuple(unlike) and _is_named(noted.side, run.arm):
                return noted
        return None

    def __call__(self, result: object) -> str:
        if not isinstance(result, RaceResult) or not result.higher_is_better:
            return ""
        if len(result.arms) != 2 or not all(run.curve for run in result.runs):
            return ""
        before, after = (result.of(arm)[-1] for arm in result.arms)
        candidate = self.of(after)
        baseline = self.of(before, candidate.side if candidate else ())
        return draw(result, (baseline, candidate))


def _is_named(side: Sequence[str], arm: str) -> bool:
    """Whether a side has all values that its name in a race has; "baseline" has none."""
    return all(value in side for value in re.findall(r"'([^']*)'", arm))


@torch.no_grad()
def accuracy(net: nn.Module, images: Tensor, labels: Tensor, forgotten: bool) -> float:
    """The share of images that are classified right: in eval(), or one by one where forgotten."""
    net.train(forgotten)
    parts = images[:ONE_BY_ONE].split(1) if forgotten else (images,)
    found = torch.cat([net(part).argmax(1) for part in parts])
    net.train()
    return (found == labels[: len(found)]).float().mean().item()


@torch.no_grad()
def _note(noted: Noted, net: nn.Sequential, images: Tensor) -> None:
    """Note the outputs of convolution and norm, and which of them a bright spot changes."""
    # A copy: in training even a look moves running averages.
    first = deepcopy(net[:2]).train()
    lit = images.clone()
    high, wide = (size // 4 for size in images.shape[2:])
    lit[0, :, high : 3 * high, wide : 3 * wide] += BRIGHTER * images.std()
    before, after = (first(each).float()[:, :CHANNELS] for each in (images, lit))
    noted.mean, noted.deviation = before.mean().item(), before.std().item()
    far = (after - before).abs().amax((2, 3)) > CLEAR * before.std()
    noted.changed = far.tolist()
    noted.grid = before.mean((2, 3)).tolist()


# --------------------------------------------------------------------------------------- drawing


def draw(result: RaceResult, notes: Sequence[Noted | None]) -> Markup:
    """Two names, the metric of every run by its steps, and the outputs of both networks."""
    names = names_of(result, notes)
    words = [in_words(result.of(arm)) for arm in result.arms]
    top = LINE * 3 + 8
    last = max(run.curve[-1][0] for run in result.runs)
    values = [value for run in result.runs for _, _, value in run.curve if math.isfinite(value)]
    high = 1.1 * max(result.target, *values)
    box = Box(LEFT, top, WIDTH - EDGE, top + CHART, (0, 1.03 * last), (0, high))
    parts = axes(box, f"{result.metric}, {result.seeds}")
    for number, (name, hue) in enumerate(zip(names, HUES, strict=True), 1):
        parts.append(svg.rect(EDGE, LINE * number - 11, 13, 13, f"fill {hue}"))
        parts += svg.named(LINE * number, name, words[number - 1], left=28)
    for arm, hue in zip(result.arms, HUES, strict=True):
        parts += chain.from_iterable(line(run, box, hue) for run in result.of(arm))
    y = box.y(result.target)
    parts.append(svg.path([(box.left, y), (box.right, y)], "one", "5 4"))
    parts.append(svg.text(box.left + 6, y - 7, f"target {result.target:g}"))
    parts.append(svg.text(WIDTH - EDGE, box.bottom + 44, "steps", "small", "end"))
    parts.append(svg.text(EDGE, box.bottom + 44, "● arrived   × did not", "small"))
    foot = box.bottom + 3 * LINE + 6
    said = "; ".join(f"{name}: {word}" for name, word in zip(names, words, strict=True))
    if None in notes:
        return svg.picture(box.bottom + 2 * LINE + 8, said, parts)
    heading = "A spot of image 1 gets brighter: outputs that change"
    parts.append(svg.text(EDGE, foot, heading, "bold"))
    for noted, name, hue, left in zip(notes, names, HUES, (24.0, WIDTH / 2 + 24), strict=True):
        assert noted is not None
        parts += grid(noted, name, hue, left, foot + LINE)
        others = sum(map(any, noted.changed[1:]))
        said += f"; {name}: a spot changes {others} other images"
    bottom = foot + 2 * LINE + len(notes[0].changed) * (SQUARE + GAP)  # type: ignore[union-attr]
    parts += legend(bottom + LINE)
    return svg.picture(bottom + 2 * LINE, said, parts)


def names_of(result: RaceResult, notes: Sequence[Noted | None]) -> list[str]:
    """What tells the sides apart, in the words of their settings: ``batch norm``."""
    before, after = notes
    if before is None or after is None:
        return [re.sub(r"\w+=|'", "", arm) for arm in result.arms]
    pairs = list(zip(before.side, after.side, strict=True))
    differ = [pair for pair in pairs if pair[0] != pair[1]] or pairs
    return [", ".join(pair[number] for pair in differ) for number in range(2)]


def in_words(runs: Sequence[RaceRun]) -> str:
    """``3 of 3 arrive, 7.1 ms per step``."""
    each = [1000 * run.curve[-1][1] / run.curve[-1][0] for run in runs]
    arrived = sum(run.reached for run in runs)
    return f"{arrived} of {len(runs)} arrive, {format_short(median(each))} ms per step"


def line(run: RaceRun, box: Box, hue: str) -> list[Markup]:
    """The metric of a run, and a mark at its end."""
    points = [(box.x(step), box.y(value)) for step, _, value in run.curve if math.isfinite(value)]
    if not points:
        return []
    parts = [svg.path(points, f"line thin {hue}")]
    if run.reached:
        return [*parts, svg.dots(points[-1:], f"end {hue}")]
    return [*parts, curves.cross(*points[-1], f"line never {hue}")]


def grid(noted: Noted, name: str, hue: str, left: float, top: float) -> list[Markup]:
    """Each row an image, each square a channel: its mean as grey, what changes in purple."""
    size = f"mean {rounded(noted.mean)}, deviation {rounded(noted.deviation)}"
    parts = [svg.rect(left, top - 11, 13, 13, f"fill {hue}"), svg.text(left + 20, top, name)]
    parts.append(svg.text(left, top + 20, size, "small"))
    values = list(chain.from_iterable(noted.grid))
    low, span = min(values), (max(values) - min(values)) or 1.0
    for image, row in enumerate(noted.grid):
        y = top + LINE + 6 + image * (SQUARE + GAP)
        parts.append(svg.text(left - 6, y + 20, str(image + 1), "small", "end"))
        for channel, value in enumerate(row):
            x = left + channel * (SQUARE + GAP)
            tint = 0.1 + 0.5 * round(TINTS * (value - low) / span) / TINTS
            if noted.changed[image][channel]:
                parts.append(square(x, y, "fill arm5", 0.9))
            else:
                parts.append(square(x, y, "fill baseline", tint))
    return parts


def rounded(value: float) -> str:
    """``0.03``, ``6,400``, ``-2.7e+25``."""
    if abs(value) >= 1e6:
        return f"{value:.1e}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def square(x: float, y: float, kind: str, opacity: float) -> Markup:
    """A square, as strong as it is told."""
    number = svg.number
    size = {"width": number(SQUARE), "height": number(SQUARE)}
    style = f"fill-opacity:{opacity:.2f}"
    return svg.element("rect", x=number(x), y=number(y), kind=kind, style=style, **size)


def legend(y: float) -> list[Markup]:
    """What the squares mean."""
    return [
        square(24, y - 12, "fill arm5", 0.9),
        svg.text(64, y + 8, "changes", "small"),
        square(160, y - 12, "fill baseline", 0.35),
        svg.text(200, y + 8, "the same; each row an image, each square a channel", "small"),
    ]
