"""For teachers: copies of the notebooks for students (``build``), and the check of their answers.

A submission is data until it runs: `files` reads it, `slices` finds in its syntax tree what an
exercise needs. `check` judges it in a `child` with limits, and writes the table; `feedback` writes
what a student reads. The code itself runs in `answerer`, behind a wall of `sandbox`; `remote` talks
to it in `values` only.
`gradebook` and `nbgrader` write what learning platforms and nbgrader take.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def add_parsers(actions: Any) -> None:
    """Add ``build`` and ``check`` to the commands of `course`; `main` runs them."""
    _add_build(actions)
    _add_check(actions)


def _add_build(actions: Any) -> None:
    build = actions.add_parser(
        "build", help="write copies of all notebooks: --student, --instructor, --nbgrader"
    )
    for whose, kept in (
        ("student", "without solutions and outputs"),
        ("instructor", "that keep them"),
        ("nbgrader", "as an nbgrader course takes them"),
    ):
        out = f"folder for copies {kept}"
        build.add_argument(f"--{whose}", type=Path, metavar="OUT", help=out)
    force = "replace files there that differ: their changes are lost"
    build.add_argument("--force", action="store_true", help=force)


def _add_check(actions: Any) -> None:
    check = actions.add_parser(
        "check", help="run the checks of submitted notebooks; exit 1 if one could not be judged"
    )
    submissions = "notebooks, or folders of them"
    check.add_argument("paths", nargs="+", type=Path, metavar="NOTEBOOK", help=submissions)
    for option, unit, written in (
        ("csv", "FILE", "write the table to this file, too"),
        ("gradebook", "FILE", "write points by student, for Canvas or Moodle"),
        ("feedback", "DIR", "write a file for each submission's student"),
    ):
        check.add_argument(f"--{option}", type=Path, metavar=unit, help=written)
    for option, default, unit, limited in (
        ("jobs", 1, "N", "submissions at a time"),
        ("timeout", 60.0, "S", "seconds for an exercise, counted after the imports"),
        ("memory", 4096, "MB", "for an exercise, and as much for its check"),
        ("disk", 256, "MB", "for what an exercise writes"),
    ):
        text = f"{limited} ({default:g})"
        check.add_argument(
            f"--{option}", type=type(default), default=default, metavar=unit, help=text
        )
    image = "container image, for docker or podman"
    check.add_argument("--image", default="speed-lab-class", help=image)
    trust = "run them without a sandbox: for submissions that you trust with your files"
    check.add_argument("--trust-submissions", action="store_true", help=trust)


def main(args: Any) -> int:
    """``build`` or ``check``.

    0 when all ran, 1 when a submission could not be judged, 2 for wrong usage.
    """
    from course.classroom import build, check
    from course.classroom.files import CourseError

    mains = {"build": build.main, "check": check.main}
    try:
        return mains[args.command](args)
    except (CourseError, OSError) as error:
        print(f"course: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130
