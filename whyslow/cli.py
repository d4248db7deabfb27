"""`python -m whyslow train.py ARGUMENTS`: which lines a script spends its time on, as it is.

`python -m whyslow SCRIPT.py:STEP`: what would make a script's training step faster.
"""

import multiprocessing
import runpy
import signal
import sys
from argparse import REMAINDER, ArgumentParser, Namespace
from collections.abc import Sequence
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from whyslow.session import check_call, diagnose
from whyslow.watching import Watch


def main(argv: Sequence[str] | None = None) -> int:
    """Watch a script, or diagnose a step of it.

    Returns 0; a wrong command line ends with status 2, a script that fails as it does by itself.
    """
    parser = _parser()
    args = parser.parse_args(argv)
    file, _, step = args.script.rpartition(":")
    if not args.module and file and step.isidentifier():
        # Of a step there are no arguments: what follows it is ours.
        parser.parse_args([*args.arguments, args.script], args)
        _diagnose(parser, args, _script(parser, file), step)
        return 0
    try:
        watch = Watch(seconds=args.seconds, steps=args.steps)
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


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="whyslow",
        description="Run a script as it is, and say which lines its time goes to.",
        epilog="SCRIPT.py:STEP experiments with one training step, a function of the script.",
    )
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module's name")
    loader = "with SCRIPT.py:STEP: what gives the step its batches, in the same file"
    parser.add_argument("--batches", metavar="NAME", help=loader)
    parser.add_argument("--seconds", type=float, help="how long to watch (all), or to measure (20)")
    parser.add_argument("--steps", type=int, help="how many updates of an optimizer to watch (all)")
    parser.add_argument("script", metavar="SCRIPT.py", help="a training script")
    parser.add_argument("arguments", nargs=REMAINDER, help="the script's own arguments")
    return parser


def _script(parser: ArgumentParser, file: str) -> Path:
    path = Path(file)
    if not path.is_file():
        parser.error(f"there is no file {file!r}")
    if path.suffix != ".py":
        parser.error(f"{file!r} is no Python script: its name has to end in .py")
    # As Python does: what lies beside the script can be imported.
    sys.path.insert(0, str(path.resolve().parent))
    return path


def _diagnose(parser: ArgumentParser, args: Namespace, path: Path, name: str) -> None:
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    # Worker processes and pickle look it up by its name, whatever else is called so.
    module = sys.modules[path.stem] = module_from_spec(spec)
    spec.loader.exec_module(module)
    for wanted in filter(None, (name, args.batches)):
        if not hasattr(module, wanted):
            parser.error(f"{path} has no {wanted!r} at its top level")
    step, batches = getattr(module, name), getattr(module, args.batches or "", None)
    try:
        check_call(step, batches, args.seconds)
    except (TypeError, ValueError) as error:
        parser.error(str(error))
    print(diagnose(step, batches, seconds=args.seconds))
