"""14: the lanes of the moving picture, from a step of the reader's own first process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from course.measured.exchanges import Exchanges, Noted
from course.measured.sides import legend, times
from course.ranks import COPIES, ONE, OPERATORS
from labkit.charts import svg
from labkit.charts.plot import Box, field
from labkit.charts.svg import EDGE, LINE, WIDTH
from labkit.results import Comparison
from labkit.show import Markup
from labkit.text import format_seconds

LEFT, LANE, GAP = 84.0, 24.0, 4.0
FORWARD, BACKWARD = "band candidate", "fill candidate"
MEANWHILE, WAITS = "fill arm3", "fill slower"
COMPUTES = ((FORWARD, "forward"), (BACKWARD, "backward"))
EXCHANGES = ((MEANWHILE, "exchanges meanwhile"), (WAITS, "exchanges, all wait"))
USE = {ONE: "", OPERATORS: "two operator threads", COPIES: "two Python threads"}
HIDDEN = "two threads, not shown one by one"

NOTE = "One watched step of the first process. An exchange also waits for the other process."


def of(exchanges: Exchanges) -> Callable[[object], str]:
    """For a panel's ``picture``: a step of both sides' first process.

    "" for what is no comparison, and where a side was not noted.
    """

    def picture(result: object) -> str:
        if not isinstance(result, Comparison) or result.error:
            return ""
        sides = []
        for side in result.arms:
            if (noted := exchanges.of(side.settings)) is None:
                return ""
            sides.append((name_of(side.settings), noted))
        return draw(sides)

    return picture


def name_of(settings: Mapping[str, Any]) -> str:
    """A side in the words of the bets: ``two processes, DDP``."""
    threads = USE[settings["cpu_threads"]]
    if settings["processes"] == 1:
        return ", ".join(filter(None, ("one process", threads)))
    exchange = settings["exchange"]
    how = "no exchange" if exchange == "none" else exchange
    return ", ".join(filter(None, ("two processes", how, threads)))


def draw(sides: Sequence[tuple[str, Noted]]) -> Markup:
    """The lanes of each side, on one scale of time."""
    longest = max(noted.seconds for _, noted in sides)
    parts, top = [], 0.0
    for name, noted in sides:
        parts += svg.named(top + 0.8 * LINE, name, f"a step of {format_seconds(noted.seconds)}")
        parts.append(svg.text(EDGE, top + 1.6 * LINE, in_words(noted), "small"))
        parts += _lanes(noted, top + 2 * LINE, longest)
        top += 2 * LINE + 2 * (LANE + GAP) + 10
    ground = Box(LEFT, top, WIDTH - EDGE, top, (0.0, longest))
    parts += times(ground, longest)
    parts += legend(COMPUTES, EDGE, top + 1.7 * LINE)
    parts += legend(EXCHANGES, EDGE + 230, top + 1.7 * LINE)
    note = "A single step of the first process, under the profiler; the figure above is of many."
    parts.append(svg.text(EDGE, top + 2.6 * LINE, note, "small", room=len(note)))
    words = "; ".join(f"{name}: {in_words(noted)}" for name, noted in sides)
    return svg.picture(top + 3 * LINE, f"One step. {words}", parts)


def in_words(noted: Noted) -> str:
    """How long gradients are on their way, and how much of it nobody computes."""
    if not noted.exchange:
        return "nothing is exchanged"
    whole = sum(end - begin for begin, end in noted.exchange)
    waits = sum(max(0.0, end - max(begin, noted.computed)) for begin, end in noted.exchange)
    calls = "1 exchange" if len(noted.exchange) == 1 else f"{len(noted.exchange)} exchanges"
    return f"{calls}, {format_seconds(whole)} in all; {format_seconds(waits)} waited for"


def _lanes(noted: Noted, top: float, longest: float) -> list[Markup]:
    """What the process computes, and below it what is on the link."""
    upper = Box(LEFT, top, WIDTH - EDGE, top + LANE, (0.0, longest))
    lower = upper._replace(top=top + LANE + GAP, bottom=top + 2 * LANE + GAP)
    parts = []
    for box, name in ((upper, "computes"), (lower, "link")):
        parts += [field(box), svg.text(LEFT - 8, box.bottom - 6, name, "small", "end")]
    if not noted.backward:
        parts.append(_bar(upper, 0.0, noted.seconds, FORWARD))
        parts.append(svg.text(LEFT + 8, upper.bottom - 6, HIDDEN, "small"))
        return parts
    parts.append(_bar(upper, 0.0, noted.forward, FORWARD))
    parts += [_bar(upper, begin, end, BACKWARD) for begin, end in noted.backward]
    for begin, end in noted.exchange:
        parts.append(_bar(lower, begin, min(end, noted.computed), MEANWHILE))
        parts.append(_bar(lower, max(begin, noted.computed), end, WAITS))
    return parts


def _bar(box: Box, begin: float, end: float, kind: str) -> Markup:
    """A bar; none where it would end before it begins."""
    wide = box.x(end) - box.x(begin) if end > begin else 0.0
    return svg.rect(box.x(begin), box.top, max(wide - 0.6, min(wide, 0.6)), LANE, kind)
