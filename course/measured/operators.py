"""A profiler's events as a picture: operators over time, each above what called it.

`torch.profiler` writes such timelines for chrome://tracing; this one stands in a notebook.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.autograd import DeviceType

from labkit.plots import BLUE, GREY, ORANGE, PURPLE, RED, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BACKWARD = "autograd::engine"
# A name stands in its bar where that is at least this part of the picture.
_WIDE = 0.09


@dataclass(frozen=True)
class Span:
    """One event: milliseconds from the first one's beginning, and how many operators are around it.

    ``mark``: it is no operator but a `torch.profiler.record_function`, such as an optimizer's step.
    """

    name: str
    begin: float
    end: float
    depth: int = 0
    mark: bool = False
    backward: bool = False


def spans(taken: Any) -> list[Span]:
    """What the CPU's threads did under a `torch.profiler.profile`, in order of its beginning.

    ValueError where nothing was recorded.
    """
    events = [
        each
        for each in taken.events()
        if each.device_type == DeviceType.CPU and not each.is_async and each.time_range.end > 0
    ]
    if not events:
        raise ValueError("the profiler recorded no operator: leave its with-block first")
    first = min(each.time_range.start for each in events)
    events.sort(key=lambda each: (each.time_range.start, -each.time_range.end))
    found: list[Span] = []
    around: dict[int, list[Span]] = {}
    for event in events:
        begin = (event.time_range.start - first) / 1000
        end = (event.time_range.end - first) / 1000
        open_ones = around.setdefault(event.thread, [])
        while open_ones and open_ones[-1].end < end:
            open_ones.pop()
        mark = bool(event.is_user_annotation)
        backward = event.name.startswith(_BACKWARD) or any(each.backward for each in open_ones)
        depth = sum(not each.mark for each in open_ones)
        found.append(Span(event.name, begin, end, depth, mark, backward))
        open_ones.append(found[-1])
    return found


def uncovered(found: Iterable[Span]) -> float:
    """The share of the time, from the first beginning to the last end, in which no operator ran.

    That is Python: lists, loops, a `DataLoader`'s code; or waiting.
    """
    every = list(found)
    whole = max(each.end for each in every) - min(each.begin for each in every)
    busy, until = 0.0, 0.0
    for each in sorted((each for each in every if not each.mark), key=lambda each: each.begin):
        busy += max(0.0, each.end - max(each.begin, until))
        until = max(until, each.end)
    return 1 - busy / whole if whole else 0.0


def timeline(
    taken: Any, highlight: Sequence[str] = (), *, levels: int = 3, dark: bool = False
) -> Figure:
    """Draw the operators of a `torch.profiler.profile` over milliseconds, callers above callees.

    The upper row has marks; names in ``highlight`` are red. Deeper than ``levels`` is left out.
    """
    found = spans(taken)
    height = 1.1 + 0.35 * (levels + 1)
    figure, (axis,) = new_figure(width=9, height=height, dark=dark)
    whole = max(each.end for each in found)
    drawn = [each for each in found if each.mark or each.depth < levels]
    for each in drawn:
        row = 0 if each.mark else each.depth + 1
        bar = axis.broken_barh([(each.begin, each.end - each.begin)], (row - 0.4, 0.8))
        bar.set(facecolor=_colour(each, highlight), edgecolor=axis.get_facecolor(), linewidth=0.4)
        if each.end - each.begin >= _WIDE * whole:
            middle = (each.begin + each.end) / 2
            axis.text(middle, row, _short(each.name), ha="center", va="center", fontsize=7)
    rows = ["marks", "operators", *(f"called, {level}" for level in range(1, levels))]
    axis.set_yticks(range(levels + 1), rows[: levels + 1])
    axis.set(xlim=(0, whole), ylim=(levels + 0.6, -0.6), xlabel="ms")
    axis.set_title(f"{uncovered(found):.0%} of the time no operator runs")
    return figure


def _colour(span: Span, highlight: Sequence[str]) -> str:
    if span.name in highlight:
        return RED
    if span.mark:
        return GREY
    return PURPLE if span.backward else (BLUE if span.depth else ORANGE)


def _short(name: str) -> str:
    """The part of a name that tells something, at most 24 letters."""
    for begin in ("aten::", f"{_BACKWARD}::evaluate_function: "):
        name = name.removeprefix(begin)
    return name if len(name) <= 24 else f"{name[:23]}…"
