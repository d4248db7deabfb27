"""`python -m whyslow train.py ARGUMENTS`: which lines a script spends its time on, as it is."""

import multiprocessing
import runpy
import signal
import sys
from argparse import REMAINDER, ArgumentParser
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from whyslow.watching import Watch


def main(argv: Sequence[str] | None = None) -> int:
    """Watch a script.

    Returns 0; a wrong command line ends with status 2, a script that fails as it does by itself.
    """
    parser = ArgumentParser(
        prog="whyslow",
        description="Run a script as it is, and say which lines its time goes to.",
    )
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module's name")
    parser.add_argument("--seconds", type=float, help="how long to watch (all)")
    parser.add_argument("script", metavar="SCRIPT.py", help="a training script")
    parser.add_argument("arguments", nargs=REMAINDER, help="the script's own arguments")
    args = parser.parse_args(argv)
    try:
        watch = Watch(seconds=args.seconds)
    except (TypeError, ValueError) as error:
        parser.error(str(error))
    sys.argv = [args.script, *args.arguments]
    path = None if args.module else _script(parser, args.script)
    # So schedulers end their jobs.
    signal.signal(signal.SIGTERM, partial(_end, watch))
    with watch:
        if path is None:
            runpy.run_module(args.script, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(str(path), run_name="__main__")
    return 0


def _end(watch: Watch, number: int, frame: object) -> None:
    """Report, but not in a worker process, and end as the signal would have ended it."""
    if multiprocessing.parent_process() is None:
        watch.stop("SIGTERM")
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


def _script(parser: ArgumentParser, file: str) -> Path:
    path = Path(file)
    if not path.is_file():
        parser.error(f"there is no file {file!r}")
    if path.suffix != ".py":
        parser.error(f"{file!r} is no Python script: its name has to end in .py")
    # As Python does: what lies beside the script can be imported.
    sys.path.insert(0, str(path.resolve().parent))
    return path
