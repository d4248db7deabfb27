"""`python -m whyslow SCRIPT.py:STEP`: what makes a script's training step slow."""

import argparse
import sys
from collections.abc import Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from whyslow import check_call, diagnose


def main(argv: Sequence[str] | None = None) -> int:
    """Load the script as a module, without its main part, and diagnose its step.

    Returns 0; a wrong command line ends with status 2.
    """
    parser = _parser()
    args = parser.parse_args(argv)
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="whyslow",
        description="Run a script's training step for a while, and say what makes it slow.",
    )
    parser.add_argument("step", metavar="SCRIPT.py:STEP", help="a file, and a function in it")
    loader = "what gives the step its batches, in the same file; without it the step takes none"
    parser.add_argument("--batches", metavar="NAME", help=loader)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long to measure (20)")
    return parser


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
