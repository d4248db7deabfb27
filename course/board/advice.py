"""Whether to keep a switch, by what was measured of it."""

from __future__ import annotations

import math
from collections.abc import Collection

from course.board.outlook import doubt, lacking
from course.board.store import NEAR, Figure
from course.board.words import factor_in_words
from course.switches import SWITCHES, TASK
from labkit.text import format_factor, format_share

KEEP, LEAVE = "keep", "leave"
# What a switch does once, which its figure leaves out and a run of the script does not.
ONCE = {
    "compile": "Your run compiles, too, which takes longer: notebook 22 says when that has paid."
}
# From this part of the peak on less is no saving.
SAVED = 0.95


def advised(figure: Figure) -> str:
    """`KEEP`, `LEAVE`, or nothing: where neither is better, and where time is paid for memory."""
    if saves_memory(figure):
        return ""
    return {"faster": KEEP, "slower": LEAVE}.get(figure.direction, "")


def advice(figure: Figure) -> str:
    """What to do with a switch, and why; its name stands before it."""
    if saves_memory(figure):
        return f"needs less memory{_costs(figure)}: keep it where memory is short."
    if figure.direction == "slower":
        why = doubt(figure.switch, figure.on_top_of)
        return f"is better not kept here: it {_loss(figure)}. {why}".strip()
    if figure.direction == "faster":
        return f"{_gain(figure)}. {ONCE.get(figure.switch, '')}".strip()
    if figure.direction == "same":
        return f"makes {no_difference(figure)} here. Keep it or not: nothing is lost."
    if wants_a_whole_race(figure):
        whole = f"A whole race, to {TASK.target:.0%} on five seeds, can tell"
        if not 0 < figure.factor < math.inf:
            did = "reached the target of a short race, and without it none did"
            if figure.factor <= 0:
                did = "did not reach the target of a short race, which is reached without it"
            return f"{did}; too few seeds to be sure. {whole}."
        return f"is not clear in a short race. {whole}."
    return f"is not clear here: {_what_would_help(figure)}."


def no_difference(figure: Figure) -> str:
    """That there is none, or how much might be hidden."""
    if figure.verdict == "same":
        return "no difference"
    return f"no difference that shows, less than {NEAR - 1:.0%} either way,".replace("%", " %")


def _what_would_help(figure: Figure) -> str:
    """More time, fewer programs, or both."""
    if figure.disturbed:
        return "other programs took the cores. Close some, and measure it longer"
    if figure.stopped:
        return "it was stopped. Let it run to its end"
    return f"the {figure.pairs or 'missing'} pairs differ too much. More time would help"


def wants_a_whole_race(figure: Figure) -> bool:
    """Whether a short race has left open what it does."""
    return figure.direction == "unclear" and figure.early


def wants_more_time(figure: Figure) -> bool:
    """Whether timing it longer may tell what it does."""
    return figure.direction == "unclear" and not wants_a_whole_race(figure)


def saves_memory(figure: Figure) -> bool:
    """Whether its switch is there for memory, and needed less of it here."""
    return for_memory(figure) and figure.memory < SAVED


def for_memory(figure: Figure) -> bool:
    """Whether its switch is there for memory, and that was measured."""
    switch = SWITCHES.get(figure.switch)
    return switch is not None and switch.saves == "memory" and math.isfinite(figure.memory)


def after_keeping(figure: Figure, kept: Collection[str]) -> str:
    """What follows from keeping a loss, and what it needs that is not ``kept``, or was lent."""
    missing = lacking(kept)
    if figure.direction != "slower":
        lent = [name for name in figure.on_top_of if name not in kept]
        if missing or not lent:
            return missing
        return f"Both sides of its race had {', '.join(lent)}, which you have not kept yet."
    return (
        f"{figure.switch} {_loss(figure)}, and all that comes later is measured on top of it. "
        f"Undo (--leave on the command line) takes it out again. {missing}".strip()
    )


def in_short(figure: Figure) -> str:
    """``1.24x faster``, ``0.50x, slower in both pairs``, ``1.04x unclear, not counted``.

    Of a switch for memory ``87 % of the memory; its time: unclear``.
    """
    if for_memory(figure):
        return f"{format_share(figure.memory)} of the memory; its time: {_time(figure)}"
    if math.isnan(figure.factor):
        return "no factor, not counted"
    if math.isinf(figure.factor) or figure.factor <= 0:
        only = "with" if figure.factor > 0 else "without"
        unclear = ", unclear" if figure.direction == "unclear" else ""
        least = f", at least {format_factor(figure.gain)}x" if figure.counts else ""
        return f"target reached only {only} it{least}{unclear}"
    factor = f"{format_factor(figure.factor)}x"
    if figure.direction == "same" != figure.verdict:
        return f"{factor}, no difference that shows, not counted"
    if figure.direction == figure.verdict != "unclear":
        return f"{factor} {figure.verdict}" + ", in a short race: not counted" * figure.early
    told = f", {pairs_in_words(figure)}" if figure.direction != "unclear" else " unclear"
    return factor + told + ("" if figure.counts else ", not counted")


def briefly(figure: Figure) -> str:
    """``1.24x``, ``unclear``; of a switch for memory ``87 % of the memory``."""
    if for_memory(figure):
        return f"{format_share(figure.memory)} of the memory"
    return "unclear" if figure.direction == "unclear" else factor_in_words(figure.factor)


def pairs_in_words(figure: Figure) -> str:
    """``slower in both pairs``, where these agree; else ``slower``."""
    if figure.agree != figure.direction:
        return figure.direction
    counts = {1: "the only pair", 2: "both pairs"}
    return f"{figure.direction} in {counts.get(figure.pairs, f'all {figure.pairs} pairs')}"


def _time(figure: Figure) -> str:
    """``unclear``, ``the same``, ``1.25 times as long``."""
    if figure.direction == "unclear" or not 0 < figure.factor < math.inf:
        return "unclear"
    if figure.direction == "same":
        return "the same"
    about = "" if figure.verdict == figure.direction else "about "
    if figure.direction == "slower":
        return f"{about}{format_factor(1 / figure.factor)} times as long"
    return f"{about}{format_factor(figure.factor)} times as fast"


def _costs(figure: Figure) -> str:
    if figure.direction == "slower" and figure.factor > 0:
        about = "" if figure.verdict == "slower" else "about "
        return f" and takes {about}{format_factor(1 / figure.factor)} times as long"
    return "; what it costs in time is not clear" if figure.direction == "unclear" else ""


def _loss(figure: Figure) -> str:
    if figure.prevents:
        return "kept the training from its target"
    times = format_factor(1 / figure.factor)
    if figure.verdict == "slower":
        return f"costs {times} times the time{_between(figure)}"
    return f"costs about {times} times the time, {pairs_in_words(figure)}"


def _between(figure: Figure) -> str:
    """`` [1.40, 1.60]``: the interval; of a loss, of times the time."""
    low, high = figure.interval
    if not (0 < low <= high < math.inf):
        return ""
    ends = (1 / high, 1 / low) if figure.direction == "slower" else (low, high)
    return f" [{format_factor(ends[0])}, {format_factor(ends[1])}]"


def _gain(figure: Figure) -> str:
    if math.isinf(figure.factor):
        least = f", at least {format_factor(figure.gain)} times as fast" if figure.counts else ""
        return f"brought the training to its target{least}: worth keeping"
    if figure.verdict == "faster":
        times = f"is {format_factor(figure.factor)} times as fast here{_between(figure)}"
        if not figure.early:
            return f"{times}: worth keeping"
        return (
            f"{times}, as far as its short race went: worth keeping. What it brings until "
            f"{TASK.target:.0%} is not known before your script runs"
        )
    where = pairs_in_words(figure).removeprefix("faster")
    return f"is faster here{where}; by how much is not clear yet"
