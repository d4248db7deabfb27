"""`python -m course`: for authors `new`, `record`, `results`; for readers `open`, `doctor`, `data`,
and `board`.

For teachers `build`, `check`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from course import classroom, data_commands, new

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def _add_recorder(commands: Commands) -> None:
    recorder = commands.add_parser(
        "record", help="run notebooks at full size and record what they measured"
    )
    recorder.add_argument(
        "notebooks",
        nargs="*",
        type=Path,
        metavar="NOTEBOOK",
        help="path or name, taken in this order; all if none",
    )
    recorder.add_argument(
        "--out", type=Path, help="folder, or a .zip file, for the records instead of data/reference"
    )
    recorder.add_argument(
        "--budget-minutes",
        type=float,
        metavar="M",
        help="begin nothing that does not fit; first what is missing or oldest",
    )
    recorder.add_argument(
        "--again",
        action="store_true",
        help="also what was recorded already with the very same code",
    )
    recorder.add_argument(
        "--add", nargs="+", type=Path, metavar="ZIP", help="add records of other machines"
    )


def _add_board(commands: Commands) -> None:
    text = "print the speedrun's waterfall, or measure a switch on top of those that were kept"
    board = commands.add_parser("board", help=text, description=text)
    board.add_argument("switch", nargs="?", help="the switch to measure")
    choice = board.add_mutually_exclusive_group()
    choice.add_argument("--keep", action="store_true", help="keep it: what its button does")
    choice.add_argument("--leave", action="store_true", help="do not keep it")
    choice.add_argument("--run", action="store_true", help="train with all that is kept, once")
    board.add_argument("--seconds", type=float, help="to measure for")
    board.add_argument(
        "--whole", action="store_true", help="race to the target of the task, on five seeds"
    )
    board.add_argument(
        "--record", action="store_true", help="record this machine in data/reference/speedrun.json"
    )
    board.add_argument(
        "--minutes",
        type=float,
        help="for the switch at most; with --record, begin nothing more after so many",
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 where all is well, 2 for a wrong command line."""
    parser = argparse.ArgumentParser(
        prog="course", description="PyTorch Speed Lab: the course and its records."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    lab = "open a notebook in JupyterLab, or say in one sentence why that cannot be"
    opened = commands.add_parser("open", help=lab, description=lab)
    opened.add_argument("notebook", nargs="?", default="00_start_here", help="its name")
    card = "print this machine's card, and which notebooks it shows in full"
    commands.add_parser("doctor", help=card, description=card)
    data_commands.add_parser(commands)
    new.add_parser(commands)
    _add_recorder(commands)
    results = commands.add_parser(
        "results",
        help="write RESULTS.md, sources.md and symptoms.md from claims and records",
    )
    results.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 when a page is out of date"
    )
    results.add_argument(
        "--machines", nargs="+", default=(), metavar="MACHINE", help="columns of the figure"
    )
    results.add_argument(
        "--figure", type=Path, metavar="PNG", help="draw technique against machine as a heat map"
    )
    _add_board(commands)
    marks = "print badges that open your fork in Colab and Codespaces"
    badged = commands.add_parser("badges", help=marks, description=marks)
    badged.add_argument(
        "--write",
        action="store_true",
        help="put them into README.md, and write the notebooks for Colab",
    )
    classroom.add_parsers(commands)
    args = parser.parse_args(argv)
    if args.command == "open":
        from course import opener

        return opener.main(args)
    if args.command == "doctor":
        from course.coverage import doctor

        return doctor()
    if args.command == "new":
        return new.main(args)
    if args.command == "data":
        return data_commands.main(parser, args)
    if args.command == "record":
        from course.records import record

        return record.main(args)
    if args.command == "results":
        from course.claims import results_page

        return results_page.main(args)
    if args.command == "badges":
        from course import badges

        return badges.main(args)
    if args.command == "board":
        from course.board import cli

        return cli.main(args)
    return classroom.main(args)
