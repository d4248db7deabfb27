"""What a diagnosis found, short enough to be read beside the timeline of 23."""

from __future__ import annotations

from labkit import show
from labkit.plots import Drawing
from whyslow import Diagnosis, Finding

HEAD = ("finding", "costs", "without it", "remedy")


def in_short(diagnosis: Diagnosis) -> Drawing:
    """One line for each finding: its share, what its remedy gains at most, and the remedy."""
    table = show.table([HEAD, *map(_line, diagnosis)]) if len(diagnosis) else ""
    sentence = diagnosis.sentence
    return Drawing(str(diagnosis), show.join([show.sentence(sentence), table]))


def _line(finding: Finding) -> tuple[str, ...]:
    low, high = finding.interval
    costs = f"{finding.share:.0%} of the {finding.of} [{low:.0%}, {high:.0%}]"
    gains = f"{finding.speedup:.2f}× as fast" if finding.of == "time" else "fits in less memory"
    remedy = finding.remedy.splitlines()[0].rstrip(":;,.")
    return finding.name, costs, gains, remedy
