"""The ledger at one glance: claims against machines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

from course.claims.claim import Claim
from course.claims.findings import PREDICTED, UNCLEAR, Finding, gain, gain_in_words
from course.claims.ledgers import Ledger

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOTHING = (math.nan, "–")


def heat_map(
    every: Sequence[Ledger], machines: Sequence[str] = (), *, most: int | None = None
) -> Figure:
    """Technique against machine: how many times faster, or smaller; a row for each recorded claim.

    ``most``: only so many rows, those with the largest gains and losses. Raises ValueError for a
    machine without any record, and for a ``most`` below 1.
    """
    if most is not None and most < 1:
        raise ValueError(f"most={most}: a whole number of rows from 1 is accepted, or None")
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
    if most is not None:
        strongest = sorted(rows, key=lambda name: _strength(rows[name]), reverse=True)[:most]
        rows = {name: cells for name, cells in rows.items() if name in strongest}
    return drawn(
        rows,
        columns,
        title="Gain over the baseline: times faster, or as said (*: the record is doubtful)",
    )


def _strength(cells: Sequence[tuple[float, str]]) -> float:
    """How far the clearest of these cells is from 1, in factors of 2; 0 where none is clear."""
    return max(
        (abs(math.log2(ratio)) for ratio, _ in cells if ratio > 0 and math.isfinite(ratio)),
        default=0.0,
    )


def drawn(
    rows: Mapping[str, Sequence[tuple[float, str]]],
    columns: Sequence[str],
    *,
    title: str,
) -> Figure:
    """Rows against columns: cells of (ratio, text), red below 1, green above.

    A ratio of nan stays blank, with its text.
    """
    from matplotlib.colors import LinearSegmentedColormap

    from labkit.plots import GREEN, GREY, RED, new_figure

    width, height = 4.6 + 1.7 * len(columns), 1.1 + 0.36 * len(rows)
    figure, (axis,) = new_figure(width=width, height=height)
    colours = LinearSegmentedColormap.from_list("gain", [RED, "#f4f4f4", GREEN])
    for y, cells in enumerate(rows.values()):
        for x, (ratio, text) in enumerate(cells):
            face: Any = "none"
            ink = GREY
            if not math.isnan(ratio):
                # Full at 4x and 1/4.
                shade = 0.5 + math.log2(min(4.0, max(0.25, ratio))) / 4
                face, ink = colours(shade), "#222222"
            axis.fill_between(
                [x - 0.5, x + 0.5], y - 0.5, y + 0.5, facecolor=face, edgecolor=GREY, lw=0.5
            )
            axis.text(x, y, text, ha="center", va="center", fontsize=8, color=ink)
    axis.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5))
    figure.suptitle(title, fontsize=10, color=axis.title.get_color())
    axis.set_xticks(range(len(columns)), columns)
    axis.tick_params(labeltop=True)
    axis.set_yticks(range(len(rows)), list(rows), fontsize=8)
    axis.grid(visible=False)
    return figure


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
