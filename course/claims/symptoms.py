"""``course/symptoms.md``: what people say of a slow training, and the cell that shows why.

`symptoms.toml` has an entry for each: the words, the cause, the cell that reproduces it (written as
in `statements`), the cure, and the claim whose recorded figure belongs to it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from course.claims.claim import METRICS, Claim
from course.claims.findings import Finding
from course.claims.ledgers import Ledger
from course.claims.statements import Places
from course.notebook_files import ROOT

FILE = Path(__file__).with_name("symptoms.toml")
SYMPTOMS_PAGE = ROOT / "course" / "symptoms.md"
HEAD = """# What is wrong with my training?

Find the sentence that you would say. Each entry has the cause, a cell that makes it happen on your
own machine, the cure, and what our recorded runs found ([RESULTS.md](../RESULTS.md)). A speed-up
above 1 is faster, with its 95 % interval; a peak memory below 1 is smaller. Nothing fits?
`python -m whyslow train.py` says [which lines of your own script](measuring.md#why-is-it-slow) take
its time.

Written by `python -m course results` from [claims/symptoms.toml](claims/symptoms.toml).
"""


@dataclass(frozen=True)
class Symptom:
    """An entry: ``claim`` is the text of one of ``notebook``; both are empty without a figure."""

    says: str
    why: str
    cell: str
    cure: str
    notebook: str = ""
    claim: str = ""


def symptoms(file: Path = FILE) -> list[Symptom]:
    """All entries. ValueError names the one that is not as the page wants it."""
    entries = tomllib.loads(file.read_text(encoding="utf-8"))["symptom"]
    return [_symptom(entry) for entry in entries]


def _symptom(entry: Mapping[str, str]) -> Symptom:
    known = set(Symptom.__dataclass_fields__)
    missing = {"says", "why", "cell", "cure"} - entry.keys()
    if missing or entry.keys() - known:
        wrong = sorted(missing | (entry.keys() - known))
        raise ValueError(f"symptom {entry.get('says')!r}: {wrong}; use {sorted(known)}")
    symptom = Symptom(**entry)
    if bool(symptom.notebook) != bool(symptom.claim):
        raise ValueError(f"symptom {symptom.says!r}: a figure needs notebook and claim")
    return symptom


def symptoms_text(every: Sequence[Ledger]) -> str:
    """The whole page. ValueError where an entry names a claim that there is not."""
    places = Places()
    books = {book.notebook: book for book in every}
    entries = symptoms()
    parts = [HEAD, "\n".join(f"- [{each.says}](#{_anchor(each.says)})" for each in entries) + "\n"]
    for each in entries:
        cell = places.find(each.cell)
        target = "../" + cell.notebook.relative_to(ROOT).as_posix()
        parts += [
            f"## {each.says}\n",
            f"{each.why}\n",
            f"- **See it happen:** [{cell.label}]({target})",
            f"- **Cure:** {each.cure}",
            f"- **Recorded:** {_figure(each, books)}\n",
        ]
    return "\n".join(parts)


def _figure(symptom: Symptom, books: Mapping[str, Ledger]) -> str:
    if not symptom.claim:
        return "nothing to time; the cell counts or compares"
    claim, findings = _found(symptom, books.get(symptom.notebook))
    link = f"[{symptom.claim}](../RESULTS.md#{symptom.notebook})"
    known = [each for each in findings if each.known]
    if not known:
        return f"{link}: not yet"
    figures = "; ".join(f"{each.figure} on {each.name}" for each in known)
    return f"{link}: {METRICS[claim.metric].title} {figures}"


def _found(symptom: Symptom, book: Ledger | None) -> tuple[Claim, list[Finding]]:
    for claim, findings in book.rows() if book else ():
        if claim.text == symptom.claim:
            return claim, findings
    raise ValueError(f"symptom {symptom.says!r}: {symptom.notebook} claims no {symptom.claim!r}")


def _anchor(heading: str) -> str:
    """As GitHub makes it."""
    kept = (letter for letter in heading.lower() if letter.isalnum() or letter in " -_")
    return "".join(kept).replace(" ", "-")
