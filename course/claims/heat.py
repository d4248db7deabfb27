"""The ledger at one glance: claims against machines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING

from course.claims.claim import Claim
from course.claims.findings import PREDICTED, UNCLEAR, Finding, gain, gain_in_words
from course.claims.ledgers import Ledger

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOTHING = (math.nan, "–")


def heat_map(every: Sequence[Ledger], machines: Sequence[str] = ()) -> Figure:
    """Technique against machine: how many times faster, or smaller; a row for each recorded claim.

    Raises ValueError for a machine without any record.
    """
    from labkit import plots

    known = sorted({record.machine for book in every for record in book.references.records})
    unknown = [machine for machine in machines if machine not in known]
    if unknown:
        raise ValueError(
            f"no record of {', '.join(unknown)}; there are records of "
            f"{', '.join(known) or 'no machine'}"
        )
    columns = list(machines) or known
    rows = {}
    for book in every:
        for claim, found in book.rows():
            cells = {finding.name: cell(claim, finding) for finding in found}
            if cells.keys() & set(columns):
                name = fill(f"{book.notebook[:2]} {claim.text}", 64)
                rows[name] = [cells.get(machine, NOTHING) for machine in columns]
    return plots.heat_map(
        rows,
        columns,
        title="Gain over the baseline: times faster, or as said (*: the record is doubtful)",
    )


def cell(claim: Claim, finding: Finding) -> tuple[float, str]:
    """The gain, above 1 an improvement, and its text; nan where there is nothing to colour."""
    if math.isnan(finding.value):
        return math.nan, finding.word
    if not finding.clear:
        return math.nan, UNCLEAR
    value, _, _ = gain(claim, finding)
    text = gain_in_words(claim, value)
    if finding.doubtful:
        text += "*"
    if finding.word == PREDICTED:
        text += "\n(predicted)"
    return value, text
