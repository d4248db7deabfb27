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

from whyslow.sampling import Interval, Tally, share_of
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
# Of the first it matters that they are in the loop.
_TRAINING = LOADING, HOST, FORWARD, BACKWARD, UPDATE, WAITING, OWN
CAUSES = (*_TRAINING, LOGGING, SAVING, VALIDATION, COMPILING, START, OUTSIDE)
# What waits until the device is done.
_WAITS = re.compile(r"\.(item|cpu|tolist|numpy|synchronize|to|cuda)\(")


# A line of a file, in a function.
Key = tuple[str, int, str]


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
    # A training step that validates, too, also has a backward pass and an update.
    if quiet and cause not in (START, BACKWARD, UPDATE):
        return VALIDATION
    last = stack[-1]
    if not cause and not isinstance(last, str) and _WAITS.search(expression_of(last)):
        return HOST
    of_loss = any(inside(line_of(each), source_of(each[0].co_filename).loss) for each in own(stack))
    return cause or (FORWARD if of_loss else OWN)


def reads_gradients(stack: Stack) -> bool:
    """Whether an own line itself, and no function of torch's for it, works on gradients."""
    last = stack[-1]
    return not isinstance(last, str) and inside(
        line_of(last), source_of(last[0].co_filename).gradients
    )


def is_by_hand(stack: Stack) -> bool:
    """Whether it works on gradients, or on weights without any."""
    last = stack[-1]
    if isinstance(last, str):
        return False
    return reads_gradients(stack) or inside(line_of(last), source_of(last[0].co_filename).update)


def own(stack: Stack) -> list[Place]:
    """The own lines of a stack: the last one runs, or has called what runs."""
    return [place for place in stack if not isinstance(place, str)]


def _loops(stack: Stack) -> Iterable[tuple[str, Range]]:
    for place in own(stack):
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


def sampled(tally: Tally, of_step: bool = False) -> Sampled:
    """Lines and causes of what a sampler has counted: of a program, or of its step alone."""
    loop = None if of_step else training_loop(list(tally.seconds))
    in_loop = {stack: loop is None or loop in set(_loops(stack)) for stack in tally.seconds}
    begins = min(
        (min(tally.seconds[stack]) for stack in tally.seconds if in_loop[stack]), default=0
    )
    blocks: dict[int, float] = defaultdict(float)
    causes: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    lines: dict[Key, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    # Of each line, how long it was there for which cause.
    causes_of: dict[Key, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for stack, taken in tally.seconds.items():
        for block, seconds in taken.items():
            cause = cause_of(stack)
            if not in_loop[stack] and cause in _TRAINING:
                cause = START if block <= begins else OUTSIDE
            blocks[block] += seconds
            causes[cause][block] += seconds
            # A library that is called by another one has no line of the reader's.
            for place in own(stack)[-1:]:
                key = place[0].co_filename, line_of(place), place[0].co_name
                lines[key][block] += seconds
                causes_of[key][cause] += seconds
    ordered = sorted(blocks)
    wholes = [blocks[block] for block in ordered]

    def share(parts: dict[int, float]) -> tuple[float, Interval]:
        return share_of([parts.get(block, 0.0) for block in ordered], wholes)

    found = [
        Line(*key, max(causes_of[key], key=causes_of[key].__getitem__), *share(parts))
        for key, parts in lines.items()
    ]
    found.sort(key=lambda line: -line.share)
    shares = {cause: share(parts) for cause, parts in causes.items()}
    shares = dict(sorted(shares.items(), key=lambda item: -item[1][0]))
    return Sampled(tuple(found), shares, tally.total, tally.looks, loop)
