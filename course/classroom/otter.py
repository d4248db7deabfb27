"""Hand-over to otter-grader: its tests, and of each submission a notebook that runs in seconds.

    OUT/NOTEBOOK/tests/NAME.py             a test in otter's format, for each exercise
    OUT/NOTEBOOK/submissions/STUDENT.ipynb  what the exercises need of a submission, and no more
    OUT/course, OUT/labkit ...             what a check imports: support files of an autograder
    OUT/requirements.txt                   what `otter generate` lets a container install

Whole notebooks time things for minutes. Then, in OUT, with otter-grader in the course's own
environment:

    otter generate -t NOTEBOOK/tests -o NOTEBOOK.zip course labkit sublinear whyslow
    otter run -a NOTEBOOK.zip NOTEBOOK/submissions/STUDENT.ipynb
    otter grade -n NAME -a NOTEBOOK.zip NOTEBOOK/submissions
"""

from __future__ import annotations

import pprint
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat

from course.classroom.check import find
from course.classroom.files import (
    CourseError,
    Exercise,
    course_notebooks,
    exercises,
    name_of,
    original,
    read_notebook,
    shown,
)
from course.classroom.slices import answer
from course.notebook_files import ROOT, notebook_text, place
from labkit.text import write_whole

# of the checkout: labkit's wheel does not hold the exercises
IMPORTED = (
    "course/__init__.py",
    "course/data.py",
    "course/data_sources.json",
    "course/data_sources.py",
    "course/exercises",
    "course/kernels.py",
    "course/machine.py",
    "course/models.py",
    "labkit",
    "sublinear",
    "whyslow",
)


def otter_test(exercise: Exercise) -> str:
    """An exercise as a test file in otter's format, worth one point."""
    name = exercise.check.removeprefix("check_")
    # A doctest: what the check prints is its output, so that only its value may be shown.
    code = "\n".join(
        [
            ">>> import contextlib, io",
            ">>> from course import exercises",
            ">>> with contextlib.redirect_stdout(io.StringIO()) as said:",
            f"...     passed = {exercise.call}",
            ">>> passed or print(said.getvalue().strip())",
            "True",
        ]
    )
    case = {"code": code, "hidden": False, "locked": False}
    suite = {"cases": [case], "scored": True, "setup": "", "teardown": "", "type": "doctest"}
    test = {"name": name, "points": 1, "suites": [suite]}
    return f"OK_FORMAT = True\n\ntest = {pprint.pformat(test, sort_dicts=False, width=100)}\n"


def sliced(submission: Path) -> tuple[Path, str]:
    """The course's notebook that it belongs to, and a notebook of what its exercises need."""
    try:
        notebook = read_notebook(submission, links=False)
        course = original(submission, notebook)
    except CourseError as error:
        name = shown(name_of(submission))
        raise CourseError(f"{name}: {error}; nothing was written") from None
    cells: list[str] = []
    for exercise in exercises(course):
        try:
            found = answer(exercise, notebook, read_notebook(course)) or []
        except (SyntaxError, ValueError, RecursionError) as error:
            found = [f"raise SyntaxError({str(error)!r})"]
        cells += [each for each in found if each not in cells]
    made = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(each, id=f"cell-{n}") for n, each in enumerate(cells)]
    )
    made.metadata["kernelspec"] = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    return course, notebook_text(made)


def support() -> dict[str, bytes]:
    """What the checks need of the course, by its path; of the course's notebooks nothing."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    files = {"requirements.txt": "\n".join([*project["dependencies"], ""]).encode()}
    for name in IMPORTED:
        found = (ROOT / name).rglob("*") if (ROOT / name).is_dir() else [ROOT / name]
        for path in found:
            if path.is_file() and "__pycache__" not in path.parts:
                files[path.relative_to(ROOT).as_posix()] = path.read_bytes()
    return files


def hand_over(out: Path, submissions: Sequence[Path]) -> list[Path]:
    """Write tests and submissions below ``out``; returns what was written.

    Without submissions the tests of every notebook. CourseError where a file is there already.
    """
    files: dict[Path, str] = {}
    courses = set() if submissions else set(course_notebooks())
    for number, path in enumerate(submissions, start=1):
        course, text = sliced(path)
        courses.add(course)
        name = f"{path.parent.name}-{path.stem}-{number}.ipynb"
        files[_folder(out, course) / "submissions" / name] = text
    for course in courses:
        folder = _folder(out, course)
        for exercise in exercises(course):
            name = exercise.check.removeprefix("check_")
            files[folder / "tests" / f"{name}.py"] = otter_test(exercise)
    # the same for every notebook: it may be there, but not another one
    shared = {out / name: content for name, content in support().items()}
    there = [path for path in files if path.exists()]
    there += [path for path, own in shared.items() if path.exists() and path.read_bytes() != own]
    if there:
        raise CourseError(f"{there[0]} is there already; nothing was written")
    for path, content in (files | shared).items():
        write_whole(path, content)
    return [*files, *shared]


def _folder(out: Path, course: Path) -> Path:
    return out / place(course).replace("/", "-")


def main(args: Any) -> int:
    """``python -m course otter``."""
    found = find(args.paths) if args.paths else []
    print(f"{len(hand_over(args.out, found))} files written")
    return 0
