"""The `labkit` command: `doctor` prints the machine card, `data` looks after data sets."""

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec

from labkit import data


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 where all is well, 1 where data are damaged or cannot be had, 2 for a wrong command line."""
    parser = argparse.ArgumentParser(
        prog="labkit", description="PyTorch Speed Lab: machine card, data sets."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    card = "print this machine's card: devices, switches, measured rates"
    commands.add_parser("doctor", help=card, description=card)
    sets = commands.add_parser("data", help="list, fetch or verify the data sets")
    actions = sets.add_subparsers(required=True, metavar="ACTION")
    for name, run, text in (
        ("list", _list, "show where each set comes from, its size and state"),
        ("fetch", _fetch, "download what is missing or damaged; exit 1 where that fails"),
        ("verify", _verify, "compare every file with its checksum; exit 1 on damage"),
    ):
        action = actions.add_parser(name, help=text, description=text)
        action.add_argument(
            "names", nargs="*", metavar="NAME", help=f"{', '.join(data.SETS)}; all if none is named"
        )
        action.set_defaults(run=run)
    args = parser.parse_args(argv)
    if args.command == "doctor":
        from labkit.machine import doctor

        return doctor(args)
    if unknown := [name for name in args.names if name not in data.SETS]:
        parser.error(f"unknown data set {', '.join(unknown)}; there are: {', '.join(data.SETS)}")
    try:
        return args.run(args.names or list(data.SETS))
    except NotADirectoryError as error:  # LABKIT_DATA
        parser.error(str(error))


def _list(names: list[str]) -> int:
    print(f"{'name':15}{'state':10}{'MiB':>7}  source")
    for name in names:
        state, size, source = _state(name)
        print(f"{name:15}{state:10}{size / 2**20:7.1f}  {source}")
    return 0


def _state(name: str) -> tuple[str, int, str]:
    """State, bytes and the source that a call would take the set from."""
    if not data.SETS[name]["forms"]:
        return ("ready" if find_spec("sklearn") else "not here"), 0, "bundled with scikit-learn"
    copies = list(data.copies(name))
    for source, complete, found in copies:
        if complete:
            paths = list(found)
            place = paths[0] if len(paths) == 1 else paths[0].parent
            return "ready", sum(path.stat().st_size for path in paths), f"{source}: {place}"
    damaged = any(problem for *_, found in copies for problem in found.values())
    entries = data.SETS[name]["forms"][0]
    return (
        ("damaged" if damaged else "not here"),
        sum(entry["bytes"] for entry in entries),
        entries[0]["url"],
    )


def _fetch(names: list[str]) -> int:
    status = 0
    for name in names:
        try:
            _ = data.files(name) if data.SETS[name]["forms"] else data.digits()
            print(f"{name}: ready, {_state(name)[2]}")
        except (OSError, ImportError) as error:  # the next set may still be had
            print(f"labkit: {error}", file=sys.stderr)
            status = 1
    return status


def _verify(names: list[str]) -> int:
    problems = []
    for name in names:
        found = {
            path: problem for *_, files in data.copies(name) for path, problem in files.items()
        }
        found |= data.packs(f"{name}-")
        problems += [problem for problem in found.values() if problem]
        print(f"{name}: {len(found)} files, {sum(map(bool, found.values()))} damaged")
    print(
        *(f"labkit: {problem}" for problem in problems),
        sep="\n",
        end="\n" * bool(problems),
        file=sys.stderr,
    )
    return int(bool(problems))
