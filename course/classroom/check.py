"""Checks what students handed in: each exercise in a process of its own, in a copy of the
submission's folder.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
import shutil
import site
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from course.classroom.files import CourseError, exercises, original, read_notebook
from course.classroom.slices import answer
from course.notebook_files import ROOT

RESULTS = (
    "passed",
    "not yet",
    "error",
    "time limit",
    "wrote outside",
    "not attempted",
    "unreadable",
)
# variables that name folders of the caller's
FOREIGN = (
    "JUPYTER",
    "LABKIT_",
    "XDG_",
    "TORCHINDUCTOR_",
    "TRITON_",
)
UNTOUCHED = "the stub is as it was, or its cell is gone"
# bytes and files that are copied with a notebook; where there is more, none
BESIDE = (
    64 * 2**20,
    500,
)
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]+")


class Outcome(NamedTuple):
    """A row of the table: what became of one exercise of one submission."""

    submission: str
    notebook: str
    exercise: str
    # one of RESULTS
    result: str
    message: str = ""
    seconds: float = 0.0
    # what kept it from writing outside its folder
    guard: str = ""


def find(paths: Sequence[Path]) -> list[Path]:
    """The notebooks at ``paths``, with those in folders. CourseError for a path that is neither."""
    found: list[Path] = []
    for path in paths:
        inside = [
            each for each in sorted(path.rglob("*.ipynb")) if not _hidden(each.relative_to(path))
        ]
        if not inside and not (path.suffix == ".ipynb" and path.exists()):
            raise CourseError(
                f"{path}: {'no notebooks in it' if path.is_dir() else 'no notebook and no folder'}"
            )
        found += inside or [path]
    return list(dict.fromkeys(found))


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def check(path: Path, *, timeout: float = 60.0, landlock: bool = True) -> Iterator[Outcome]:
    """Check all exercises of one submission, and yield what became of each.

    Nothing that it holds ends the caller.
    """
    try:
        submission = read_notebook(path)
        course = original(path, submission)
    except CourseError as error:
        yield Outcome(_plain(path), "", "", "unreadable", _plain(error))
        return
    for exercise in exercises(course):
        row = Outcome(
            _plain(path),
            course.stem,
            exercise.check.removeprefix("check_"),
            "not attempted",
            UNTOUCHED,
        )
        try:
            cells = answer(exercise, submission, read_notebook(course))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            yield row._replace(result="error", message=_plain(f"{type(error).__name__}: {error}"))
            continue
        if cells is not None:
            job = {"cells": cells, "check": exercise.check, "call": exercise.call}
            found = _run(path, job | {"timeout": timeout, "landlock": landlock})
            row = row._replace(**found | {"message": _plain(found["message"])})
        yield row


def _plain(text: object) -> str:
    """One printable line of bounded length."""
    return _UNPRINTABLE.sub(" ", str(text)).strip()[:400]


def _run(path: Path, job: dict[str, Any]) -> dict[str, Any]:
    """Let the judge run a job in a folder that is gone afterwards; fields of the outcome."""
    with tempfile.TemporaryDirectory(prefix="labkit-course-", ignore_cleanup_errors=True) as box:
        work, home, scratch = folders = [
            Path(box).resolve() / name for name in ("work", "home", "tmp")
        ]
        for folder in folders:
            folder.mkdir()
        for file in [*_beside(path), path]:
            (work / file.relative_to(path.parent)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, work / file.relative_to(path.parent))
        # shm: of torch's workers
        shared = [place for place in ("/dev/shm", os.devnull) if os.path.exists(place)]
        done = subprocess.run(
            [sys.executable, "-P", Path(__file__).with_name("judge.py")],
            input=json.dumps(job | {"work": str(work), "places": [*map(str, folders), *shared]}),
            env=_environment(home, scratch),
            capture_output=True,
            encoding="utf-8",
        )
    # without Landlock's version 6 an answer may kill its judge
    if done.returncode < 0:
        return {"result": "error", "message": f"its judge was ended by signal {-done.returncode}"}
    if done.returncode or "broken" in (found := json.loads(done.stdout)):
        why = found["broken"] if not done.returncode else done.stderr
        raise CourseError(f"answers cannot be run here: {why}")
    return {
        name: found[name] for name in ("result", "message", "seconds", "guard") if name in found
    }


def _environment(home: Path, scratch: Path) -> dict[str, str]:
    """One without the user's own folders.

    The small sizes, and no GPU: the checks' results hold on every machine.
    """
    kept = {name: text for name, text in os.environ.items() if not name.startswith(FOREIGN)}
    if data := os.environ.get("LABKIT_DATA"):
        kept["LABKIT_DATA"] = os.path.abspath(data)
    private = (
        "MPLCONFIGDIR",
        "IPYTHONDIR",
        "JUPYTER_CONFIG_DIR",
        "JUPYTER_DATA_DIR",
        "JUPYTER_RUNTIME_DIR",
    )
    kept |= {name: str(home / name.lower()) for name in private} | {
        "HOME": str(home),
        "TMPDIR": str(scratch),
    }
    kept |= {
        "MPLBACKEND": "Agg",
        "CUDA_VISIBLE_DEVICES": "",
        "LABKIT_SIZE": "test",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    paths = [
        str(ROOT),
        *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)),
    ]
    absolute = os.pathsep.join(os.path.abspath(path) for path in paths)
    return kept | {"PYTHONPATH": absolute, "PYTHONUSERBASE": site.getuserbase()}


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
                f"labkit: {path}: its folder is large; only the notebook itself was copied",
                file=sys.stderr,
            )
            return []
    return found


def main(args: Any) -> int:
    """``python -m course check``: prints a row as soon as it is known."""
    if not (math.isfinite(args.timeout) and args.timeout > 0):
        raise CourseError(f"--timeout {args.timeout:g}: use a positive number of seconds")
    if not hasattr(os, "fork"):
        raise CourseError("checking needs Linux or macOS; on Windows use WSL")
    if args.csv is not None and args.csv.suffix == ".ipynb":
        raise CourseError(f"--csv {args.csv}: this is a notebook")
    paths, rows = find(args.paths), []
    width = max(len("submission"), *(len(_plain(path)) for path in paths))
    form = f"{{:{width}}}  {{:26}}  {{:13}}  {{:>7}}  {{}}"
    with ExitStack() as stack:
        file = stack.enter_context(open(args.csv or os.devnull, "w", encoding="utf-8", newline=""))
        table = csv.writer(file)
        table.writerow(Outcome._fields)
        print(form.format("submission", "exercise", "result", "seconds", "message"))
        for row in (row for path in paths for row in check(path, timeout=args.timeout)):
            rows.append(row)
            print(
                form.format(row.submission, row.exercise, row.result, row.seconds, row.message),
                flush=True,
            )
            # A spreadsheet takes a text that begins like this for a formula.
            table.writerow(
                [f"'{text}" if str(text).startswith(tuple("=+-@")) else text for text in row]
            )
            file.flush()
    counts = Counter(row.result for row in rows)
    print(", ".join(f"{counts[result]} {result}" for result in RESULTS if counts[result]))
    print(
        *{
            f"writing outside their folders was stopped by: {row.guard}"
            for row in rows
            if row.guard
        },
        sep="\n",
    )
    return int(counts["unreadable"] > 0)
