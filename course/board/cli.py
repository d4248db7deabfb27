"""`python -m course board`: the board without a notebook."""

from __future__ import annotations

import sys
from argparse import Namespace

from course.board.cell import board


def main(args: Namespace) -> int:
    """Print the board; 0 where all is well, 2 for a mistake.

    1 where some is left to record, or where the switch was not measured or the choice not saved.
    """
    if args.record:
        from course.board.record import record

        return record(args.minutes)
    asked = args.keep or args.leave or args.whole or args.seconds or args.minutes
    if args.switch is None and asked:
        print("name the switch: python -m course board data_loading --keep", file=sys.stderr)
        return 2
    try:
        found = board(args.switch)
        if args.switch is not None:
            found.measure(args.seconds, args.whole, args.minutes)
        if args.run:
            found.run()
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if args.keep and found.latest is not None:
        found.keep()
    elif args.leave and found.latest is not None:
        found.leave()
    print(found)
    missing = args.switch is not None and found.latest is None
    return int(missing or found.unsaved)
