"""The `labkit` command: `doctor` prints the machine card, `data` looks after data sets, `diagnose`
finds out what makes a training step slow.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from labkit import data, sources
from labkit.text import aligned


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns 0 where all is well, 1 where data are damaged or cannot be had. A wrong command line
    ends with status 2.
    """
    parser = _parser()
    args = parser.parse_args(argv)
    if args.command == "doctor":
        from labkit.machine import doctor

        return doctor()
    if args.command == "diagnose":
        return _diagnose(parser, args)
    unknown = [name for name in args.names if name not in sources.SETS]
    if unknown:
        known = ", ".join(sources.SETS)
        parser.error(f"unknown data set {', '.join(unknown)}; there are: {known}")
    try:
        return args.run(args.names or list(sources.SETS))
    except NotADirectoryError as error:
        # LABKIT_DATA names no folder.
        parser.error(str(error))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="labkit", description="PyTorch Speed Lab: machine card, data sets, diagnosis."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    card = "print this machine's card: devices, switches, measured rates"
    commands.add_parser("doctor", help=card, description=card)
    slow = "run a script's training step for a while, and say what makes it slow"
    step = commands.add_parser("diagnose", help=slow, description=slow)
    step.add_argument("step", metavar="SCRIPT.py:STEP", help="a file, and a function in it")
    loader = "what gives the step its batches, in the same file; without it the step takes none"
    step.add_argument("--batches", metavar="NAME", help=loader)
    step.add_argument("--seconds", type=float, default=20.0, help="how long to measure (20)")
    sets = commands.add_parser("data", help="list, fetch or verify the data sets")
    actions = sets.add_subparsers(required=True, metavar="ACTION")
    names = f"{', '.join(sources.SETS)}; all if none is named"
    for name, run, text in (
        ("list", _list, "show where each set comes from, its size and state"),
        ("fetch", _fetch, "download what is missing or damaged; exit 1 where that fails"),
        ("verify", _verify, "compare every file with its checksum; exit 1 on damage"),
    ):
        action = actions.add_parser(name, help=text, description=text)
        action.add_argument("names", nargs="*", metavar="NAME", help=names)
        action.set_defaults(run=run)
    return parser


def _diagnose(parser: argparse.ArgumentParser, args: argparse.Namespace) -> int:
    """Load the script as a module, without its main part, and diagnose its step."""
    from labkit.diagnose import check_call, diagnose

    file, colon, name = args.step.rpartition(":")
    path = Path(file)
    if not colon or not name.isidentifier():
        parser.error(f"{args.step!r} names no function: use SCRIPT.py:STEP")
    if not path.is_file():
        parser.error(f"there is no file {file!r}")
    if path.suffix != ".py":
        parser.error(f"{file!r} is no Python script: its name has to end in .py")
    module = _loaded(path)
    for wanted in filter(None, (name, args.batches)):
        if not hasattr(module, wanted):
            parser.error(f"{file} has no {wanted!r} at its top level")
    batches = getattr(module, args.batches) if args.batches else None
    step = getattr(module, name)
    try:
        check_call(step, batches, args.seconds)
    except (TypeError, ValueError) as error:
        parser.error(str(error))
    print(diagnose(step, batches, seconds=args.seconds))
    return 0


def _loaded(path: Path) -> ModuleType:
    """The script as a module; what it imports from its own folder is found."""
    sys.path.insert(0, str(path.parent))
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    # Worker processes and pickle look it up by its name.
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _list(names: list[str]) -> int:
    rows = [("name", "state", "MiB", "source")]
    for name in names:
        state, size, source = _state(name)
        rows.append((name, state, f"{size / 2**20:.1f}", source))
    print(aligned(rows))
    return 0


def _state(name: str) -> tuple[str, int, str]:
    """State, bytes and the source that a call would take the set from."""
    forms = sources.SETS[name]["forms"]
    if not forms:
        state = "ready" if find_spec("sklearn") else "not here"
        return state, 0, "bundled with scikit-learn"
    damaged = False
    for copy in sources.copies(name):
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
            if sources.SETS[name]["forms"]:
                sources.files(name)
            else:
                data.digits()
            print(f"{name}: ready, {_state(name)[2]}")
        except (OSError, ImportError) as error:
            # The next set may still be had.
            print(f"labkit: {error}", file=sys.stderr)
            status = 1
    return status


def _verify(names: list[str]) -> int:
    status = 0
    for name in names:
        found = data.packs(f"{name}-")
        for copy in sources.copies(name):
            found |= copy.files
        problems = list(filter(None, found.values()))
        print(f"{name}: {len(found)} files, {len(problems)} damaged")
        for problem in problems:
            print(f"labkit: {problem}", file=sys.stderr)
            status = 1
    return status
