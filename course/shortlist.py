"""The map of the course on one screen: the path in its order.

Beside each what the reader finished there, the bets, and the figures of the speedrun beside the
recorded ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from course.board import Board
from course.board.advice import briefly
from course.claims import ledger
from course.claims.findings import gain, gain_in_words
from course.notebook_files import about, notebook_path, place
from course.progress import PATH, Progress, read
from course.switches import SWITCHES
from course.way import STAR, rows
from labkit import show
from labkit.device import pick_device
from labkit.panel.guess import Decided
from labkit.text import aligned

HEAD = ["notebook", "relieves", "your bets", "you, on the board", "recorded", "of what there"]
DONE, NOTHING = "✓", "–"


@dataclass(frozen=True)
class Gain:
    """What a machine's record says under a headline: above 1 is a gain."""

    value: float
    text: str
    headline: str
    machine: str


@dataclass(frozen=True)
class Entry:
    """A row: ``yours`` is what its switch did in the reader's own speedrun, in a word or two.

    ``relieves`` is the first of its bottlenecks, ``recorded`` the largest gain among the headlines
    of the notebook's claims. ``bets`` are those that were decided there, ``solved`` says that the
    reader's own answer to its exercise has passed.
    """

    title: str
    path: str
    relieves: str
    yours: str
    recorded: Gain | None
    finished: bool
    bets: tuple[Decided, ...]
    solved: bool = False

    def texts(self) -> list[str]:
        """The row as texts."""
        recorded = [NOTHING, NOTHING]
        if self.recorded:
            recorded = [self.recorded.text, self.recorded.headline]
        right = sum(bet.right for bet in self.bets)
        bets = f"{right} of {len(self.bets)}" if self.bets else NOTHING
        done = f" {DONE}" if self.finished else ""
        done += STAR if self.solved else ""
        return [f"{self.title}{done}", self.relieves, bets, self.yours, *recorded]


@dataclass(frozen=True)
class Shortlist:
    """The path: `print` it, or end a cell in it for a table with links."""

    entries: tuple[Entry, ...]
    said: str
    folded: bool = False

    def __str__(self) -> str:
        return aligned([HEAD, *(entry.texts() for entry in self.entries)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        texts: list[list[str]] = [HEAD]
        for entry in self.entries:
            title, *cells = entry.texts()
            link = show.element("a", title, href=f"{entry.path}.ipynb")
            texts.append([link, *cells])
        table, note = rows(texts), show.note(self.said)
        if self.folded:
            summary = f"The map: all {len(self.entries)} notebooks that follow"
            return show.result(show.details(table, note, summary=summary))
        return show.result(table, note)


def shortlist(*, yours: bool = True, folded: bool = False) -> Shortlist:
    """The map: the path in its order; what each relieves, and what it brought.

    Without ``yours`` the reader's own ticks, bets and figures are left out; ``folded``: the table
    is shown at a click.
    """
    own, progress, said = {}, Progress(), []
    if yours:
        progress, board = read(), Board()
        said = [progress.said, board.said]
        for name, choice in board.choices.made.items():
            # A file of an older version may hold a switch that there is no more.
            if name in SWITCHES:
                own[f"{SWITCHES[name].notebook:02}"] = briefly(choice.figure)
    entries = tuple(_entry(name, own, progress) for name in PATH[1:])
    machines = sorted({entry.recorded.machine for entry in entries if entry.recorded})
    whose = f"recorded: in the notebook, on {', '.join(machines)}."
    where = f"on the board: its switch in your speedrun; {whose}"
    return Shortlist(entries, " ".join(filter(None, [where, *said])), folded)


def _entry(name: str, own: Mapping[str, str], progress: Progress) -> Entry:
    path = notebook_path(name)
    said = about(path)
    return Entry(
        title=f"{name[:2]} {said['title']}",
        path=place(path),
        relieves=said["map"]["relieves"][0],
        yours=own.get(name[:2], NOTHING),
        recorded=_recorded(name),
        finished=name in progress.finished,
        bets=progress.bets_in(name),
        solved=name in progress.finished and progress.finished[name].solved,
    )


def _recorded(name: str) -> Gain | None:
    """The largest gain among the headlines, each of the machine that recorded it last.

    Of machines like this one, with a GPU or without, where there are any. Where none gains, as of
    tools that cost time, the largest loss.
    """
    cpu = pick_device().type == "cpu"
    found: dict[bool, list[Gain]] = {True: [], False: []}
    for claim, findings in ledger(name).rows():
        known = [finding for finding in findings if not math.isnan(finding.value)]
        if not claim.headline:
            continue
        latest = {each.name.endswith("-cores") == cpu: each for each in known}
        for alike, finding in latest.items():
            value, *_ = gain(claim, finding)
            what = claim.headline if alike else f"{claim.headline} (on {finding.name})"
            found[alike].append(Gain(value, gain_in_words(claim, value), what, finding.name))
    gains = found[True] or found[False]
    if any(each.value > 1 for each in gains):
        return max(gains, key=lambda each: each.value)
    return min(gains, key=lambda each: each.value, default=None)
