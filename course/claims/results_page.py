"""``RESULTS.md``: one page of summary,
then the claims of all notebooks beside all recorded runs.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence

from course.board.recorded import machines
from course.board.table import speedrun_table
from course.claims.heat import heat_map
from course.claims.ledgers import Ledger, ledgers
from course.claims.summary import summary
from course.notebook_files import ROOT, long_path
from labkit.text import write_whole

RESULTS = ROOT / "RESULTS.md"
HEAD = """# Results

What the sources say, and what our recorded runs found. Written by `python -m course results` from
the claims in [course/claims](course/claims) and the records in
[data/reference](data/reference); a test fails when it is out of date. Do not edit it by hand.

A figure is the ratio named in its row, with its 95 % interval where it comes from times. Repeats of
the same comparison are taken together.
"""


def results_text(every: Sequence[Ledger]) -> str:
    """The whole of ``RESULTS.md``."""
    parts = [HEAD, summary(every)]
    for book in every:
        path = long_path(book.notebook).relative_to(ROOT).as_posix()
        parts += [f"## [{book.notebook}]({path})\n", book.markdown()]
    parts.append(speedrun_table(machines()))
    return "\n".join(parts)


def main(args: Namespace) -> int:
    """``course results``: write RESULTS.md, or with ``--check`` say whether it is up to date.

    With ``--figure`` also draws the heat map, of ``--machines`` or of all.
    """
    try:
        every = ledgers()
        text = results_text(every)
        _draw(args, every)
    except (OSError, ValueError) as error:
        print(f"course: {error}", file=sys.stderr)
        return 1
    if args.check:
        if RESULTS.exists() and RESULTS.read_text(encoding="utf-8") == text:
            print("RESULTS.md is up to date")
            return 0
        print("RESULTS.md is out of date: run `python -m course results`")
        return 1
    refused = [reason for book in every for reason in book.references.refused]
    for reason in dict.fromkeys(refused):
        print(f"not shown: {reason}", file=sys.stderr)
    write_whole(RESULTS, text)
    print(f"written: {RESULTS.name}, {sum(len(book.claims) for book in every)} claims")
    return 0


def _draw(args: Namespace, every: Sequence[Ledger]) -> None:
    if args.figure is not None:
        heat_map(every, args.machines).savefig(args.figure, dpi=120)
        print(f"drawn: {args.figure}")
    elif args.machines:
        raise ValueError(
            "--machines compares machines in a figure: say where to draw it with --figure FILE.png"
        )
