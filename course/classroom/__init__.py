"""For teachers: copies of the notebooks for students (``build``), and the check of their answers.

A submission is data until it runs: `files` reads it, `slices` finds in its syntax tree what an
exercise needs. `check` judges it and writes the table, `feedback` what a student reads. The code
itself runs in `answerer`, behind a wall of `sandbox`; `remote` talks to it in `values` only.
`otter` hands everything over to another grader.
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
        "--feedback", type=Path, metavar="DIR", help="write a file for each submission's student"
    )
    check.add_argument("--jobs", type=int, default=1, metavar="N", help="submissions at a time (1)")
    check.add_argument(
        "--timeout",
        type=float,
        default=60.0,
        metavar="S",
        help="seconds for an exercise, counted after the imports (60)",
    )
    check.add_argument(
        "--memory", type=int, default=4096, metavar="MB", help="for an exercise (4096)"
    )
    check.add_argument(
        "--disk", type=int, default=256, metavar="MB", help="for what an exercise writes (256)"
    )
    check.add_argument(
        "--image", default="speed-lab-class", help="container image, for docker or podman"
    )
    check.add_argument(
        "--trust-submissions",
        action="store_true",
        help="run them without a sandbox: for submissions that you trust with your files",
    )
    otter = actions.add_parser(
        "otter", help="hand submissions and tests over to otter-grader's format"
    )
    otter.add_argument("out", type=Path, metavar="OUT", help="folder to write")
    otter.add_argument(
        "paths", nargs="*", type=Path, metavar="NOTEBOOK", help="submissions, or folders of them"
    )


def main(args: Any) -> int:
    """``build``, ``check`` or ``otter``.

    0 when all ran, 1 when a submission could not be read, 2 for wrong usage.
    """
    from course.classroom import build, check, otter

    mains = {"build": build.main, "check": check.main, "otter": otter.main}
    try:
        return mains[args.command](args)
    except (CourseError, OSError) as error:
        print(f"course: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130
