"""Whether to keep a switch, by what was measured of it."""

from __future__ import annotations

import math

from course.board.store import Figure
from labkit.text import format_factor

KEEP, LEAVE = "keep", "leave"


def advised(figure: Figure) -> str:
    """`KEEP`, `LEAVE`, or nothing where neither is better."""
    return {"faster": KEEP, "slower": LEAVE}.get(figure.direction, "")


def advice(figure: Figure) -> str:
    """What to do with a switch, and why."""
    if figure.direction == "slower":
        return f"{_loss(figure)}: better not kept."
    if figure.direction == "faster":
        return f"{figure.switch} is {_gain(figure)}."
    if figure.direction == "same":
        return f"{figure.switch} makes no difference here."
    return f"What {figure.switch} does here is not clear: run it again, beside fewer programs."


def after_keeping(figure: Figure) -> str:
    """What follows from keeping a loss; empty for anything else."""
    if figure.direction != "slower":
        return ""
    return (
        f"{_loss(figure)}, and all that you measure later is measured on top of it. "
        "Do not keep it (--leave on the command line) takes it out again."
    )


def pairs_in_words(figure: Figure) -> str:
    """``slower in both pairs``, where these agree; else ``slower``."""
    if figure.agree != figure.direction:
        return figure.direction
    counts = {1: "the only pair", 2: "both pairs"}
    return f"{figure.direction} in {counts.get(figure.pairs, f'all {figure.pairs} pairs')}"


def _loss(figure: Figure) -> str:
    if figure.factor <= 0:
        return f"The target was reached only without {figure.switch}"
    times = format_factor(1 / figure.factor)
    if figure.verdict == "slower":
        return f"With {figure.switch} a training takes {times} times as long here"
    return (
        f"With {figure.switch} a training takes about {times} times as long here, "
        f"{pairs_in_words(figure)}"
    )


def _gain(figure: Figure) -> str:
    if figure.verdict == "faster" or math.isinf(figure.factor):
        return "faster here: worth keeping"
    where = pairs_in_words(figure).removeprefix("faster")
    return f"faster here{where}; by how much is not clear yet"
