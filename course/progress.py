"""The path through the front notebooks, and how far the reader has come: a file beside the board's.

Nothing that is wrong with the file keeps the reader from going on: what is wrong is told in `said`.
A file that cannot be read is put aside under another name before a new one is written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from course.board.store import board_path, shown
from course.written import write_whole
from labkit.device import test_size
from labkit.panel.guess import Decided

# The front notebooks from easy to hard; one that races is followed by one that does not.
# Batch norm comes before all trainings to a target: on the board these need it.
PATH = (
    "00_start_here",
    "01_timing_and_vectorization",
    "04_data_loading",
    "20_validation_without_grad",
    "06_mixed_precision",
    "15_zeroing_gradients",
    "02_minibatch_sgd",
    "11_activation_checkpointing",
    "16_as_tensor",
    "21_normalization",
    "19_bias_before_batchnorm",
    "17_debug_tools",
    "18_gradient_clipping",
    "10_host_device_transfers",
    "08_optimizers",
    "09_cudnn_benchmark",
    "07_fp16_numerics",
    "24_attention",
    "03_learning_rate_schedules",
    "12_sublinear_memory",
    "05_batch_size",
    "13_gradient_accumulation",
    "22_compile_and_cuda_graphs",
    "14_distributed_data_parallel",
    "23_find_the_bottleneck",
)
SCHEMA = 1
ABOUT = "PyTorch Speed Lab: what you finished, and what you bet. Delete this file to begin anew."
# Seconds to wait for another kernel. Writing takes milliseconds.
PATIENCE = 5.0
# How many open notebooks are named at the end of the path.
NAMED = 3


class Damaged(ValueError):
    """The file holds no progress, and why."""


@dataclass(frozen=True)
class Noted:
    """What is kept of a notebook: the first day, and the bets that were decided in it.

    ``solved`` says that the reader's own answer to its exercise has passed, ``done`` that it is
    finished.
    """

    date: str
    bets: tuple[Decided, ...] = ()
    solved: bool = False
    done: bool = False

    def joined(self, bets: Iterable[Decided], solved: bool, done: bool) -> Noted:
        """With more bets; a question counts by its first answer."""
        known = {bet.question: bet for bet in bets} | {bet.question: bet for bet in self.bets}
        solved, done = self.solved or solved, self.done or done
        return replace(self, bets=tuple(known.values()), solved=solved, done=done)


@dataclass(frozen=True)
class Progress:
    """What is kept of notebooks, by name; ``said`` is what the reader should know of the file."""

    notebooks: Mapping[str, Noted] = field(default_factory=dict)
    said: str = ""

    @property
    def finished(self) -> dict[str, Noted]:
        """The finished notebooks."""
        return {name: each for name, each in self.notebooks.items() if each.done}

    @property
    def bets(self) -> tuple[Decided, ...]:
        """All bets over the course, of finished notebooks and of open ones."""
        return tuple(bet for each in self.notebooks.values() for bet in each.bets)

    def bets_in(self, notebook: str) -> tuple[Decided, ...]:
        """The bets of one notebook."""
        return self.notebooks[notebook].bets if notebook in self.notebooks else ()

    def joined(
        self, notebook: str, bets: Iterable[Decided], *, solved: bool, done: bool
    ) -> Progress:
        """With more of one notebook."""
        before = self.notebooks.get(notebook, Noted(date.today().isoformat()))
        joined = before.joined(bets, solved, done)
        return replace(self, notebooks={**self.notebooks, notebook: joined})


def next_after(notebook: str, finished: Collection[str] = ()) -> tuple[str, ...]:
    """The next notebook of the path that is not finished; where none is, the first ``NAMED`` that
    are still open before it.

    >>> next_after("00_start_here")
    ('01_timing_and_vectorization',)
    """
    place = PATH.index(notebook) + 1 if notebook in PATH else 0
    after, before = (
        tuple(name for name in names if name not in finished and name != notebook)
        for names in (PATH[place:], PATH[:place])
    )
    return after[:1] or before[:NAMED]


def progress_path() -> Path | None:
    """`progress.json` beside the board's file; None in the test size, unless a board is named."""
    if test_size() and not os.environ.get("LABKIT_BOARD"):
        return None
    return board_path().with_name("progress.json")


def read() -> Progress:
    """How far the reader has come."""
    path = progress_path()
    if path is None:
        return Progress()
    try:
        return _content(path)
    except (Damaged, OSError) as error:
        return Progress(said=_told(path, error))


def note(
    notebook: str, bets: Iterable[Decided] = (), *, solved: bool = False, done: bool = True
) -> Progress:
    """Note the bets that were decided in a notebook, and whether it is finished.

    ``solved`` says that the reader's own answer to its exercise has passed.
    """
    path, bets = progress_path(), tuple(bets)

    def noted(present: Progress) -> Progress:
        return present.joined(notebook, bets, solved=solved, done=done)

    if path is None:
        return noted(Progress())
    try:
        return _change(path, noted)
    except (OSError, Timeout) as error:
        return replace(noted(read()), said=_told(path, error))


def _change(path: Path, how: Callable[[Progress], Progress]) -> Progress:
    path.parent.mkdir(parents=True, exist_ok=True)
    said = ""
    with FileLock(path.with_name(f".{path.name}.lock"), timeout=PATIENCE):
        try:
            present = _content(path)
        except Damaged as error:
            aside = _put_aside(path)
            said = f"{_told(path, error)} It is kept as {aside.name}; a new one was begun."
            present = Progress()
        present = how(present)
        notebooks = {name: asdict(each) for name, each in present.notebooks.items()}
        content = {"schema": SCHEMA, "about": ABOUT, "notebooks": notebooks}
        write_whole(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    return replace(present, said=said)


def _content(path: Path) -> Progress:
    """What the file says; Damaged or OSError where it cannot be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["schema"] != SCHEMA:
            raise Damaged(f"has schema {content['schema']}; this version knows {SCHEMA}")
        notebooks = content["notebooks"].items()
        return Progress({name: _noted(entry) for name, entry in notebooks})
    except FileNotFoundError:
        return Progress()
    except Damaged:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"is damaged: {type(error).__name__}: {error}") from None


def _noted(entry: Mapping[str, Any]) -> Noted:
    bets = []
    for bet in entry["bets"]:
        question, answer, measured = (str(bet[name]) for name in ("question", "bet", "measured"))
        bets.append(Decided(question, answer, measured, bool(bet["right"])))
    # Older files hold finished notebooks alone.
    solved, done = bool(entry.get("solved", False)), bool(entry.get("done", True))
    return Noted(str(entry["date"]), tuple(bets), solved, done)


def _told(path: Path, error: Exception) -> str:
    if isinstance(error, Damaged):
        return f"{shown(path)} {error}."
    if isinstance(error, Timeout):
        return f"{shown(path)} is in use: nothing was noted. Run this cell again."
    reason = getattr(error, "strerror", None) or str(error)
    return f"{shown(path)} cannot be used: {reason}. Nothing was noted."


def _put_aside(path: Path) -> Path:
    """Give the file a name that is free."""
    number = 1
    while (aside := path.with_name(f"{path.stem}.aside-{number}{path.suffix}")).exists():
        number += 1
    return path.rename(aside)
