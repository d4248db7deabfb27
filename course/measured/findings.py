"""What a diagnosis found, short enough to be read beside the timeline of 23."""

from __future__ import annotations

from itertools import islice

from labkit import show
from labkit.plots import Drawing
from labkit.show import Markup
from labkit.text import format_factor
from whyslow import Diagnosis, Finding

HEAD = ("finding", "share s", "1 / (1 − s)", "remedy")
# In the note of `labkit.busy`.
BUSY = "other programs"
AGAIN = ": run this cell again when they are done."
# Findings that are shown: those with the largest shares.
MOST = 3
# The question of a bet where the diagnosis has no figure for it.
NO_TIME = "The diagnosis had no time to be sure of it: guess."
# The reader bets by the lanes first.
FOLDED = "The diagnosis: open it before your bet on anomaly mode"
NOTHING = (
    "Nothing is sure in this short time, of no change that was tried. "
    "The panel tries one change for longer; its factor f gives you the share, s = 1 − 1/f."
)


def folded(diagnosis: Diagnosis) -> Drawing:
    """What `in_short` says, behind a line that opens it."""
    shown = show.result(show.details(in_short(diagnosis), summary=FOLDED))
    return Drawing(str(diagnosis), shown)


def in_short(diagnosis: Diagnosis) -> Markup:
    """One line for each finding: its share, what is left without it, its remedy; without a finding,
    what to do instead. Then what could not be tried.
    """
    largest = islice(diagnosis, MOST)
    table = show.table([HEAD, *map(_line, largest)]) if len(diagnosis) else show.sentence(NOTHING)
    # Of the notes only what disturbs the figures.
    notes = [f"{note.capitalize()}{AGAIN}" for note in diagnosis.notes if BUSY in note]
    missing: dict[str, list[str]] = {}
    for name, why in diagnosis.unmeasured.items():
        missing.setdefault(why, []).append(name)
    notes += [f"Not tried: {', '.join(names)} ({why})." for why, names in missing.items()]
    return show.join([table, *map(show.note, notes)])


def how_much_without(diagnosis: Diagnosis, name: str) -> str:
    """The question of a bet on a cause, whose share the diagnosis above has.

    On a machine that others disturb it may have none: then the question says so.
    """
    found = any(each.name.startswith(name) for each in diagnosis)
    where = "Its share stands in the diagnosis above." if found else NO_TIME
    return f"{where} How many times as fast without {name}?"


def _line(finding: Finding) -> tuple[str, ...]:
    low, high = finding.interval
    of = "" if finding.of == "time" else f" of the {finding.of}"
    share = f"{finding.share:.0%}{of} [{low:.0%}, {high:.0%}]"
    gain = f"{format_factor(finding.speedup)}×" if finding.of == "time" else "–"
    remedy = finding.remedy.splitlines()[0].rstrip(":;,.")
    return finding.name, share, gain, remedy
