"""What recorded machines gained by a technique: one small chart."""

from __future__ import annotations

from dataclasses import dataclass, replace

from course.claims.claim import Claim
from course.claims.findings import Finding, effect_and_doubt, gain
from course.claims.ledgers import ledger
from labkit import charts, show


@dataclass(frozen=True)
class Gains:
    """The figures behind the headlines of a notebook's claims, by machine.

    Let a cell end in it for a chart, or `print` it. Above 1 the technique gained.
    """

    notebook: str
    found: tuple[tuple[Claim, Finding], ...]

    def rows(self) -> list[show.Ratio]:
        """A row for each machine and headline: the machine, with the headline as its note."""
        rows = []
        for claim, finding in self.found:
            value, low, high = gain(claim, finding)
            text = effect_and_doubt(claim, finding)
            label, note = finding.machine, claim.headline
            rows.append(show.Ratio(label, value, (low, high), text, "recorded", note))
        return rows

    def __str__(self) -> str:
        rows = [f"{row.note}, {row.label}: {row.text}" for row in self.rows()]
        return "\n".join(rows) or f"{self.notebook}: no machine is recorded yet"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = self.rows()
        if not rows:
            return show.result(show.note(str(self)))
        title = "recorded on other machines: how many times better, 1 is no difference"
        blocks = [show.note(title)]
        for headline in dict.fromkeys(row.note for row in rows):
            own = [replace(row, note="") for row in rows if row.note == headline]
            blocks.append(charts.ratios(title, own, ends=("worse", "better"), below=headline))
        return show.result(*blocks)


def gains(notebook: str) -> Gains:
    """What the recorded machines gained in a notebook. ValueError for one without claims."""
    found = []
    for claim, findings in ledger(notebook).rows():
        if not claim.headline:
            continue
        for finding in findings:
            if finding.known:
                found.append((claim, finding))
    return Gains(notebook, tuple(found))
