"""The first page of ``RESULTS.md``: what was recorded where, and what came out of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from course.claims.claim import Claim
from course.claims.findings import (
    MISSING,
    PREDICTED,
    WORDS,
    Finding,
    effect,
    gain,
    gain_in_words,
)
from course.claims.ledgers import Ledger
from course.written import markdown

STRONGEST = 10
GREEN, RED, WHITE = "🟩", "🟥", "⬜"
HEAT = (
    f"The comparisons of the course's map, by machine. {GREEN} is a gain, {GREEN * 2} twice or "
    f"more, {GREEN * 3} four times or more; {RED} a loss, in the same steps; {WHITE} unclear."
)
Row = tuple[str, Claim, list[Finding]]


def summary(every: Sequence[Ledger]) -> str:
    """What was recorded, counts of each word, the strongest gains, the losses,
    what waits for a GPU.
    """
    rows: list[Row] = []
    for book in every:
        for claim, found in book.rows():
            rows.append((book.notebook, claim, found))
    gains, losses = _strongest(rows), _losses(rows)
    parts = [
        "## In short",
        HEAT,
        _heat(rows),
        "What was recorded:",
        _machines(every),
        "Figures by word:",
        _words(rows),
        f"The {len(gains)} strongest gains, by the lower bound of the weakest machine, among the "
        "comparisons that stand on the course's map:",
        _effects(gains),
        "The largest losses, among those seen on every machine:",
        _effects(losses),
        "What waits for a GPU:",
        _waiting(rows),
    ]
    return "\n\n".join(parts) + "\n"


def _heat(rows: Sequence[Row]) -> str:
    """Technique against machine, in squares."""
    headlines = [row for row in rows if row[1].headline]
    machines = sorted({each.name for _, _, found in headlines for each in found if each.known})
    table = [["notebook", "what was compared", *machines]]
    for notebook, claim, found in headlines:
        cells = {each.name: _square(claim, each) for each in found if each.known}
        if cells:
            own = [cells.get(machine, "") for machine in machines]
            table.append([_title(notebook), claim.headline, *own])
    return markdown(table)


def _square(claim: Claim, finding: Finding) -> str:
    value, low, high = gain(claim, finding)
    if finding.counts or not finding.clear or low <= 1 <= high:
        return f"{WHITE} {effect(claim, finding)}"
    steps = min(3, 1 + int(abs(math.log2(value)))) if value > 0 else 3
    return f"{(GREEN if value > 1 else RED) * steps} {gain_in_words(claim, value)}"


def _machines(every: Sequence[Ledger]) -> str:
    table = [["machine", "GPU", "notebooks", "recorded", "recorded with an older version"]]
    records = [record for book in every for record in book.references.records]
    for machine in sorted({record.machine for record in records}):
        own = [record for record in records if record.machine == machine]
        days = sorted({f"{record.recorded:%Y-%m-%d}" for record in own})
        doubtful = [record.notebook[:2] for record in own if record.doubt]
        device = "no"
        if any(record.device == "cuda" for record in own):
            device = "yes"
        dates = " to ".join(dict.fromkeys([days[0], days[-1]]))
        table.append([machine, device, str(len(own)), dates, ", ".join(doubtful) or "–"])
    return markdown(table)


def _words(rows: Iterable[Row]) -> str:
    counts = Counter(finding.word for _, _, found in rows for finding in found)
    table = [["word", "figures", "meaning"]]
    for word, meaning in WORDS.items():
        table.append([f"**{word}**", str(counts[word]), meaning])
    return markdown(table)


def _title(notebook: str) -> str:
    return notebook.replace("_", " ")


def _certain(claim: Claim, found: Sequence[Finding]) -> list[Finding]:
    """The findings that were run, and that could tell."""
    certain = []
    for finding in found:
        if claim.headline and finding.clear and finding.word not in (MISSING, PREDICTED):
            certain.append(finding)
    return certain


def _strongest(rows: Iterable[Row]) -> list[Row]:
    ranked = []
    for notebook, claim, found in rows:
        certain = _certain(claim, found)
        lowest = min((gain(claim, finding)[1] for finding in certain), default=math.nan)
        if lowest > 1:
            ranked.append((lowest, (notebook, claim, certain)))
    ranked.sort(key=lambda each: each[0], reverse=True)
    return [row for _, row in ranked[:STRONGEST]]


def _losses(rows: Iterable[Row]) -> list[Row]:
    ranked = []
    for notebook, claim, found in rows:
        certain = _certain(claim, found)
        highest = max((gain(claim, finding)[2] for finding in certain), default=math.nan)
        if highest < 1:
            ranked.append((highest, (notebook, claim, certain)))
    ranked.sort(key=lambda each: each[0])
    return [row for _, row in ranked]


def _effects(rows: Iterable[Row]) -> str:
    table = [["notebook", "what was compared", "gain (below 1 a loss)", "beside its source"]]
    for notebook, claim, found in rows:
        figures = []
        for finding in found:
            figures.append(f"{finding.name}: {effect(claim, finding)}")
        words = dict.fromkeys(finding.word for finding in found)
        table.append([_title(notebook), claim.headline, "<br>".join(figures), ", ".join(words)])
    return markdown(table)


def _waiting(rows: Iterable[Row]) -> str:
    waiting: dict[str, list[str]] = {}
    for notebook, claim, found in rows:
        if claim.device == "cuda" and all(finding.word == MISSING for finding in found):
            waiting.setdefault(_title(notebook), []).append(claim.text)
    table = [["notebook", "claims"]]
    for notebook, texts in waiting.items():
        table.append([notebook, "; ".join(texts)])
    return markdown(table)
