"""For teachers: copies of the notebooks for students (``build``), and the check of their answers.

A submission is data until it runs: `files` reads it, `slices` finds in its syntax tree what an
exercise needs, `check` writes the table, `judge` runs the code.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from course.classroom.files import CourseError


def add_parsers(actions: Any) -> None:
    """Add ``build`` and ``check`` to the commands of `course`; `main` runs them."""
    build = actions.add_parser(
        "build", help="write copies of all notebooks: --student, --instructor, or both"
    )
    build.add_argument(
        "--student",
        type=Path,
        metavar="OUT",
        help="folder for copies without solutions and outputs",
    )
    build.add_argument(
        "--instructor", type=Path, metavar="OUT", help="folder for copies that keep them"
    )
    build.add_argument(
        "--force",
        action="store_true",
        help="replace files there that differ: their changes are lost",
    )
    check = actions.add_parser(
        "check", help="run the checks of submitted notebooks; exit 1 if one cannot be read"
    )
    check.add_argument(
        "paths", nargs="+", type=Path, metavar="NOTEBOOK", help="notebooks, or folders of them"
    )
    check.add_argument("--csv", type=Path, metavar="FILE", help="write the table to this file, too")
    check.add_argument(
        "--timeout", type=float, default=60.0, metavar="S", help="seconds for an exercise (60)"
    )


def main(args: Any) -> int:
    """``build`` or ``check``.

    0 when all ran, 1 when a submission could not be read, 2 for wrong usage.
    """
    from course.classroom.build import main as build
    from course.classroom.check import main as check

    try:
        return build(args) if args.command == "build" else check(args)
    except (CourseError, OSError) as error:
        print(f"course: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130
