"""Which notebooks are to be recorded, in which order, and what is left."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from course.notebook_files import NOTEBOOKS, long_notebooks, long_path
from course.records.card import Card, hardware, machine_name
from course.records.estimate import Expected, expected, gpus_needed, turn, worth
from course.records.notebook_hash import notebook_hash
from course.records.store import Record
from course.records.travel import Place, old_record
from course.records.unfinished import code_of

NAME = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class Job:
    """A notebook to record, with the record that is there, and what it is expected to take.

    ``current`` says that it is to be recorded anew, with nothing taken over.
    """

    path: Path
    old: Record | None
    expected: Expected
    current: bool = False

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
    place: Place,
    card: Card,
    *,
    named: bool = False,
    again: bool = False,
    by_turn: bool = True,
) -> list[Job]:
    """The notebooks to record, in order; why others are passed over is printed."""
    folder = place.folder / machine_name(card)
    found = []
    for path in paths:
        old = old_record(folder / f"{path.stem}.json")
        current = old is not None and _is_current(old, path, card)
        if old is not None and current and not again:
            when = f"recorded {old.recorded:%Y-%m-%d} with this very code"
            print(f"{path.stem}: {when}; --again records it anew")
            continue
        needed = gpus_needed(path.stem)
        if card["gpu"] and not named and card["gpu"]["count"] < needed:
            has = f"this machine has {card['gpu']['count']}"
            print(f"{path.stem}: left out, it needs {needed} GPUs and {has}; to record it, name it")
            continue
        seconds = expected(path.stem, old, gpu=bool(card["gpu"]))
        if not current:
            kept = place.unfinished.kept(path.stem, code_of(path, card))
            seconds = seconds.without(sum(line.seconds for line in kept))
        found.append(Job(path, old, seconds, current))
    if not named:
        found.sort(key=lambda job: _rank(job, on_gpu=bool(card["gpu"]), by_turn=by_turn))
    return found


def _rank(job: Job, *, on_gpu: bool, by_turn: bool) -> tuple[float, ...]:
    """The place in the order: by turn, by worth for its time, by age."""
    alone = judged = recorded = 0.0
    order = 0
    if by_turn:
        order = turn(job.old)
        if job.old is not None:
            recorded = job.old.recorded.timestamp()
    if on_gpu:
        alone, judged = worth(job.name, job.expected.seconds)
    return order, -alone, -judged, recorded


def _is_current(old: Record, path: Path, card: Card) -> bool:
    """Whether nothing that could change the figures has changed since."""
    if old.failed:
        return False
    then = old.notebook_hash, old.labkit, old.card["torch"], hardware(old.card)
    now = notebook_hash(path), card["labkit"], card["torch"], hardware(card)
    return then == now


def fits(job: Job, left: float, whole: float, *, first: bool) -> bool:
    """Whether a notebook may begin when so many seconds are left of a command.

    One that fits no command whole begins as the first one of a command: what its labs measure is
    kept, and the next command goes on.
    """
    if first and job.expected.seconds > whole:
        return True
    return job.expected.seconds <= left


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
