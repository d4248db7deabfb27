"""The heaviest lines of a training, and what the time goes to: a `Report` of what was sampled."""

from __future__ import annotations

import functools
import linecache
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

from whyslow.clock import share_of
from whyslow.findings import Interval
from whyslow.sampling import Tally
from whyslow.source import Range, inside, source_of
from whyslow.stacks import (
    BACKWARD,
    COMPILING,
    FORWARD,
    LOADING,
    LOGGING,
    SAVING,
    START,
    UPDATE,
    VALIDATION,
    WAITING,
    Place,
    Stack,
)

HOST, OWN = "host waits", "your own code"
OUTSIDE = "outside the loop"
# In the order in which they are looked for.
CAUSES = (
    LOADING,
    HOST,
    FORWARD,
    BACKWARD,
    UPDATE,
    LOGGING,
    SAVING,
    VALIDATION,
    COMPILING,
    WAITING,
    START,
    OUTSIDE,
    OWN,
)
# Of these it matters that they are in the loop.
_TRAINING = (LOADING, HOST, FORWARD, BACKWARD, UPDATE, WAITING, OWN)
# What waits until the device is done.
_WAITS = re.compile(r"\.(item|cpu|tolist|numpy|synchronize|to|cuda)\(")


@dataclass(frozen=True)
class Line:
    """A line of the reader's, with its ``share`` of the time and the 95 % ``interval``."""

    file: str
    number: int
    function: str
    cause: str
    share: float
    interval: Interval

    @property
    def source(self) -> str:
        """Its text; empty where the file is gone, or never was."""
        return linecache.getline(self.file, self.number).strip()

    @property
    def place(self) -> str:
        """``train.py:12``, or ``cell:3`` in a notebook."""
        name = Path(self.file).name
        if "ipykernel" in self.file or self.file.startswith("<ipython-input"):
            name = "cell"
        return f"{name}:{self.number}"


@dataclass(frozen=True)
class Sampled:
    """What was seen: lines and causes by their share, the heaviest first; ``loop`` is the training
    loop, a file and a range of lines, or None where none was found.
    """

    lines: tuple[Line, ...]
    causes: dict[str, tuple[float, Interval]]
    seconds: float
    looks: int
    loop: tuple[str, Range] | None


@functools.lru_cache(maxsize=1024)
def _positions(code: CodeType) -> tuple[tuple[int | None, ...], ...]:
    return tuple(code.co_positions())


def line_of(place: Place) -> int:
    """The line on which a place is."""
    code, offset = place
    line = _positions(code)[max(0, offset) // 2][0]
    return code.co_firstlineno if line is None else line


def expression_of(place: Place) -> str:
    """The part of the line that runs, such as ``loss.item()``."""
    code, offset = place
    line, last, column, end = _positions(code)[max(0, offset) // 2]
    if line is None or line != last or column is None or end is None:
        return ""
    text = linecache.getline(code.co_filename, line).encode()
    return text[column:end].decode(errors="replace")


@functools.lru_cache(maxsize=4096)
def cause_of(stack: Stack) -> str:
    """What the time of a stack goes to, wherever in the program it is."""
    cause, quiet = "", False
    for place in stack:
        if isinstance(place, str):
            if place in (LOADING, START):
                cause = place
                break
            if place == VALIDATION:
                quiet = True
            # Checkpointing computes forward passes again within the backward pass.
            elif cause != COMPILING and (cause, place) != (BACKWARD, FORWARD):
                cause = place
            continue
        source = source_of(place[0].co_filename)
        line = line_of(place)
        quiet = quiet or inside(line, source.without)
        if inside(line, source.update):
            cause = UPDATE
    if quiet and cause != START:
        return VALIDATION
    last = stack[-1]
    if not cause and not isinstance(last, str) and _WAITS.search(expression_of(last)):
        return HOST
    return cause or OWN


def _innermost(stack: Stack) -> Place:
    """The own line that runs, or that called what runs."""
    return [place for place in stack if not isinstance(place, str)][-1]


def _loops(stack: Stack) -> Iterable[tuple[str, Range]]:
    for place in stack:
        if not isinstance(place, str):
            file, line = place[0].co_filename, line_of(place)
            for loop in source_of(file).loops:
                if inside(line, (loop,)):
                    yield file, loop


def training_loop(stacks: Iterable[Stack]) -> tuple[str, Range] | None:
    """The smallest loop around every backward pass and every update that was seen."""
    common: set[tuple[str, Range]] | None = None
    for cause in (BACKWARD, UPDATE):
        loops = [set(_loops(stack)) for stack in stacks if cause_of(stack) == cause]
        if loops:
            every = set.union(*loops)
            common = every if common is None else common & every
    if not common:
        return None
    return min(common, key=lambda loop: loop[1][1] - loop[1][0])


def sampled(tally: Tally) -> Sampled:
    """Lines and causes of what a sampler has counted."""
    loop = training_loop(list(tally.seconds))
    in_loop = {stack: loop is None or loop in set(_loops(stack)) for stack in tally.seconds}
    begins = min(
        (min(tally.seconds[stack]) for stack in tally.seconds if in_loop[stack]), default=0
    )
    blocks: dict[int, float] = defaultdict(float)
    lines: dict[tuple[str, int, str], dict[str, dict[int, float]]] = {}
    causes: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for stack, taken in tally.seconds.items():
        place = _innermost(stack)
        code = place[0]
        key = code.co_filename, line_of(place), code.co_name
        for block, seconds in taken.items():
            cause = cause_of(stack)
            if not in_loop[stack] and cause in _TRAINING:
                cause = START if block <= begins else OUTSIDE
            blocks[block] += seconds
            causes[cause][block] += seconds
            of_line = lines.setdefault(key, {}).setdefault(cause, defaultdict(float))
            of_line[block] += seconds
    wholes = [blocks[block] for block in sorted(blocks)]

    def share(parts: dict[int, float]) -> tuple[float, Interval]:
        return share_of([parts.get(block, 0.0) for block in sorted(blocks)], wholes)

    found = []
    for (file, number, function), by_cause in lines.items():
        cause = max(by_cause, key=lambda each: sum(by_cause[each].values()))
        together: dict[int, float] = defaultdict(float)
        for parts in by_cause.values():
            for block, seconds in parts.items():
                together[block] += seconds
        found.append(Line(file, number, function, cause, *share(together)))
    found.sort(key=lambda line: -line.share)
    shares = {cause: share(parts) for cause, parts in causes.items()}
    ordered = dict(sorted(shares.items(), key=lambda item: -item[1][0]))
    return Sampled(tuple(found), ordered, tally.total, tally.looks, loop)
