"""16's picture, measured: whose memory a batch has, and what making it is of the reader's step."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from course.measured.sides import legend
from labkit.charts import svg
from labkit.charts.svg import EDGE, LINE, WIDTH
from labkit.device import synchronize
from labkit.results import Comparison
from labkit.show import Markup
from labkit.text import format_seconds, format_share

# Of the explorable: cells with the ribbons of both names. A batch of many images has fewer cells.
CELLS, HIGH, RIBBON = 32, 18.0, 4.0
# Of a list, the space between its arrays; the bar of a step.
GAP, BAR = 5.0, 14.0
ARRAY, TENSOR, REST = "fill arm5", "fill arm3", "fill baseline"
SHARED, COPIED = "shared", "copied"
# The setting ``work`` of a step that is the call and nothing else.
ALONE = "call alone"
# Calls of which the fastest counts.
CALLS = 15
# A smaller share of a step is not told in figures.
LEAST = 0.001

Convert = Callable[..., torch.Tensor]


class Side(NamedTuple):
    """One side: the fate of its batch, seconds of making it and of the step around it.

    ``pieces``: the arrays that were given; ``numbers``: of them all.
    """

    name: str
    fate: str
    pieces: int
    numbers: int
    making: float
    step: float

    @property
    def share(self) -> float:
        """The share of the step that making the tensor takes."""
        return self.making / self.step


def of(
    given: Mapping[str, Any], convert: Mapping[str, Convert], device: torch.device
) -> Callable[[object], str]:
    """For a panel's ``picture``: the settings ``source`` and ``convert`` name what is given and
    what makes a tensor of it, which is called a few times more, by itself.

    It draws a comparison of times; for anything else it returns "".
    """

    def picture(result: object) -> str:
        if not isinstance(result, Comparison) or result.error:
            return ""
        sides = []
        for role, arm in zip(("baseline", "candidate"), result.arms, strict=True):
            how, source = arm.settings["convert"], given[arm.settings["source"]]
            alone = arm.settings["work"] == ALONE
            where = torch.device("cpu") if alone else device
            tensor, making = _made(convert[how], source, where)
            sides.append(
                Side(
                    name=f"{role}: {how}",
                    fate=SHARED if shares(tensor, source) else COPIED,
                    pieces=len(source) if isinstance(source, list) else 1,
                    numbers=tensor.numel(),
                    # By itself a call may take a little longer than it did in the step.
                    making=arm.median if alone else min(making, arm.median),
                    step=arm.median,
                )
            )
        return draw(sides)

    return picture


def _made(convert: Convert, given: Any, device: torch.device) -> tuple[torch.Tensor, float]:
    """A tensor, and the seconds of the fastest of a few calls."""
    taken = []
    for _ in range(CALLS):
        begin = time.perf_counter()
        tensor = convert(given, dtype=torch.float32, device=device)
        synchronize()
        taken.append(time.perf_counter() - begin)
    return tensor, min(taken)


def shares(tensor: torch.Tensor, given: Any) -> bool:
    """Whether a tensor has the memory of the array that it was made from; of a list, never."""
    if tensor.device.type != "cpu" or not isinstance(given, np.ndarray):
        return False
    return bool(np.shares_memory(tensor.numpy(), given))


# ------------------------------------------------------------------------------------ the picture


def draw(sides: list[Side]) -> Markup:
    """The memory of each side's batch, and below it the step, with what making the batch takes."""
    longest = max(side.step for side in sides)
    parts, top = [], 0.0
    for side in sides:
        parts += svg.named(top + 0.7 * LINE, side.name, in_words(side))
        below, top = _memory(side, top + LINE)
        parts += below
        parts += _bar(side, longest, top + GAP)
        top += GAP + BAR + 0.5 * LINE
    entries = [(ARRAY, "array"), (TENSOR, "tensor, and making it")]
    if any(side.making < side.step for side in sides):
        entries.append((REST, "rest of the step"))
    top += 0.6 * LINE
    parts += legend(entries, EDGE, top)
    told = sentences(sides)
    for number, line in enumerate(told):
        top += LINE if number else 1.1 * LINE
        parts.append(svg.text(EDGE, top, line, "" if number else "bold"))
    words = "; ".join(f"{side.name}, {in_words(side)}" for side in sides)
    return svg.picture(top + 0.4 * LINE, f"{words}. {' '.join(told)}", parts)


def in_words(side: Side) -> str:
    """What became of the numbers, and how long that takes."""
    if side.making == side.step:
        return f"{side.fate} in {format_seconds(side.making)}"
    return f"{side.fate} in {format_seconds(side.making)} of {format_seconds(side.step)}"


def sentences(sides: list[Side]) -> list[str]:
    """What making the tensor is of each step, and of each number where both sides copy."""
    if all(side.making == side.step for side in sides):
        told = ["The step is the call alone."]
    elif all(side.share < LEAST for side in sides):
        told = ["Making the tensor: under 0.1 % of either step."]
    else:
        one, other = (_in_percent(side.share) for side in sides)
        told = [f"Making the tensor: {one} of a step, then {other}."]
    if all(side.fate == COPIED for side in sides):
        one, other = (format_seconds(side.making / side.numbers) for side in sides)
        told.append(f"For each number {one}, then {other}.")
    return told


def _in_percent(share: float) -> str:
    return format_share(share) if share >= LEAST else "under 0.1 %"


def _memory(side: Side, top: float) -> tuple[list[Markup], float]:
    """Cells with ribbons: above of the array, below of the tensor, which may have its own; and
    their foot.
    """
    parts = _cells(top + RIBBON + 2, GAP if side.pieces > 1 else 1.0)
    parts += _ribbon(top, ARRAY, GAP if side.pieces > 1 else 1.0)
    foot = top + RIBBON + HIGH + 4
    if side.fate == COPIED:
        parts += _cells(foot + 4, 1.0)
        foot += HIGH + 6
    parts += _ribbon(foot, TENSOR, 1.0 if side.fate == COPIED or side.pieces == 1 else GAP)
    return parts, foot + RIBBON


def _places(gap: float) -> list[tuple[float, float]]:
    """Left edge and width of each cell."""
    pitch = (WIDTH - 2 * EDGE) / CELLS
    return [(EDGE + pitch * cell, pitch - gap) for cell in range(CELLS)]


def _cells(top: float, gap: float) -> list[Markup]:
    return [svg.rect(x, top, wide, HIGH, "field") for x, wide in _places(gap)]


def _ribbon(top: float, kind: str, gap: float) -> list[Markup]:
    return [svg.rect(x, top, wide, RIBBON, kind) for x, wide in _places(gap)]


def _bar(side: Side, longest: float, top: float) -> list[Markup]:
    scale = (WIDTH - 2 * EDGE) / longest
    making, rest = scale * side.making, scale * (side.step - side.making)
    return [
        svg.rect(EDGE, top, making, BAR, TENSOR),
        svg.rect(EDGE + making, top, rest, BAR, REST),
    ]
