"""``course/sources.md``: from each statement of the sources to the cells that teach it, and to what
was measured.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from course.claims.ledgers import Ledger
from course.claims.statements import SOURCES, Places, Statement, statements
from course.notebook_files import ROOT
from course.written import markdown

SOURCES_PAGE = ROOT / "course" / "sources.md"
HEAD = """# The sources, statement by statement

Where the course teaches what its five source texts state, and what our recorded runs found. Written
by `python -m course results` from [claims/statements.csv](claims/statements.csv) and the claims; a
test fails when it is out of date. Do not edit it by hand.

Figures are those of [RESULTS.md](../RESULTS.md): the ratio that the claim names, by machine. In the
17 ways a statement begins with the number of its way.
"""
NOWHERE = "not taught yet"
# A figure's row in RESULTS.md stands under its notebook's name.
RESULTS = "../RESULTS.md"


def sources_text(every: Sequence[Ledger]) -> str:
    """The whole page. ValueError where a claim names a statement that there is not."""
    rows = statements()
    measured = by_statement(every)
    unknown = sorted(measured.keys() - {row.number for row in rows})
    if unknown:
        raise ValueError(f"claims name statements that there are not: {', '.join(unknown)}")
    places = Places()
    parts = [HEAD]
    for source, title in SOURCES.items():
        table = [["#", "statement", "taught", "measured"]]
        for row in rows:
            if row.source == source:
                table.append([row.number, row.text, taught(row, places), measured[row.number]])
        parts += [f"## {source} {title}\n", markdown(table) + "\n"]
    return "\n".join(parts)


def by_statement(every: Iterable[Ledger]) -> Mapping[str, str]:
    """What the claims and corrections found, by the numbers of the statements that they name."""
    found: dict[str, list[str]] = defaultdict(list)
    for book in every:
        anchor = f"{RESULTS}#{book.notebook}"
        for claim, findings in book.rows():
            texts = [f"{each.name}: {each}" if each.name else str(each) for each in findings]
            for number in claim.statements:
                found[number].append(f"[{book.notebook[:2]}]({anchor}) {'; '.join(texts)}")
        for correction in book.corrections:
            for number in correction.statements:
                found[number].append(f"[{book.notebook[:2]}]({anchor}) corrected")
    return defaultdict(str, {number: "<br>".join(texts) for number, texts in found.items()})


def taught(statement: Statement, places: Places) -> str:
    """Links to the cells, and the note."""
    links = []
    for name in statement.cells:
        cell = places.find(name)
        target = "../" + cell.notebook.relative_to(ROOT).as_posix()
        links.append(f"[{cell.label}]({target})")
    # Two cells may stand under one heading.
    parts = [*dict.fromkeys(links), *filter(None, [statement.note])]
    return "<br>".join(parts) or NOWHERE
