"""What a diagnosis found, short enough to be read beside the timeline of 23."""

from __future__ import annotations

from labkit import show
from labkit.plots import Drawing
from whyslow import Diagnosis, Finding

HEAD = ("finding", "costs", "without it", "remedy")
# In the note of `labkit.busy`.
BUSY = "other programs"


def in_short(diagnosis: Diagnosis) -> Drawing:
    """One line for each finding: its share, what its remedy gains at most, and the remedy."""
    table = show.table([HEAD, *map(_line, diagnosis)]) if len(diagnosis) else ""
    # Of the notes only what disturbs the figures.
    notes = [show.note(f"{note.capitalize()}.") for note in diagnosis.notes if BUSY in note]
    shown = show.join([show.sentence(diagnosis.sentence), table, *notes])
    return Drawing(str(diagnosis), shown)


def _line(finding: Finding) -> tuple[str, ...]:
    low, high = finding.interval
    costs = f"{finding.share:.0%} of the {finding.of} [{low:.0%}, {high:.0%}]"
    gains = f"{finding.speedup:.2f}× as fast" if finding.of == "time" else "fits in less memory"
    remedy = finding.remedy.splitlines()[0].rstrip(":;,.")
    return finding.name, costs, gains, remedy
