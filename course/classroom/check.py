"""Checks what students handed in: each exercise in a process of its own, behind a wall.

The check itself runs outside of it (`remote`): what the student's process sends are values, and a
verdict needs the right ones. Some checks look at what happens inside the answer, and so can be made
only beside it; the column ``judged`` says which.

Values and notebooks can end the process that judges them. So each submission is judged in a child
(`child`) with limits of memory and time: where it dies, the row says "not run".
"""

from __future__ import annotations

import ast
import csv
import math
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from course import exercises as checks
from course.classroom.child import START, Child, Now, Say, wait_for
from course.classroom.feedback import Outcome, write_feedback
from course.classroom.files import (
    CourseError,
    Exercise,
    ForeignNotebook,
    escaped,
    exercises,
    in_a_table,
    name_of,
    original,
    read_notebook,
    shown,
)
from course.classroom.gradebook import write_gradebook
from course.classroom.remote import Process, Remote, Stopped, raise_error
from course.classroom.sandbox import ENGINE_S, Limits, Wall, find_wall
from course.classroom.slices import answer
from course.exercises.tell import NotYet
from course.notebook_files import open_file

RESULTS = (
    "passed",
    "not yet",
    "error",
    "time limit",
    "memory limit",
    "process limit",
    "wrote outside",
    "not attempted",
    "no exercise",
    "not run",
    "foreign",
    "unreadable",
)
# those that are for the teacher to look at: nothing was judged
UNJUDGED = ("not run", "foreign", "unreadable")
# variables of the caller's that a student's process gets
KEPT = ("PATH", "LANG", "LC_ALL", "LABKIT_DATA")
# and those that a judge needs besides: to import what its caller does, and to start containers
JUDGE_S = ("LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONUSERBASE", *ENGINE_S)
NO_EXERCISE = "this notebook has no exercise: the front one of its number has it"
UNTOUCHED = "the stub is as it was, or its cell is gone"
# bytes and files that are copied with a notebook; where there is more, none
BESIDE = (64 * 2**20, 500)
# characters of a message
LONGEST = 400


# told the row that is worked on, and for how many seconds that may go on
Begin = Callable[[Outcome, float], None]


def _nobody(row: Outcome, seconds: float) -> None:
    """Nobody listens."""


def find(paths: Sequence[Path]) -> list[Path]:
    """The notebooks at ``paths``, with those in folders. CourseError for a path that is neither.

    A folder of ``paths`` may be a link, as the caller's own. A link inside is not followed: it is
    found itself, and cannot be read.
    """
    found: list[Path] = []
    for path in paths:
        inside = _inside(path) if path.is_dir() else []
        if not inside and not (path.suffix == ".ipynb" and os.path.lexists(path)):
            what = "no notebooks in it" if path.is_dir() else "no notebook and no folder"
            raise CourseError(f"{shown(name_of(path))}: {what}")
        found += inside or [path]
    return list(dict.fromkeys(found))


def _inside(top: Path) -> list[Path]:
    """The notebooks in a folder, and what is in the way to some: links, folders that are closed."""
    found: list[Path] = []

    def closed(error: OSError) -> None:
        found.append(Path(error.filename))

    for place, folders, names in os.walk(top, onerror=closed):
        folders[:] = [name for name in folders if not name.startswith(".")]
        files = [name for name in names if not name.startswith(".")]
        found += [Path(place, name) for name in (*folders, *files) if name.endswith(".ipynb")]
        found += [path for path in (Path(place, name) for name in folders) if path.is_symlink()]
    return sorted(set(found))


def check(
    path: Path, wall: Wall, limits: Limits | None = None, begin: Begin = _nobody
) -> Iterator[Outcome]:
    """Check all exercises of one submission, and yield what became of each.

    Of the child: what it reads may end the process (`check_all`). ``begin`` is told the row that it
    works on, and how many seconds it may.
    """
    limits = limits or Limits()
    place = name_of(path)
    begin(Outcome(place, "", "", "not run"), 2 * limits.seconds)
    try:
        submission = read_notebook(path, links=False)
        course = original(path, submission)
    except ForeignNotebook as error:
        yield Outcome(place, "", "", "foreign", _plain(error))
        return
    except CourseError as error:
        yield Outcome(place, "", "", "unreadable", _plain(error))
        return
    asked = exercises(course)
    if not asked:
        yield Outcome(place, course.stem, "", "no exercise", NO_EXERCISE)
    for exercise in asked:
        name = exercise.check.removeprefix("check_")
        row = Outcome(place, course.stem, name, "not attempted", UNTOUCHED)
        begin(row, 2 * limits.seconds)
        try:
            cells = answer(exercise, submission, read_notebook(course))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            yield row._replace(result="error", message=_plain(f"{type(error).__name__}: {error}"))
            continue
        if cells is not None:
            try:
                row = _checked(row, path, exercise, cells, wall, limits, begin)
            except (CourseError, OSError) as error:
                row = row._replace(result="not run", message=str(error))
        yield row._replace(message=_plain(row.message))


def _plain(text: object) -> str:
    """One printable line of bounded length, with no blanks in which it could go on as a row."""
    # cut twice: it may be of many MB, and grows where it is escaped
    return escaped(" ".join(str(text)[: 10 * LONGEST].split()))[:LONGEST]


def _checked(
    row: Outcome,
    path: Path,
    exercise: Exercise,
    cells: list[str],
    wall: Wall,
    limits: Limits,
    begin: Begin,
) -> Outcome:
    """Run one answer, and judge it."""
    with tempfile.TemporaryDirectory(prefix="labkit-course-", ignore_cleanup_errors=True) as folder:
        box = Path(folder).resolve()
        for file in [*_beside(path), path]:
            there = box / "given" / file.relative_to(path.parent)
            there.parent.mkdir(parents=True, exist_ok=True)
            with open_file(file, links=False) as source, there.open("xb") as target:
                shutil.copyfileobj(source, target)
        (box / "room").mkdir()
        # it has a clock of its own
        begin(row, START + limits.seconds)
        with Process(wall, box, _environment(), limits) as process:
            begin(row, 2 * limits.seconds)
            result, message = _verdict(process, exercise, cells)
            seconds = round(time.monotonic() - process.began, 1)
            begin(row, START)
        if process.outside:
            result, message = "wrote outside", process.outside
    judged = getattr(checks, exercise.check).judged
    return row._replace(
        result=result, message=message, seconds=seconds, judged=judged, wall=wall.name
    )


def _verdict(process: Process, exercise: Exercise, cells: list[str]) -> tuple[str, str]:
    """Result and message."""
    check = getattr(checks, exercise.check)
    call: Any = ast.parse(exercise.call, mode="eval").body
    asked = [ast.unparse(each) for each in call.args]
    try:
        raise_error(process.ask({"do": "run", "cells": cells, "asked": asked}))
        if check.judged != "inside":
            check.__wrapped__(*(Remote(process, number) for number in range(len(asked))))
        if check.judged != "outside":
            told = process.ask({"do": "judge", "name": exercise.check})
            raise_error(told)
            if told.get("passed") is not True:
                raise NotYet(str(told.get("hint")))
    except NotYet as missing:
        return "not yet", str(missing)
    except Stopped as stopped:
        return stopped.result, str(stopped)
    # of the student's code, or of a check that met values which it did not expect
    except Exception as error:
        if _no_memory(error):
            raise MemoryError from error
        return "error", ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])
    return "passed", ""


def _no_memory(error: Exception) -> bool:
    """Whether this process has none left; an answer's own error arrives as one of another type."""
    refused = type(error) is RuntimeError and "can't allocate memory" in str(error)
    return refused or isinstance(error, MemoryError)


def _environment() -> dict[str, str]:
    """Nothing of the caller's own; the small sizes, and no GPU: checks hold on every machine."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    if "LABKIT_DATA" in kept:
        kept["LABKIT_DATA"] = os.path.abspath(kept["LABKIT_DATA"])
    return kept | {
        "MPLBACKEND": "Agg",
        "CUDA_VISIBLE_DEVICES": "",
        "LABKIT_SIZE": "test",
        # several answers run at a time
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _beside(path: Path) -> list[Path]:
    """The files of a submission's folder: no notebooks, nothing hidden, no links.

    None if they are too large.
    """
    found: list[Path] = []
    for top, folders, names in os.walk(path.parent):
        folders[:] = [name for name in folders if not name.startswith(".")]
        files = [
            Path(top, name)
            for name in names
            if not name.startswith(".") and not name.endswith(".ipynb")
        ]
        found += [file for file in files if file.is_file() and not file.is_symlink()]
        if len(found) > BESIDE[1] or sum(file.stat().st_size for file in found) > BESIDE[0]:
            print(
                f"labkit: {shown(name_of(path))}: its folder is large; only the notebook itself "
                "was copied",
                file=sys.stderr,
            )
            return []
    return found


def check_all(
    paths: Sequence[Path], wall: Wall, limits: Limits, jobs: int
) -> Iterator[list[Outcome]]:
    """The rows of each submission, as soon as they are known; ``jobs`` submissions at a time.

    Nothing that a submission holds ends the caller.
    """
    kept = {name: os.environ[name] for name in JUDGE_S if name in os.environ}
    environment = _environment() | kept
    waiting = list(reversed(paths))
    running: list[Child] = []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                path = waiting.pop()
                first = Outcome(name_of(path), "", "", "not run")
                work = partial(_judge, path, wall, limits)
                running.append(Child(work, first, wall.end, environment, limits.memory))
            wait_for(running)
            for child in [each for each in running if each.over()]:
                child.end()
                running.remove(child)
                yield _rows(child)
    finally:
        for child in running:
            child.end()


def _judge(path: Path, wall: Wall, limits: Limits, say: Say) -> None:
    """The work of a child: the rows of one submission."""
    for row in check(path, wall, limits, lambda row, seconds: say(Now(row, seconds))):
        say(row)


def _rows(child: Child) -> list[Outcome]:
    """What a child found, with what it was at when it died."""
    if not child.why:
        return child.said
    why = _plain(f"the check itself was ended: {child.why}")
    return [*child.said, child.what._replace(result="not run", message=why)]


def limits_of(args: Any) -> Limits:
    """The limits that a command line names. CourseError for what cannot be one."""
    for name in ("timeout", "memory", "disk", "jobs"):
        value = getattr(args, name)
        if not (math.isfinite(value) and value > 0):
            raise CourseError(f"--{name} {value:g}: use a positive number")
    return Limits(args.timeout, args.memory, args.disk)


def main(args: Any) -> int:
    """``python -m course check``: prints rows as soon as they are known."""
    limits = limits_of(args)
    if not hasattr(os, "fork"):
        raise CourseError("checking needs Linux or macOS; on Windows use WSL")
    for name in ("csv", "gradebook"):
        file = getattr(args, name)
        if file is not None and file.suffix == ".ipynb":
            raise CourseError(f"--{name} {file}: this is a notebook")
    paths = find(args.paths)
    wall = find_wall(trust=args.trust_submissions, image=args.image)
    rows: list[Outcome] = []
    width = max(len("submission"), *(len(shown(name_of(path))) for path in paths))
    form = f"{{:{width}}}  {{:26}}  {{:13}}  {{:>7}}  {{:7}}  {{}}"
    with ExitStack() as stack:
        file = stack.enter_context(open(args.csv or os.devnull, "w", encoding="utf-8", newline=""))
        table = csv.writer(file)
        table.writerow(Outcome._fields)
        file.flush()
        print(form.format("submission", "exercise", "result", "seconds", "judged", "message"))
        for found in check_all(paths, wall, limits, args.jobs):
            rows += found
            for row in found:
                told = (row.exercise, row.result, row.seconds, row.judged, row.message)
                print(form.format(shown(row.submission), *told), flush=True)
                table.writerow(map(in_a_table, row))
            file.flush()
            if args.feedback is not None:
                write_feedback(args.feedback, found)
    if args.gradebook is not None:
        write_gradebook(args.gradebook, rows)
    _close(rows, wall)
    return int(any(row.result in UNJUDGED for row in rows))


def _close(rows: Sequence[Outcome], wall: Wall) -> None:
    counts = Counter(row.result for row in rows)
    print(", ".join(f"{counts[result]} {result}" for result in RESULTS if counts[result]))
    print(f"wall: {wall.name}")
    beside = [row for row in rows if row.result == "passed" and row.judged != "outside"]
    if beside:
        print(
            f"{len(beside)} of those that passed were judged beside the answer, in part or wholly "
            '("both", "inside"): code that sets out to cheat can. Read these before you give marks.'
        )
