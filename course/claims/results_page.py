"""``course results`` writes three pages.

``RESULTS.md``: a summary, then the claims of all notebooks beside all recorded runs.
``course/sources.md``: the sources' statements (`sources_page`). ``course/symptoms.md``: what people
say, and the cell that shows why (`symptoms`).
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path

from course.board.recorded import machines
from course.board.table import speedrun_table
from course.claims.heat import heat_map
from course.claims.ledgers import Ledger, ledgers
from course.claims.sources_page import SOURCES_PAGE, sources_text
from course.claims.summary import summary
from course.claims.symptoms import SYMPTOMS_PAGE, symptoms_text
from course.notebook_files import ROOT, long_path
from course.written import write_whole

RESULTS = ROOT / "RESULTS.md"
HEAD = """# Results

What the sources say, and what our recorded runs found. Written by `python -m course results` from
the claims in [course/claims](course/claims) and the records in
[data/reference](data/reference); a test fails when it is out of date. Do not edit it by hand.

A figure is the ratio named in its row, with its 95 % interval where it comes from times. Repeats of
the same comparison are taken together. *One build*: the record timed an equal side again, and that
differs by more than the interval allows, so another build may leave it.
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
    """``course results``: write both pages, or with ``--check`` say whether they are up to date.

    With ``--figure`` also draws the heat map, of ``--machines`` or of all.
    """
    try:
        every = ledgers()
        pages = {
            RESULTS: results_text(every),
            SOURCES_PAGE: sources_text(every),
            SYMPTOMS_PAGE: symptoms_text(every),
        }
        _draw(args, every)
    except (OSError, ValueError) as error:
        print(f"course: {error}", file=sys.stderr)
        return 1
    if args.check:
        return _check(pages)
    refused = [reason for book in every for reason in book.references.refused]
    for reason in dict.fromkeys(refused):
        print(f"not shown: {reason}", file=sys.stderr)
    for page, text in pages.items():
        write_whole(page, text)
    names = " and ".join(page.name for page in pages)
    print(f"written: {names}, {sum(len(book.claims) for book in every)} claims")
    return 0


def _check(pages: Mapping[Path, str]) -> int:
    stale = []
    for page, text in pages.items():
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            stale.append(page.name)
    for name in stale:
        print(f"{name} is out of date: run `python -m course results`")
    if not stale:
        print(f"{' and '.join(page.name for page in pages)} are up to date")
    return int(bool(stale))


def _draw(args: Namespace, every: Sequence[Ledger]) -> None:
    if args.figure is not None:
        heat_map(every, args.machines).savefig(args.figure, dpi=120)
        print(f"drawn: {args.figure}")
    elif args.machines:
        raise ValueError(
            "--machines compares machines in a figure: say where to draw it with --figure FILE.png"
        )
