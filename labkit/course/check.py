"""Checks what students handed in: each exercise in a process of its own, in a copy of the submission's folder."""

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
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

from labkit.records.files import notebook_path

from .files import CourseError, Exercise, check_call, check_name, exercises, original, read_notebook
from .slices import answer

RESULTS = ("passed", "not yet", "error", "time limit", "wrote outside", "not attempted", "unreadable")
_BESIDE_BYTES, _BESIDE_FILES = 64 * 2**20, 500  # what is copied with a notebook
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]+")
_JUDGE = Path(__file__).with_name("judge.py")


@dataclass(frozen=True)
class Outcome:
    """A row of the table: what became of one exercise of one submission."""

    submission: str
    notebook: str
    exercise: str
    result: str
    message: str
    seconds: float
    guard: str


COLUMNS = tuple(field.name for field in fields(Outcome))


def find(paths: Sequence[Path]) -> list[Path]:
    """The notebooks at ``paths``, with those in folders. CourseError for a path that is neither."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(each for each in path.rglob("*.ipynb") if not _hidden(each.relative_to(path)))
            if not inside:
                raise CourseError(f"{path}: no notebooks in this folder")
            found += inside
        elif path.suffix == ".ipynb" and path.exists():
            found.append(path)
        else:
            raise CourseError(f"{path}: no notebook and no folder is there")
    return list(dict.fromkeys(found))


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def check(path: Path, *, timeout: float = 60.0, landlock: bool = True) -> Iterator[Outcome]:
    """Check all exercises of one submission, and yield what became of each; nothing that it holds ends the caller."""
    try:
        submission = read_notebook(path)
        course = original(path, submission)
    except CourseError as error:
        yield _outcome(path, "", "", "unreadable", str(error))
        return
    for exercise in exercises(course):
        about = (path, course.stem, exercise.name)
        try:
            found = answer(exercise, submission, read_notebook(course))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            yield _outcome(*about, "error", f"{type(error).__name__}: {error}")
            continue
        if not found.attempted:
            yield _outcome(*about, "not attempted", "the stub is as it was")
            continue
        result = _run(path, exercise, found.cells, timeout, landlock)
        if "result" not in result:
            raise CourseError(f"an answer could not be run here: {result.get('broken', 'the judge said nothing')}")
        yield _outcome(*about, result["result"], result["message"], result["seconds"], result.get("guard", ""))


def _outcome(
    path: Path, notebook: str, exercise: str, result: str, message: str, seconds: float = 0.0, guard: str = ""
) -> Outcome:
    """With texts of a submission as one printable line of bounded length."""
    plain = _UNPRINTABLE.sub(" ", message).strip()
    name = _UNPRINTABLE.sub("?", str(path).encode(errors="replace").decode())
    return Outcome(name, notebook, exercise, result, plain[:400].encode(errors="replace").decode(), seconds, guard)


def _run(
    path: Path, exercise: Exercise, cells: list[tuple[str, str]], timeout: float, landlock: bool
) -> dict[str, Any]:
    """Run the cells and the course's check with the judge, in a folder that is gone afterwards."""
    call = check_call(exercise.call)
    assert call is not None
    with tempfile.TemporaryDirectory(prefix="labkit-course-", ignore_cleanup_errors=True) as box:
        work, home, scratch = (Path(box).resolve() / name for name in ("work", "home", "tmp"))
        home.mkdir()
        scratch.mkdir()
        _copy_folder(path, work)
        shared = ["/dev/shm"] if Path("/dev/shm").is_dir() else []  # where tensors of worker processes lie
        job = {
            "work": str(work),
            "folders": [str(work), str(home), str(scratch), *shared],
            "cells": cells,
            "check": check_name(call),
            "call": exercise.call,
            "timeout": timeout,
            "landlock": landlock,
        }
        done = subprocess.run(
            [sys.executable, "-P", str(_JUDGE)],
            input=json.dumps(job),
            env=_environment(home, scratch),
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=timeout + 60,
        )
    if done.returncode:
        how = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return {"result": "error", "message": f"the judge was ended: {how}", "seconds": 0.0}
    return dict(json.loads(done.stdout))


def _environment(home: Path, scratch: Path) -> dict[str, str]:
    """One without the user's own folders; the small sizes, and no GPU: the checks' results hold on every machine."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("JUPYTER", "LABKIT_", "XDG_"))}
    if data := os.environ.get("LABKIT_DATA"):
        kept["LABKIT_DATA"] = os.path.abspath(data)
    paths = [str(notebook_path("x").parents[1]), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    private = {name: str(home / name.lower()) for name in ("MPLCONFIGDIR", "IPYTHONDIR")}
    private |= {f"JUPYTER_{name}_DIR": str(home / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    return (
        kept
        | private
        | {
            "HOME": str(home),
            "TMPDIR": str(scratch),
            "PYTHONUSERBASE": site.getuserbase(),
            "PYTHONPATH": os.pathsep.join(map(os.path.abspath, paths)),
            "PYTHONDONTWRITEBYTECODE": "1",
            "MPLBACKEND": "Agg",
            "CUDA_VISIBLE_DEVICES": "",
            "LABKIT_SIZE": "test",
        }
    )


def _copy_folder(path: Path, work: Path) -> None:
    """The submission and what lies beside it: no other notebooks, nothing hidden, no links; just it, if that is much."""
    work.mkdir()
    size, beside = 0, []
    for top, folders, names in os.walk(path.parent):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        files = [Path(top) / name for name in names if not name.startswith(".") and not name.endswith(".ipynb")]
        beside += [file for file in files if file.is_file() and not file.is_symlink()]
        size += sum(file.stat().st_size for file in files if file in beside)
        if size > _BESIDE_BYTES or len(beside) > _BESIDE_FILES:
            print(f"labkit: {path}: its folder is large; only the notebook itself was copied", file=sys.stderr)
            beside = []
            break
    for file in [*beside, path]:
        target = work / file.relative_to(path.parent)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)


def main(args: Any) -> int:
    """``labkit course check``: prints a row as soon as it is known."""
    if not (math.isfinite(args.timeout) and args.timeout > 0):
        raise CourseError(f"--timeout {args.timeout:g}: use a positive number of seconds")
    if not hasattr(os, "fork"):
        raise CourseError("checking needs Linux or macOS; on Windows use WSL")
    if args.csv is not None and args.csv.suffix == ".ipynb":
        raise CourseError(f"--csv {args.csv}: this is a notebook")
    paths = find(args.paths)
    width = min(60, max(len(str(path)) for path in paths))
    counts: Counter[str] = Counter()
    guards: set[str] = set()
    with ExitStack() as stack:
        table = None
        if args.csv is not None:
            file = stack.enter_context(args.csv.open("w", encoding="utf-8", newline=""))
            table = csv.writer(file)
            table.writerow(COLUMNS)
        print(f"{'submission':{width}}  {'exercise':26}  {'result':13}  {'s':>5}  message")
        for path in paths:
            for row in check(path, timeout=args.timeout):
                counts[row.result] += 1
                guards |= {row.guard} - {""}
                print(
                    f"{row.submission:{width}}  {row.exercise:26}  {row.result:13}  {row.seconds:5.1f}  {row.message}",
                    flush=True,
                )
                if table:
                    # A spreadsheet takes a text that begins like this for a formula.
                    table.writerow([f"'{v}" if str(v).startswith(("=", "+", "-", "@")) else v for v in astuple(row)])
                    file.flush()
    print(", ".join(f"{counts[result]} {result}" for result in RESULTS if counts[result]))
    if guards:
        print(f"kept from writing outside their folders by: {'; '.join(sorted(guards))}")
    return int(counts["unreadable"] > 0)
