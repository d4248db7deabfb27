"""17: what a tool shows of a fault that is planted in the reader's network, and its price.

The tools are real ones. In a copy of the network the fifth box divides 0 by 0; each side's tool
looks at one training step of it, and its row shows what it saw, as in the moving picture.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from labkit import seed_all
from labkit.charts import svg
from labkit.charts.svg import EDGE, LINE, WIDTH
from labkit.restore import preserve_flags, preserve_rng
from labkit.results import Comparison
from labkit.show import Markup
from labkit.text import format_seconds

# The profiler's own messages stay out of the page.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")
# The box that divides 0 by 0, counted from 0.
FAULTY = 4
LOSS = "the loss"
CELL, BAR, GAP = 26.0, 10.0, 6.0
HUES = {"baseline": "fill baseline", "candidate": "fill candidate"}
FINE, NAN, NAMED, NOTHING = "✓", "nan", "✗", ""

Network = Callable[[int], nn.Sequential]
FirstBad = Callable[..., str | None]


class Seen(NamedTuple):
    """What a tool showed: a mark for each box and the loss, and a sentence."""

    marks: Sequence[str]
    words: str


class Row(NamedTuple):
    """A side: its tool, seconds per update, and what the tool shows."""

    role: str
    tool: str
    seconds: float
    seen: Seen


class DivideZero(nn.Module):
    """The planted fault."""

    def forward(self, x: Tensor) -> Tensor:
        return (x - x) / (x - x)


class Evidence:
    """For a panel's ``picture``: from a Comparison to what each side's tool shows and costs.

    ``network(width)`` is a sequence of boxes, each of them an `nn.Sequential`; ``updates`` are
    those in a step of the lab; ``own`` is the reader's `first_bad`. "" for other results.
    """

    def __init__(
        self, network: Network, inputs: Tensor, targets: Tensor, *, updates: int, own: FirstBad
    ) -> None:
        self._network, self._inputs, self._targets = network, inputs, targets
        self._updates, self._own = updates, own

    def __call__(self, result: object) -> str:
        if not isinstance(result, Comparison) or result.missing:
            return ""
        rows = []
        for role, side, each in zip(HUES, result.arms, result.step_times, strict=True):
            tool, width = side.settings["tool"], side.settings["width"]
            seconds = each / self._updates
            rows.append(Row(role, tool, seconds, self.seen(tool, width)))
        return draw(rows)

    def seen(self, tool: str, width: int) -> Seen:
        """What a tool shows of the planted fault; random numbers and switches are as before."""
        with preserve_rng(), preserve_flags():
            seed_all(0)
            net = self._network(width)
            box = net[FAULTY]
            if not isinstance(box, nn.Sequential):
                raise TypeError(f"box {FAULTY + 1} is a {type(box).__name__}; use nn.Sequential")
            box.append(DivideZero())
            if tool == "yours":
                return _own(self._own(net, self._inputs), len(net))
            show = TOOLS.get(tool.partition(",")[0], nothing)
            return show(net, self._inputs, self._targets)


# ------------------------------------------------------------------------------------ the tools


def nothing(net: nn.Sequential, inputs: Tensor, targets: Tensor) -> Seen:
    """No tool, or one that does not look at numbers."""
    return Seen([NOTHING] * (len(net) + 1), "shows only that the loss is nan")


def outputs(net: nn.Sequential, inputs: Tensor, targets: Tensor) -> Seen:
    """Whether the result of each box is finite, by hooks."""
    marks: list[str] = []

    def look(box: nn.Module, given: tuple[Tensor, ...], result: Tensor) -> None:
        marks.append(FINE if result.isfinite().all() else NAN)

    for box in net:
        box.register_forward_hook(look)
    loss = F.cross_entropy(net(inputs), targets)
    marks.append(FINE if loss.isfinite() else NAN)
    if NAN not in marks:
        return Seen(marks, "all results are finite")
    return Seen(marks, f"box {marks.index(NAN) + 1} is the first with nan")


def anomaly(net: nn.Sequential, inputs: Tensor, targets: Tensor) -> Seen:
    """Which function of the backward pass is the first that returns nan, by anomaly mode."""
    marks: list[str] = [NOTHING] * (len(net) + 1)
    with torch.autograd.set_detect_anomaly(True), warnings.catch_warnings():
        # It warns with the lines of the forward pass.
        warnings.simplefilter("ignore")
        hidden = net(inputs)
        loss = F.cross_entropy(hidden, targets)
        of_loss = _functions(loss.grad_fn, until=hidden.grad_fn)
        try:
            loss.backward()
        except RuntimeError as error:
            function = str(error).split("'")[1]
        else:
            return Seen(marks, "no function of the backward pass returns nan")
    if function in of_loss:
        marks[-1] = NAMED
        return Seen(marks, f"names {LOSS} ({function})")
    return Seen(marks, f"names {function}")


def _functions(node: Any, until: Any) -> set[str]:
    """The names of the backward pass's functions from one to another, without that."""
    if node is None or node is until:
        return set()
    below = (_functions(each, until) for each, _ in node.next_functions)
    return {node.name()}.union(*below)


def profiler(net: nn.Sequential, inputs: Tensor, targets: Tensor) -> Seen:
    """How long the product of each box takes in the forward pass, and the loss, in microseconds."""
    names = ("aten::linear", "aten::cross_entropy_loss")
    # The first run also loads what it needs.
    for _ in range(2):
        with profile(activities=[ProfilerActivity.CPU]) as taken:
            F.cross_entropy(net(inputs), targets)
    found = [event for event in taken.events() if event.name in names]
    found.sort(key=lambda event: event.time_range.start)
    marks = [f"{event.time_range.elapsed_us():.0f}" for event in found]
    return Seen(marks, "shows microseconds, and no nan")


def _own(name: str | None, boxes: int) -> Seen:
    """What the reader's function says: the name of a module, such as 4.2."""
    marks: list[str] = [NOTHING] * (boxes + 1)
    first = str(name).split(".", maxsplit=1)[0]
    if first.isdecimal() and int(first) < boxes:
        marks[int(first)] = NAMED
        return Seen(marks, f"names module {name}, in box {int(first) + 1}")
    return Seen(marks, f"says {name!r}")


TOOLS = {"outputs": outputs, "anomaly": anomaly, "profiler": profiler}


# ---------------------------------------------------------------------------------- the picture


def draw(rows: Sequence[Row]) -> Markup:
    """Boxes and loss above; for each side what its tool shows of them, and a bar of its time."""
    columns = len(rows[0].seen.marks)
    longest = max(row.seconds for row in rows)
    parts = [svg.text(EDGE, 0.7 * LINE, f"planted: box {FAULTY + 1} divides 0 by 0", "small")]
    parts += _boxes(columns, LINE)
    top = LINE + CELL + GAP
    for row in rows:
        each = f"{format_seconds(row.seconds)} per update"
        parts += svg.named(top + 0.75 * LINE, row.role, each, row.tool)
        parts += _marks(row.seen.marks, top + LINE)
        top += LINE + CELL + 2
        wide = (WIDTH - 2 * EDGE) * row.seconds / longest
        parts.append(svg.rect(EDGE, top, wide, BAR, HUES[row.role]))
        top += BAR + 2 * GAP
    told = []
    for row in rows:
        told.append(f"{row.tool}: {row.seen.words}.")
        parts.append(svg.text(EDGE, top + 0.7 * LINE, told[-1]))
        top += LINE
    words = "; ".join(f"{row.role}: {format_seconds(row.seconds)} per update" for row in rows)
    return svg.picture(top + 4, f"{words}. {' '.join(told)}", parts)


def _cells(columns: int) -> Iterator[tuple[float, float]]:
    """Left edge and width of each column."""
    wide = (WIDTH - 2 * EDGE) / columns
    for column in range(columns):
        yield EDGE + wide * column + 2, wide - 4


def _boxes(columns: int, top: float) -> list[Markup]:
    parts = []
    for number, (left, wide) in enumerate(_cells(columns)):
        faulty = number == FAULTY
        name = "loss" if number == columns - 1 else str(number + 1)
        parts.append(svg.rect(left, top, wide, CELL, "fill slower" if faulty else "field"))
        kind = "bold" if faulty else ""
        parts.append(svg.text(left + wide / 2, top + 18, name, kind, "middle"))
    return parts


def _marks(marks: Sequence[str], top: float) -> list[Markup]:
    parts = []
    for mark, (left, wide) in zip(marks, _cells(len(marks)), strict=True):
        kind = "fill slower" if mark in (NAN, NAMED) else "field"
        parts.append(svg.rect(left, top, wide, CELL, kind))
        parts.append(svg.text(left + wide / 2, top + 18, mark, "", "middle"))
    return parts
