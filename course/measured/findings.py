"""What a diagnosis found, short enough to be read beside the timeline of 23."""

from __future__ import annotations

from itertools import islice

from labkit import show
from labkit.plots import Drawing
from whyslow import Diagnosis, Finding

HEAD = ("finding", "costs", "remedy")
# In the note of `labkit.busy`.
BUSY = "other programs"
AGAIN = ": run this cell again when they are done."
# Findings that are shown: those with the largest shares.
MOST = 3


def in_short(diagnosis: Diagnosis) -> Drawing:
    """One line for each finding, its share and its remedy; and what could not be tried.

    What a remedy gains is left out: that is what the reader bets on.
    """
    largest = islice(diagnosis, MOST)
    table = show.table([HEAD, *map(_line, largest)]) if len(diagnosis) else ""
    # Of the notes only what disturbs the figures.
    notes = [f"{note.capitalize()}{AGAIN}" for note in diagnosis.notes if BUSY in note]
    missing: dict[str, list[str]] = {}
    for name, why in diagnosis.unmeasured.items():
        missing.setdefault(why, []).append(name)
    notes += [f"Not tried: {', '.join(names)} ({why})." for why, names in missing.items()]
    shown = show.join([show.sentence(diagnosis.sentence), table, *map(show.note, notes)])
    return Drawing(str(diagnosis), shown)


def how_much_without(diagnosis: Diagnosis, name: str) -> str:
    """The question of a bet, behind the share of the finding that is named like that.

    On a machine that others disturb a diagnosis may miss it: that is said instead.
    """
    shares = [each.share for each in diagnosis if each.name.startswith(name)]
    found = f"costs {100 * shares[0]:.0f} % of the step" if shares else "was not found"
    return f"{name.capitalize()} {found}. How many times as fast without it?"


def _line(finding: Finding) -> tuple[str, ...]:
    low, high = finding.interval
    costs = f"{finding.share:.0%} of the {finding.of} [{low:.0%}, {high:.0%}]"
    remedy = finding.remedy.splitlines()[0].rstrip(":;,.")
    return finding.name, costs, remedy
