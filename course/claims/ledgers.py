"""The ledger of a notebook: its claims beside what was recorded, and corrections of sources."""

from __future__ import annotations

from collections.abc import Sequence

from course.claims.claim import METRICS, Claim, Correction
from course.claims.findings import Finding, findings
from course.claims.load import load, names
from course.records import reference
from course.written import markdown

# A source was often right when it was written.
OUTDATED = "Where the sources are out of date, or say otherwise"


class Ledger:
    """A notebook's claims with what was found: `print` it, or let a cell end in it."""

    def __init__(
        self, notebook: str, claims: Sequence[Claim], corrections: Sequence[Correction] = ()
    ) -> None:
        self.notebook = notebook
        self.claims = tuple(claims)
        self.corrections = tuple(corrections)
        self.references = reference(notebook)

    def rows(self) -> list[tuple[Claim, list[Finding]]]:
        """Each claim with its findings, one a machine."""
        return [(claim, findings(claim, self.references.records)) for claim in self.claims]

    def __str__(self) -> str:
        lines: list[str] = []
        for claim, found in self.rows():
            lines += [claim.text, f"  {claim.source}: {claim.said} ({claim.setting})"]
            for finding in found:
                lines.append(f"  {_with_machine(finding)}")
            lines.append(f"  {claim.why}")
        for correction in self.corrections:
            lines.append(f'{correction.source} says: "{correction.says}"')
            lines += [f"  Right: {correction.right}", f"  {correction.evidence}"]
        for reason in self.references.refused:
            lines.append(f"Not shown: {reason}")
        return "\n".join(lines)

    __repr__ = __str__

    def markdown(self) -> str:
        """Two tables, as in ``RESULTS.md``: the claims, and where the sources are out of date."""
        parts = []
        if self.claims:
            table = [["claim", "source", "its figure", "ours", "what explains it"]]
            for claim, found in self.rows():
                table.append(_row(claim, found))
            parts.append(markdown(table))
        if self.corrections:
            table = [["source", "says", "right", "how we know"]]
            for each in self.corrections:
                table.append([each.source, each.says, each.right, each.evidence])
            parts += [f"{OUTDATED}:", markdown(table)]
        for reason in self.references.refused:
            parts.append(f"Not shown: {reason}")
        return "\n\n".join(parts) + "\n"

    # A cell that ends in a ledger shows the tables.
    _repr_markdown_ = markdown


def _row(claim: Claim, found: Sequence[Finding]) -> list[str]:
    ours = "<br>".join(_with_machine(finding) for finding in found)
    about = f"{claim.text} ({METRICS[claim.metric].title}; {_which(claim)})"
    return [about, claim.source, f"{claim.said}<br>{claim.setting}", ours, claim.why]


def _with_machine(finding: Finding) -> str:
    if not finding.machine:
        return str(finding)
    return f"{finding.machine}: {finding}"


def _which(claim: Claim) -> str:
    """What was compared, in short: ``batch_size 1 → 10, reader DataLoader``."""
    parts = []
    for name, value in {**claim.change, **claim.arm}.items():
        if name in claim.baseline:
            parts.append(f"{name} {claim.baseline[name]} → {value}")
        else:
            parts.append(f"{name} {value}")
    for name, value in claim.against.items():
        parts.append(f"against {name} {value}")
    for name, value in claim.at.items():
        parts.append(f"{name} {value}")
    for device, sizes in claim.sizes.items():
        for name, value in sizes.items():
            parts.append(f"{name} {value} on {device}")
    if claim.target is not None:
        parts.append(f"to {claim.target:g}")
    if claim.device != "any":
        parts.append(f"{claim.device} only")
    return ", ".join(parts)


def ledger(notebook: str) -> Ledger:
    """The claims of a notebook beside its recorded runs. ValueError for one without claims."""
    return Ledger(notebook, *load(notebook))


def ledgers() -> list[Ledger]:
    """The ledger of each notebook that has claims."""
    return [ledger(name) for name in names()]
