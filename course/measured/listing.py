"""A program with the time of its lines, on both sides: the listing of notebook 23, measured."""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from course import programs
from course.measured.sides import legend
from labkit import pick, seed_all, show
from labkit.charts import svg
from labkit.charts.svg import EDGE, LINE, WIDTH
from labkit.plots import Drawing
from labkit.restore import preserve_flags, preserve_rng
from labkit.restore.collector import looking_at_frames
from labkit.results import Comparison
from labkit.show import Markup
from labkit.text import format_seconds
from whyslow import Report

# Runs a function and returns the seconds of each line of a file.
Sample = Callable[[Callable[[], object], str], Mapping[int, float]]
EVERY = 0.002
# The share from which a line is drawn.
DRAWN = 0.03
# Pixels of a bar and of what is between rows, and where bars end and their times begin.
BAR, BETWEEN, END = 8.0, 9.0, 460.0
# Letters of a line of code that have room in a narrow picture.
LETTERS = 50
LOOKS = {"baseline": "fill baseline", "candidate": "fill candidate"}


class Side(NamedTuple):
    """A side of a comparison: its program, the seconds of an epoch, the share of each line."""

    role: str
    program: programs.Program
    seconds: float
    shares: dict[int, float]

    @property
    def mended(self) -> str:
        """Which lines are mended, in words."""
        return self.program.changes or "as it is"

    def of(self, line: int) -> float:
        """Seconds of a line in an epoch."""
        return self.seconds * self.shares.get(line, 0.0)


def sample(work: Callable[[], object], file: str, every: float = EVERY) -> Mapping[int, float]:
    """Run ``work()``, and look every so many seconds which line of ``file`` its thread is in.

    Returns the seconds by line: a look counts for the time since the last one.
    """
    thread, ended = threading.get_ident(), threading.Event()
    seconds: defaultdict[int, float] = defaultdict(float)

    def look() -> None:
        last = time.perf_counter()
        while not ended.wait(every):
            with looking_at_frames():
                frame = sys._current_frames().get(thread)
                while frame is not None and frame.f_code.co_filename != file:
                    frame = frame.f_back
            now = time.perf_counter()
            if frame is not None:
                seconds[frame.f_lineno] += now - last
            last = now

    looking = threading.Thread(target=look, name="looks")
    looking.start()
    try:
        work()
    finally:
        ended.set()
        looking.join()
    return seconds


def of(yours: Callable[[], Sample]) -> Callable[[object], str]:
    """For a panel's ``picture``: both sides of a comparison, line by line; "" for other results.

    ``yours()`` is the reader's own sampler: it looks where a side is ``watched`` by it.
    """

    def picture(result: object) -> str:
        if not isinstance(result, Comparison) or result.missing:
            return ""
        own = any(side.settings["watched"] == "yours" for side in result.arms)
        sampler = yours() if own else sample
        sides = []
        each = zip(("baseline", "candidate"), result.arms, result.step_times, strict=True)
        for role, side, seconds in each:
            program, shares = _sampled(side.settings, result.threads, sampler)
            sides.append(Side(role, program, seconds, shares))
        return draw(sides, "your own sampler" if own else "looks every 2 ms")

    return picture


def _sampled(
    settings: dict[str, Any], threads: int, sampler: Sample
) -> tuple[programs.Program, dict[int, float]]:
    """A program that is built as the lab builds it, and the share of each of its lines."""
    with preserve_rng(), preserve_flags():
        if threads:
            torch.set_num_threads(threads)
        seed_all(0)
        program = programs.of(settings)
        program.epoch()
        long = pick(cpu=0.8, test=0.1)  # seconds

        def work() -> None:
            end = time.perf_counter() + long
            while time.perf_counter() < end:
                program.epoch()

        seconds = sampler(work, program.file)
    whole = sum(seconds.values())
    return program, {line: part / whole for line, part in seconds.items() if whole}


# ------------------------------------------------------------------------------------ the pictures


def folded(report: Report) -> Drawing:
    """What was sampled, behind a line that opens it: the reader bets first."""
    summary = "Your machine: bet in the picture first, then open this"
    page = show.details(Markup(report._repr_html_()), summary=summary)
    return Drawing(str(report), page)


def source(script: str) -> Drawing:
    """A script with the numbers of its lines, folded; as the output of a cell."""
    lines = (programs.HERE / script).read_text(encoding="utf-8").splitlines()
    rows = []
    for number, line in enumerate(lines, 1):
        code = show.element("td", show.element("code", line, style="white-space: pre"))
        rows.append(show.element("tr", show.element("td", str(number)), code))
    listing = show.element("table", *rows, kind="source")
    shown = show.details(show.element("div", listing, kind="scroll"), summary=f"All of {script}")
    text = "\n".join(f"{number:3d}  {line}" for number, line in enumerate(lines, 1))
    return Drawing(text, shown)


def draw(sides: Sequence[Side], by: str) -> Markup:
    """A row for each line that takes time on a side or is mended, with a bar for each side."""
    lines = {line for side in sides for line, share in side.shares.items() if share >= DRAWN}
    lines |= {line for side in sides for line in side.program.mended}
    longest = max((side.of(line) for side in sides for line in lines), default=0.0)
    parts: list[Markup] = []
    top = 0.0
    for side in sides:
        words = f"{format_seconds(side.seconds)} a step (an epoch)"
        parts += svg.named(top + 18, side.role, words, side.mended)
        top += LINE - 4
    for line in sorted(lines):
        top += BETWEEN
        for text in _texts(sides, line):
            parts.append(_code(line, text, top + 16))
            top += LINE - 4
        parts += _bars(sides, line, top, longest)
        top += len(sides) * BAR
    parts += legend([(LOOKS[side.role], side.role) for side in sides], EDGE, top + LINE)
    parts.append(svg.text(WIDTH - EDGE, top + LINE, by, "small", "end"))
    words = "; ".join(f"{side.role}: {_in_words(side)}" for side in sides)
    return svg.picture(top + LINE + 8, words, parts)


def _texts(sides: Sequence[Side], line: int) -> list[str]:
    """A line as each side has it; once where it is the same."""
    return list(dict.fromkeys(side.program.lines[line - 1].strip() for side in sides))


def _code(line: int, text: str, y: float) -> Markup:
    words = svg.cut(f"{line}  {text}", LETTERS)
    size = {"x": svg.number(EDGE), "y": svg.number(y)}
    return svg.element("text", words, **size, font_family="monospace")


def _bars(sides: Sequence[Side], line: int, top: float, longest: float) -> Iterator[Markup]:
    """A bar for each side on one scale of time, and the times."""
    wide = END - EDGE
    for number, side in enumerate(sides):
        y = top + number * BAR
        yield svg.rect(EDGE, y, wide, BAR - 1, "field")
        if longest:
            yield svg.rect(EDGE, y, wide * side.of(line) / longest, BAR - 1, LOOKS[side.role])
    times = " → ".join(f"{1000 * side.of(line):.0f}" for side in sides)
    yield svg.text(WIDTH - EDGE, top + BAR + 5, f"{times} ms", "small", "end")


def _in_words(side: Side) -> str:
    """Its largest lines, for who does not see them."""
    largest = sorted(side.shares, key=lambda line: -side.shares[line])[:3]
    shares = [f"line {line} {side.shares[line]:.0%}" for line in largest]
    return f"{format_seconds(side.seconds)} a step (an epoch), {side.mended}; {', '.join(shares)}"
