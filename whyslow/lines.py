"""The heaviest lines of a training, or of one step, and what the time goes to."""

from __future__ import annotations

import functools
import linecache
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from labkit.device import accelerator_in_use
from whyslow import stacks
from whyslow.findings import LEAST_SHARE
from whyslow.sampling import NONE, Interval, Share, Tally
from whyslow.source import Range, source_of
from whyslow.stacks import BACKWARD, LOADING, START, UPDATE, VALIDATION, Place, Stack, own

# What waits until the device is done.
_WAITS = re.compile(r"\.(item|cpu|tolist|numpy|synchronize|to|cuda)\(")
_NOWHERE = Place("", 0, "")


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
        in_cell = "ipykernel" in self.file or self.file.startswith("<ipython-input")
        return f"{'cell' if in_cell else Path(self.file).name}:{self.number}"


@functools.lru_cache(maxsize=4096)
def cause_of(stack: Stack) -> str:
    """What the time of a stack goes to, wherever in the program it is."""
    cause, quiet = "", False
    for place in stack:
        if isinstance(place, Place):
            quiet = quiet or _says(place, "without")
            cause = UPDATE if _says(place, "update") else cause
        elif place in (LOADING, START):
            cause = place
            break
        elif place == VALIDATION:
            quiet = True
        # Checkpointing computes forward passes again within the backward pass.
        elif cause != stacks.COMPILING and (cause, place) != (BACKWARD, stacks.FORWARD):
            cause = place
    # A training step that validates, too, also has a backward pass and an update.
    if quiet and cause not in (START, BACKWARD, UPDATE):
        return VALIDATION
    if not cause and accelerator_in_use() and any(map(_waits, own(stack[-1:]))):
        return stacks.HOST
    of_loss = any(_says(each, "loss") for each in own(stack))
    return cause or (stacks.FORWARD if of_loss else stacks.OWN)


def _waits(place: Place) -> bool:
    return bool(_WAITS.search(linecache.getline(place.file, place.line)))


def _says(place: Place, kind: str) -> bool:
    """Whether its line is in one of the ranges of this kind in its file."""
    return any(first <= place.line <= last for first, last in source_of(place.file)[kind])


def _loops(stack: Stack) -> set[tuple[str, Range]]:
    return {
        (place.file, loop)
        for place in own(stack)
        for loop in source_of(place.file)["loops"]
        if loop[0] <= place.line <= loop[1]
    }


def training_loop(seen: Iterable[Stack]) -> tuple[str, Range] | None:
    """The smallest loop around every backward pass and every update that was seen."""
    around = []
    for cause in (BACKWARD, UPDATE):
        loops = [_loops(stack) for stack in seen if cause_of(stack) == cause]
        around += [set.union(*loops)] if loops else []
    common = set.intersection(*around) if around else set()
    return min(common, key=lambda loop: loop[1][1] - loop[1][0], default=None)


class Sampled:
    """What was seen of a program, or of its step alone: lines and causes by their share, the
    heaviest first; ``loop`` is the training loop, a file and a range of lines, or None where none
    was found.
    """

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self.seconds, self.looks = tally.total, tally.looks
        seen = {stack for _, stack, _ in tally.items()}
        self.loop = loop = training_loop(seen)
        in_loop = {stack for stack in seen if loop is None or loop in _loops(stack)}
        begins = min((block for block, stack, _ in tally.items() if stack in in_loop), default=0)

        def cause(stack: Stack, block: int) -> str:
            found = cause_of(stack)
            if stack in in_loop or found not in stacks.TRAINING:
                return found
            return START if block <= begins else stacks.OUTSIDE

        def line(stack: Stack, block: int) -> Place:
            return next(reversed(own(stack)), _NOWHERE)

        causes: dict[Place, str] = {}
        for place, its in tally.shares(lambda *look: (line(*look), cause(*look))):
            causes.setdefault(place, its)
        shares = tally.shares(line).items()
        self.lines = tuple(
            Line(*place, causes[place], *share) for place, share in shares if place.file
        )
        self.causes = tally.shares(cause)

    def share(self, wanted: Callable[[Stack], bool]) -> Share:
        """The share of these stacks in a step without its wait for data."""
        shares = self._tally.shares(
            lambda stack, block: None if cause_of(stack) == LOADING else wanted(stack)
        )
        return shares.get(True, NONE)

    def where(self, causes: tuple[str, ...]) -> str:
        """The heaviest line of these causes; nothing where there is none to name."""
        for line in self.lines:
            if line.cause in causes and line.share >= LEAST_SHARE:
                return f"{line.place}: {line.source}"
        return ""
