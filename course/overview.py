"""The map of the course: which technique relieves which bottleneck, what it costs and risks, what it brought where."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from course import notebook_files
from course.claims.ledgers import HIGHER_IS_BETTER, Claim, Finding
from course.claims.results_page import ledgers
from course.notebook_files import course_notebooks
from course.records.record import machine_name
from labkit.machine import machine_card

BOTTLENECKS = ("compute", "bandwidth", "launches", "input", "memory", "convergence")
NOT_HERE = "not recorded here"


@dataclass(frozen=True)
class Technique:
    """A notebook's row of the map, from its ``metadata.labkit.map`` and the headlines among its claims."""

    notebook: str
    title: str
    minutes: int
    relieves: tuple[str, ...]
    result: str  # what becomes of the numbers: "same", "rounding", "other"
    cost: str
    risk: str
    effects: dict[str, str]  # machine: what its record says


def techniques(bottleneck: str | None = None, folder: Path | None = None) -> Map:
    """All techniques of the course, or those that relieve one bottleneck; ValueError for an unknown one."""
    if bottleneck not in (None, *BOTTLENECKS):
        raise ValueError(
            f"bottleneck={bottleneck!r}: use one of {', '.join(BOTTLENECKS)}, or None for all"
        )
    books = {book.notebook: book for book in ledgers(folder)}
    found = []
    for path in course_notebooks(folder):
        about = notebook_files.about(path)
        if "map" not in about or (
            bottleneck is not None and bottleneck not in about["map"]["relieves"]
        ):
            continue
        rows = books[path.stem].rows() if path.stem in books else []
        entry = about["map"] | {
            "relieves": tuple(about["map"]["relieves"]),
            "effects": _effects(rows),
        }
        found.append(Technique(path.stem, about["title"], about["minutes"], **entry))
    return Map(tuple(found), machine_name(machine_card()))


def _effects(rows: Iterable[tuple[Claim, list[Finding]]]) -> dict[str, str]:
    """By machine: what its record says to the notebook's headlines."""
    effects: dict[str, list[str]] = {}
    for claim, found in rows:
        for finding in found if claim.headline else ():
            if not math.isnan(finding.value):
                text = f"{claim.headline}: {_gain(claim, finding)}"
                effects.setdefault(finding.machine.partition(",")[0], []).append(text)
    return {machine: "; ".join(texts) for machine, texts in effects.items()}


def _gain(claim: Claim, finding: Finding) -> str:
    """Above 1 is an improvement. The interval says how sure it is; verdicts on the sources stand in RESULTS.md."""
    value, low, high = finding.value, finding.low, finding.high
    if not HIGHER_IS_BETTER[claim.metric]:
        value, low, high = (1 / bound if bound else math.inf for bound in (value, high, low))
    what = {"speedup": "", "batch": " larger"}.get(claim.metric, " smaller")
    interval = f" [{_number(low)}, {_number(high)}]" if high > low else ""
    return f"{_number(value)}x{what}{interval}{_doubt(finding)}"


def _doubt(finding: Finding) -> str:
    if finding.verdict == "cannot tell":
        return " (cannot tell: a noisy run)"
    return " (predicted)" if "predicted" in finding.verdict else ""


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


@dataclass(frozen=True)
class Map:
    """The techniques as a table: `print` it, or end a cell in it for one with links to the notebooks."""

    techniques: tuple[Technique, ...]
    here: str  # this machine's name among the records

    def rows(self) -> list[dict[str, str]]:
        """A dictionary a technique, from column to text."""
        others = sorted(
            {machine for each in self.techniques for machine in each.effects} - {self.here}
        )
        return [
            {
                "technique": f"{each.notebook[:2]} {each.title}",
                "relieves": ", ".join(each.relieves),
                "result": each.result,
                "cost": each.cost,
                "risk": each.risk,
                f"here ({self.here})": each.effects.get(self.here, NOT_HERE),
                **{machine: each.effects.get(machine, "–") for machine in others},
            }
            for each in self.techniques
        ]

    def _repr_markdown_(self) -> str:
        rows = self.rows()
        for row, each in zip(rows, self.techniques, strict=True):
            row["technique"] = f"[{row['technique']}]({each.notebook}.ipynb)"
        if not rows:
            return str(self)
        lines = [list(rows[0]), ["---"] * len(rows[0]), *(list(row.values()) for row in rows)]
        return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)

    def __str__(self) -> str:
        blocks = []
        for row in self.rows():
            title = row.pop("technique")
            blocks.append("\n".join([title, *(f"  {name}: {text}" for name, text in row.items())]))
        return "\n".join(blocks) or "no notebook has a place on the map"

    __repr__ = __str__
