"""For teachers: copies of the notebooks for students, and the check of what they hand in (``labkit course``)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from .files import CourseError


def add_parser(commands: Any) -> None:
    """Add ``course`` to the subcommands of `labkit`; `main` runs it."""
    text = "make copies of the notebooks for a class, and check what it hands in"
    course = commands.add_parser("course", help=text, description=text)
    actions = course.add_subparsers(dest="action", required=True, metavar="ACTION")
    build = actions.add_parser("build", help="write copies of all notebooks: --student, --instructor, or both")
    build.add_argument("--student", type=Path, metavar="OUT", help="folder for copies without solutions and outputs")
    build.add_argument("--instructor", type=Path, metavar="OUT", help="folder for copies that keep them")
    build.add_argument("--force", action="store_true", help="replace files there that differ: their changes are lost")
    check = actions.add_parser("check", help="run the checks of submitted notebooks; exit 1 if one cannot be read")
    check.add_argument("paths", nargs="+", type=Path, metavar="NOTEBOOK", help="notebooks, or folders of them")
    check.add_argument("--csv", type=Path, metavar="FILE", help="write the table to this file, too")
    check.add_argument("--timeout", type=float, default=60.0, metavar="S", help="seconds for an exercise (60)")


def main(args: Any) -> int:
    """``labkit course``; 0 when all ran, passed or not; 1 when a submission could not be read; 2 for wrong usage."""
    from .build import main as build
    from .check import main as check

    try:
        return build(args) if args.action == "build" else check(args)
    except (CourseError, OSError) as error:
        print(f"labkit: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130
