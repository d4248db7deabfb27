"""The map of the course: which technique relieves which bottleneck, its cost and risk, what
it brought.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from course.claims import Claim, Finding, ledgers
from course.claims.findings import effect_and_doubt
from course.machine import machine_card
from course.notebook_files import about, first_notebooks, place
from course.records.card import machine_name
from course.written import markdown

BOTTLENECKS = ("compute", "bandwidth", "launches", "input", "memory", "convergence")
NOT_HERE = "not recorded here"


@dataclass(frozen=True)
class Technique:
    """A notebook's row of the map: its ``metadata.labkit.map`` and its claims' headlines.

    ``path`` is its path among the notebooks, without its ending.
    ``result`` says what becomes of the numbers: ``same``, ``rounding`` or ``other``. ``effects``
    holds, by machine, what its record says.
    """

    notebook: str
    path: str
    title: str
    minutes: int
    relieves: tuple[str, ...]
    result: str
    cost: str
    risk: str
    effects: dict[str, str]


def techniques(bottleneck: str | None = None) -> Map:
    """All techniques of the course, or those that relieve one bottleneck; ValueError for an
    unknown one.
    """
    if bottleneck not in (None, *BOTTLENECKS):
        raise ValueError(
            f"bottleneck={bottleneck!r}: use one of {', '.join(BOTTLENECKS)}, or None for all"
        )
    books = {book.notebook: book for book in ledgers()}
    found = []
    for path in first_notebooks():
        said = about(path)
        on_map = said.get("map")
        if on_map is None or (bottleneck is not None and bottleneck not in on_map["relieves"]):
            continue
        rows = []
        if path.stem in books:
            rows = books[path.stem].rows()
        technique = Technique(
            notebook=path.stem,
            path=place(path),
            title=said["title"],
            minutes=said["minutes"],
            relieves=tuple(on_map["relieves"]),
            result=on_map["result"],
            cost=on_map["cost"],
            risk=on_map["risk"],
            effects=effects_of(rows),
        )
        found.append(technique)
    return Map(tuple(found), machine_name(machine_card()))


def effects_of(rows: Iterable[tuple[Claim, list[Finding]]]) -> dict[str, str]:
    """By machine: what its record says to the notebook's headlines.

    Above 1 is an improvement. The interval says how sure it is; RESULTS.md holds it beside the
    source.
    """
    effects: dict[str, list[str]] = {}
    for claim, found in rows:
        if not claim.headline:
            continue
        for finding in found:
            if finding.known:
                text = f"{claim.headline}: {effect_and_doubt(claim, finding)}"
                effects.setdefault(finding.name, []).append(text)
    return {machine: "; ".join(texts) for machine, texts in effects.items()}


@dataclass(frozen=True)
class Map:
    """The techniques as a table: `print` it, or end a cell in it for one with links.

    ``here`` is this machine's name among the records.
    """

    techniques: tuple[Technique, ...]
    here: str

    def rows(self) -> list[dict[str, str]]:
        """A dictionary a technique, from column to text."""
        machines = {machine for each in self.techniques for machine in each.effects}
        rows = []
        for each in self.techniques:
            row = {
                "technique": f"{each.notebook[:2]} {each.title}",
                "relieves": ", ".join(each.relieves),
                "result": each.result,
                "cost": each.cost,
                "risk": each.risk,
                f"here ({self.here})": each.effects.get(self.here, NOT_HERE),
            }
            for machine in sorted(machines - {self.here}):
                row[machine] = each.effects.get(machine, "–")
            rows.append(row)
        return rows

    def _repr_markdown_(self) -> str:
        rows = self.rows()
        if not rows:
            return str(self)
        table = [list(rows[0])]
        for row, each in zip(rows, self.techniques, strict=True):
            row["technique"] = f"[{row['technique']}]({each.path}.ipynb)"
            table.append(list(row.values()))
        return markdown(table)

    def __str__(self) -> str:
        blocks = []
        for row in self.rows():
            title = row.pop("technique")
            blocks.append("\n".join([title, *(f"  {name}: {text}" for name, text in row.items())]))
        return "\n".join(blocks) or "no notebook has a place on the map"

    __repr__ = __str__
