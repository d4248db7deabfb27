"""``python -m course data``: list, fetch and verify the data sets."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from course import data, data_sources
from labkit.text import aligned


def add_parser(commands: Any) -> None:
    """Add ``data`` with its actions to the commands of `course`; `main` runs them."""
    sets = commands.add_parser("data", help="list, fetch or verify the data sets")
    actions = sets.add_subparsers(required=True, metavar="ACTION")
    names = f"{', '.join(data_sources.SETS)}; all if none is named"
    for name, run, text in (
        ("list", _list, "show where each set comes from, its size and state"),
        ("fetch", _fetch, "download what is missing or damaged; exit 1 where that fails"),
        ("verify", _verify, "compare every file with its checksum; exit 1 on damage"),
    ):
        action = actions.add_parser(name, help=text, description=text)
        action.add_argument("names", nargs="*", metavar="NAME", help=names)
        action.set_defaults(run=run)


def main(parser: argparse.ArgumentParser, args: argparse.Namespace) -> int:
    """0 where all is well, 1 where data are damaged or cannot be had."""
    unknown = [name for name in args.names if name not in data_sources.SETS]
    if unknown:
        known = ", ".join(data_sources.SETS)
        parser.error(f"unknown data set {', '.join(unknown)}; there are: {known}")
    try:
        status: int = args.run(args.names or list(data_sources.SETS))
    except NotADirectoryError as error:
        # LABKIT_DATA names no folder.
        parser.error(str(error))
    return status


def _list(names: list[str]) -> int:
    rows = [("name", "state", "MiB", "source")]
    for name in names:
        state, size, source = _state(name)
        rows.append((name, state, f"{size / 2**20:.1f}", source))
    print(aligned(rows))
    return 0


def _state(name: str) -> tuple[str, int, str]:
    """State, bytes and the source that a call would take the set from."""
    forms = data_sources.SETS[name]["forms"]
    if not forms:
        state = "ready" if find_spec("sklearn") else "not here"
        return state, 0, "bundled with scikit-learn"
    damaged = False
    for copy in data_sources.copies(name):
        if copy.complete:
            size = sum(path.stat().st_size for path in copy.files)
            return "ready", size, f"{copy.source}: {_place(list(copy.files))}"
        damaged = damaged or any(copy.files.values())
    state = "damaged" if damaged else "not here"
    return state, sum(entry["bytes"] for entry in forms[0]), forms[0][0]["url"]


def _place(paths: list[Path]) -> Path:
    """The file, or the folder of several."""
    return paths[0] if len(paths) == 1 else paths[0].parent


def _fetch(names: list[str]) -> int:
    status = 0
    for name in names:
        try:
            if data_sources.SETS[name]["forms"]:
                data_sources.files(name)
            else:
                data.digits()
            print(f"{name}: ready, {_state(name)[2]}")
        except (OSError, ImportError) as error:
            # The next set may still be had.
            print(f"course: {error}", file=sys.stderr)
            status = 1
    return status


def _verify(names: list[str]) -> int:
    status = 0
    for name in names:
        found = data.packs(f"{name}-")
        for copy in data_sources.copies(name):
            found |= copy.files
        problems = list(filter(None, found.values()))
        print(f"{name}: {len(found)} files, {len(problems)} damaged")
        for problem in problems:
            print(f"course: {problem}", file=sys.stderr)
            status = 1
    return status
