"""The heaviest lines of a training, or of one step, and what the time goes to."""

from __future__ import annotations

import functools
import linecache
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from labkit.restore import giving_back
from whyslow import stacks
from whyslow.findings import LEAST_SHARE
from whyslow.sampling import NONE, Interval, Sampler, Share, Tally
from whyslow.source import Range, source_of
from whyslow.stacks import BACKWARD, LOADING, START, UPDATE, VALIDATION, Place, Stack, own

# What waits until the device is done.
_WAITS = re.compile(r"\.(item|cpu|tolist|numpy|synchronize|to|cuda)\(")
# A line of a file, in a function; of a library that is called by another one, none.
Key = tuple[str, int, str]
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
        if not isinstance(place, str):
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
    if not cause and any(_WAITS.search(_text_of(place)) for place in own(stack[-1:])):
        return stacks.HOST
    of_loss = any(_says(each, "loss") for each in own(stack))
    return cause or (stacks.FORWARD if of_loss else stacks.OWN)


def _text_of(place: Place) -> str:
    """The part of the line that runs, such as ``loss.item()``."""
    text = linecache.getline(place.file, place.line).encode()
    return text[slice(*place.part)].decode(errors="replace")


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

    def __init__(self, tally: Tally, of_step: bool = False) -> None:
        self.seconds, self.looks = tally.total, tally.looks
        seen = {stack for _, stack, _ in tally.items()}
        self.loop = loop = None if of_step else training_loop(seen)
        in_loop = {stack for stack in seen if loop is None or loop in _loops(stack)}
        begins = min((block for block, stack, _ in tally.items() if stack in in_loop), default=0)

        def cause(stack: Stack, block: int) -> str:
            found = cause_of(stack)
            if stack in in_loop or found not in stacks.TRAINING:
                return found
            return START if block <= begins else stacks.OUTSIDE

        def line(stack: Stack, block: int) -> Key:
            return next(reversed(own(stack)), _NOWHERE)[:3]

        causes: dict[Key, str] = {}
        for key, its in tally.shares(lambda *look: (line(*look), cause(*look))):
            causes.setdefault(key, its)
        shares = tally.shares(line).items()
        self.lines = tuple(Line(*key, causes[key], *share) for key, share in shares if key[0])
        self.causes = tally.shares(cause)


class Parts:
    """What was seen of the steps that ran last inside of `seen`."""

    def __init__(self) -> None:
        self.tally = Tally()

    @property
    def sampled(self) -> Sampled:
        """By lines and causes."""
        return Sampled(self.tally, of_step=True)

    @contextmanager
    def seen(self) -> Iterator[None]:
        """Look at the lines that run inside; those that have called the diagnosis are none."""
        sampler = Sampler(self._done, below=len(stacks.stack_of(sys._getframe())))
        with giving_back(sampler.stop):
            sampler.start()
            yield
        self.tally = sampler.tally

    def _done(self) -> None:
        """It ends with the block alone."""

    def shares(self, waiting: float | None = None) -> dict[str, float]:
        """The share of each cause; where a loader is given, that of ``waiting`` is known."""
        shares = {cause: share for cause, (share, _) in self.sampled.causes.items()}
        if waiting is None:
            return shares
        loading = shares.pop(LOADING, 0.0)
        rest = (1 - waiting) / max(1 - loading, 1e-9)
        return {LOADING: waiting} | {cause: rest * share for cause, share in shares.items()}

    def share(self, wanted: Callable[[Stack], bool]) -> Share:
        """The share of the step itself, without its wait for data, in these stacks."""
        shares = self.tally.shares(
            lambda stack, block: None if cause_of(stack) == LOADING else wanted(stack)
        )
        return shares.get(True, NONE)

    def where(self, causes: tuple[str, ...]) -> str:
        """The heaviest line of these causes; nothing where there is none to name."""
        for line in self.sampled.lines:
            if line.cause in causes and line.share >= LEAST_SHARE:
                return f"{line.place}: {line.source}"
        return ""
