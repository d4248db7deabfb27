"""The timeline of 23, measured: the lanes of host and device in a step of the reader's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch

from course.measured.recording import Block, Recording, record
from labkit import Workload, seed_all, show
from labkit.charts import svg
from labkit.charts.svg import EDGE, LETTER, LINE, WIDTH
from labkit.plots import Drawing
from labkit.restore import preserve_flags, preserve_rng
from labkit.results import Comparison, Measurement
from labkit.show import Markup
from labkit.text import format_seconds, format_short

# In the colours of the explorable, and by its names.
LOOKS = {
    "data": "fill arm3",
    "forward": "fill candidate",
    "backward": "fill faster",
    "update": "fill baseline",
    "waits": "fill slower",
    "gap": "fill arm5",
}
NAMES = {"waits": "host waits", "gap": "device waits"}
# The profiler that records it takes time of its own.
WHICH = "(with profiler)"
LEFT, LANE, STRIDE = 120.0, 24.0, 28.0
# Pixels between two blocks of one part below which they are drawn as one.
NARROW = 0.6


class Row(NamedTuple):
    """A recorded step and its name."""

    label: str
    recording: Recording

    @property
    def words(self) -> str:
        """How long it takes, and how much of that the device works."""
        length = format_seconds(self.recording.milliseconds / 1000)
        return f"{length}, device works {100 * (1 - self.recording.idle):.0f} %"


def one_step(step: Callable[[], object]) -> Drawing:
    """The lanes of a step, as the output of a cell; the step is run a few times."""
    row = Row("slow step", record(step))
    # JupyterLab widens whatever has no room of its own.
    room = "max-width: 720px"
    picture = show.element("div", draw([row]), style=room)
    return Drawing(f"{row.label}: {row.words}", picture)


def both_steps(make_workload: Callable[..., Workload]) -> Callable[[object], str]:
    """For a panel's ``picture``: from a Comparison to the lanes of both sides; "" for others."""

    def picture(result: object) -> str:
        if not isinstance(result, Comparison) or result.missing:
            return ""
        rows = []
        for role, side in zip(result.roles, result.arms, strict=True):
            rows.append(Row(role, _recorded(make_workload, side, result.threads)))
        return draw(rows)

    return picture


def _recorded(make: Callable[..., Workload], side: Measurement, threads: int) -> Recording:
    """A step of one side, built as the lab builds it."""
    with preserve_rng(), preserve_flags():
        if threads:
            torch.set_num_threads(threads)
        seed_all(0)
        workload = make(**side.settings)
        try:
            return record(workload.step)
        finally:
            if workload.close:
                workload.close()


# ------------------------------------------------------------------------------------ the picture


def draw(rows: Sequence[Row]) -> Markup:
    """Two lanes for each step, on one scale of time from the step's beginning."""
    longest = max(row.recording.milliseconds for row in rows)
    parts: list[Markup] = []
    top = 0.0
    for row in rows:
        parts += svg.named(top + 18, row.label, row.words, WHICH)
        parts += _lanes(row.recording, longest, top + 26)
        top += 30 + 2 * STRIDE
    parts += _scale(longest, top)
    top += LINE + 22
    for line in _legend(rows):
        parts += _line(line, top)
        top += LINE
    words = "; ".join(f"{row.label}: {row.words}" for row in rows)
    return svg.picture(top + 8 - LINE, words, parts)


def _lanes(recording: Recording, longest: float, top: float) -> Iterator[Markup]:
    wide = WIDTH - EDGE - LEFT
    narrow = NARROW * longest / wide
    work = _joined(recording.work, narrow)
    gaps = _gaps(work, recording.milliseconds, narrow)
    lanes = ("host", _joined(recording.host, narrow)), ("device", [*gaps, *work])
    for name, blocks in lanes:
        yield svg.text(LEFT - 8, top + 17, name, "small", "end")
        yield svg.rect(LEFT, top, wide, LANE, "field")
        for part, begin, end in blocks:
            x, width = LEFT + wide * begin / longest, wide * (end - begin) / longest
            yield svg.rect(x, top + 2, max(0.6, width - 0.4), LANE - 4, LOOKS[part])
        top += STRIDE


def _gaps(work: Sequence[Block], length: float, narrow: float) -> list[Block]:
    """Where nothing works, in a step of that length."""
    begins = [block.begin for block in work] + [length]
    ends = [0.0] + [block.end for block in work]
    gaps = [Block("gap", end, begin) for end, begin in zip(ends, begins, strict=True)]
    return [gap for gap in gaps if gap.end - gap.begin > narrow]


def _joined(blocks: Sequence[Block], gap: float) -> list[Block]:
    """The blocks with neighbours of one part joined, where hardly anything lies between them."""
    joined: list[Block] = []
    for block in blocks:
        before = joined[-1] if joined else None
        if before and before.part == block.part and block.begin - before.end < gap:
            joined[-1] = before._replace(end=block.end)
        else:
            joined.append(block)
    return joined


def _scale(longest: float, top: float) -> Iterator[Markup]:
    """Marks at round milliseconds, five at most."""
    power = 10.0 ** math.floor(math.log10(longest / 4))
    apart = next(power * digit for digit in (1, 2, 5, 10) if 5 * power * digit > longest)
    for number in range(math.floor(longest / apart) + 1):
        x = LEFT + (WIDTH - EDGE - LEFT) * number * apart / longest
        yield svg.path([(x, top), (x, top + 4)], "grid")
        yield svg.below(x, top + 20, format_short(number * apart) if number else "0 ms")


def _legend(rows: Sequence[Row]) -> Iterator[list[str]]:
    """The parts that are there, in lines that have room for their names in large letters."""
    there = {block.part for row in rows for block in row.recording.host} | {"gap"}
    line: list[str] = []
    for part in filter(there.__contains__, LOOKS):
        if sum(map(_room, [*line, part])) > WIDTH - LEFT:
            yield line
            line = []
        line.append(part)
    yield line


def _line(line: Sequence[str], y: float) -> Iterator[Markup]:
    x = LEFT
    for part in line:
        yield svg.rect(x, y - 10, 11, 11, LOOKS[part])
        yield svg.text(x + 16, y, NAMES.get(part, part), "small")
        x += _room(part)


def _room(part: str) -> float:
    return 34 + LETTER * len(NAMES.get(part, part))
