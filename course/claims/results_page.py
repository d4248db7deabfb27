"""`course results`: the claims of all notebooks against all recorded runs, as ``RESULTS.md`` and as a heat map."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from course.claims.ledgers import HIGHER_IS_BETTER, Claim, Finding, Ledger
from course.notebook_files import ROOT, code_cells, course_notebooks, read_notebook
from labkit.text import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEAD = """# Results

What the sources say, and what our recorded runs found. Written by `python -m course results` from the claims in the
notebooks and the records in [data/reference](data/reference); a test fails when it is out of date. Do not edit it by
hand.

A figure is the ratio named in the row, with its bootstrap 95 % interval where it comes from times. **reproduced**: not
worse than the source's range, or wholly on the side that a plain "faster" or "slower" names; **beaten**: wholly better
than the range; **refuted**: wholly worse; **on the bound**: on both sides of a bound; **cannot tell**: the run was too
noisy; **predicted**: by the memory planner, not timed; **not recorded yet**: no machine of this kind has run it.
"""


def ledgers(folder: Path | None = None) -> list[Ledger]:
    """The ledger of each notebook that declares claims. The cell tagged ``claims`` is run, and nothing else."""
    found = []
    for path in course_notebooks(folder):
        for cell in code_cells(read_notebook(path), "claims"):
            names: dict[str, Any] = {}
            exec(compile(cell.source, f"{path.name}, cell claims", "exec"), names)
            corrections = names.get("corrections", ())
            found.append(Ledger(path.stem, names["claims"], corrections))
    return found


def results_text(every: Sequence[Ledger]) -> str:
    """The whole of ``RESULTS.md``."""
    parts = [HEAD]
    for book in every:
        parts.append(f"## [{book.notebook}](notebooks/{book.notebook}.ipynb)\n")
        parts.append(book.markdown())
    return "\n".join(parts)


def heat_map(every: Sequence[Ledger], machines: Sequence[str] = ()) -> Figure:
    """Technique against machine: how many times faster, or smaller; a row for each claim that one of them recorded.

    Raises ValueError for a machine without any record.
    """
    from labkit import plots

    known = sorted({record.machine for book in every for record in book.references.records})
    if unknown := [machine for machine in machines if machine not in known]:
        raise ValueError(
            f"no record of {', '.join(unknown)}; there are records of {', '.join(known) or 'no machine'}"
        )
    columns = list(machines) or known
    rows = {}
    for book in every:
        for claim, found in book.rows():
            cells = {finding.machine.partition(",")[0]: _gain(claim, finding) for finding in found}
            if cells.keys() & set(columns):
                name = fill(f"{book.notebook[:2]} {claim.text}", 64)
                rows[name] = [cells.get(machine, (math.nan, "–")) for machine in columns]
    return plots.heat_map(
        rows,
        columns,
        title="Gain over the baseline: times faster, or as said (*: the record is doubtful)",
    )


def _gain(claim: Claim, finding: Finding) -> tuple[float, str]:
    """The gain, above 1 an improvement, and the text of its cell; nan where there is nothing to colour."""
    if math.isnan(finding.value) or finding.verdict == "cannot tell":
        return math.nan, finding.verdict
    gain = (
        finding.value
        if HIGHER_IS_BETTER[claim.metric]
        else 1 / finding.value
        if finding.value
        else math.inf
    )
    what = {"speedup": "", "batch": " larger"}.get(claim.metric, " smaller")
    doubt = "*" if finding.machine.endswith(")") else ""
    source = "\n(predicted)" if "predicted" in finding.verdict else ""
    text = (
        "nothing left"
        if math.isinf(gain)
        else f"{gain:,.0f}x{what}"
        if gain >= 100
        else f"{gain:.2g}x{what}"
    )
    if 0.1 <= gain < 100:
        text = f"{gain:.2f}x{what}"
    return gain, f"{text}{doubt}{source}"


def main(args: Any) -> int:
    """``course results``: write RESULTS.md, or with ``--check`` say whether it is up to date; a heat map on demand."""
    path = ROOT / "RESULTS.md"
    try:
        every = ledgers()
        text = results_text(every)
        if args.figure is not None:
            heat_map(every, args.machines).savefig(args.figure, dpi=120)
            print(f"drawn: {args.figure}")
        elif args.machines:
            raise ValueError(
                "--machines compares machines in a figure: say where to draw it with --figure FILE.png"
            )
    except (OSError, ValueError) as error:
        print(f"labkit: {error}", file=sys.stderr)
        return 1
    if args.check:
        stale = not path.exists() or path.read_text(encoding="utf-8") != text
        print(
            "RESULTS.md is out of date: run `python -m course results`"
            if stale
            else "RESULTS.md is up to date"
        )
        return int(stale)
    for reason in dict.fromkeys(reason for book in every for reason in book.references.refused):
        print(f"not shown: {reason}", file=sys.stderr)
    write_whole(path, text)
    print(f"written: {path.name}, {sum(len(book.claims) for book in every)} claims")
    return 0
