"""`python -m whyslow train.py ARGUMENTS`: which lines a script spends its time on, as it is."""

import runpy
import sys
from argparse import REMAINDER, ArgumentParser
from pathlib import Path

from whyslow.watching import start


def main() -> None:
    """Watch a script. A wrong command line ends with status 2, a script as it does by itself."""
    parser = ArgumentParser(
        prog="whyslow",
        description="Run a script as it is, and say which lines its time goes to.",
    )
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module's name")
    parser.add_argument("--seconds", type=float, help="how long to watch (all)")
    parser.add_argument("script", metavar="SCRIPT.py", help="a training script")
    parser.add_argument("arguments", nargs=REMAINDER, help="the script's own arguments")
    args = parser.parse_args()
    path = Path(args.script)
    if not args.module and not path.is_file():
        parser.error(f"there is no file {args.script!r}")
    if not args.module and path.suffix != ".py":
        parser.error(f"{args.script!r} is no Python script: its name has to end in .py")
    try:
        # It is shown at the end of the program, below a traceback.
        start(seconds=args.seconds)
    except ValueError as error:
        parser.error(str(error))
    sys.argv = [args.script, *args.arguments]
    if args.module:
        runpy.run_module(args.script, run_name="__main__", alter_sys=True)
    else:
        # As Python does: what lies beside the script can be imported.
        sys.path.insert(0, str(path.resolve().parent))
        runpy.run_path(args.script, run_name="__main__")


if __name__ == "__main__":
    main()
