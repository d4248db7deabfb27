"""Which notebooks are to be recorded, in which order, and what is left."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from course.notebook_files import NOTEBOOKS, long_notebooks, long_path
from course.records.card import Card, hardware, machine_name
from course.records.estimate import Expected, expected, turn
from course.records.notebook_hash import notebook_hash
from course.records.store import Record
from course.records.travel import old_record

NAME = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class Job:
    """A notebook to record, with the record that is there, and what it is expected to take."""

    path: Path
    old: Record | None
    expected: Expected

    @property
    def name(self) -> str:
        """The notebook's."""
        return self.path.stem


def find(notebooks: Sequence[Path]) -> list[Path]:
    """The notebooks by their paths or names; all of the course if there are none."""
    return [_find(path) for path in notebooks or long_notebooks()]


def _find(path: Path) -> Path:
    """A notebook by its path, or by its name in the course."""
    for candidate in (path, long_path(path.stem)):
        if candidate.suffix == ".ipynb" and candidate.is_file():
            if not NAME.fullmatch(candidate.stem):
                wanted = "a record is named after its notebook; use letters, digits, - and _"
                raise ValueError(f"{candidate.name}: {wanted}")
            return candidate
    raise FileNotFoundError(f"no notebook at {path}, and none of that name in {NOTEBOOKS}")


def jobs(
    paths: Sequence[Path],
    folder: Path,
    card: Card,
    *,
    again: bool = False,
    by_turn: bool = False,
) -> list[Job]:
    """The notebooks to record, in order; why others are passed over is printed.

    ``folder`` has the records of all machines.
    """
    own = folder / machine_name(card)
    found = []
    for path in paths:
        old = old_record(own / f"{path.stem}.json")
        if old is not None and not again and _is_current(old, path, card):
            when = f"recorded {old.recorded:%Y-%m-%d} with this very code"
            print(f"{path.stem}: {when}; --again records it anew")
            continue
        found.append(Job(path, old, expected(path.stem, old, gpu=bool(card["gpu"]))))
    if by_turn:
        found.sort(key=lambda job: turn(job.old))
    return found


def _is_current(old: Record, path: Path, card: Card) -> bool:
    """Whether nothing that could change the figures has changed since."""
    if old.failed:
        return False
    then = old.notebook_hash, old.labkit, old.card["torch"], hardware(old.card)
    now = notebook_hash(path), card["labkit"], card["torch"], hardware(card)
    return then == now


def left_in_words(left: Iterable[Job]) -> str:
    """What the next call has to do, and how long that takes."""
    left = list(left)
    if not left:
        return "nothing is left to record"
    each = ", ".join(f"{job.name} {job.expected.seconds:.0f} s" for job in left)
    seconds = sum(job.expected.seconds for job in left)
    count = f"{len(left)} notebooks"
    if len(left) == 1:
        count = "1 notebook"
    text = f"left: {count}, about {seconds / 60:.0f} min: {each}"
    return textwrap.fill(text, 100, subsequent_indent="  ", break_on_hyphens=False)
