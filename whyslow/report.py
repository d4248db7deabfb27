"""Where the time of a watched program goes, line by line: as text, and with bars in a notebook."""

from __future__ import annotations

import linecache
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from labkit import show
from labkit.show import Markup
from labkit.text import aligned, format_seconds
from whyslow import remedies
from whyslow.findings import LEAST_SHARE
from whyslow.lines import Line, cause_of, in_the_loop
from whyslow.shares import NONE, Share, Tally, in_words, listed
from whyslow.stacks import (
    CAUSES,
    HOST,
    LOADING,
    NOWHERE,
    OUTSIDE,
    START,
    TRAINING,
    UPDATE,
    Place,
    Stack,
    own,
)

# Below so many looks a share says little.
FEW = 100
# Lines of source around a heavy one, and letters of the longest bar.
AROUND, BAR = 2, 20
# The share from which a line is shown, and that from which start-up is all that matters.
WORTH, ALL = 0.01, 0.9
UNSEEN = (
    "what worker processes do while the loop waits for them",
    "which operator a GPU runs: its time is at the line that waits for it",
    "what a line could do faster: whyslow.diagnose(step) tries that",
)


class Report:
    """Where the time of a program, or of a step, goes; `print` it, or let a cell end in it.

    ``lines`` are the heaviest, five at most, as far as they are worth a word, ``every_line`` all.
    ``causes``: the share of each, the heaviest first; they add up to 1. ``loop``: the training
    loop, a file and a range of lines, or None where none was found. ``ended`` says why the watching
    ended, where that was no plain end: the name of an error.
    """

    def __init__(self, tally: Tally, ended: str = "") -> None:
        self._tally = tally = tally.copy()
        self.seconds, self.looks, self.ended = tally.total, tally.looks, ended
        last = {stack: block for block, stack, _ in sorted(tally.items(), key=lambda look: look[0])}
        self.loop, inside = in_the_loop(last.keys())
        begins = min((block for block, stack, _ in tally.items() if stack in inside), default=0)

        def cause(stack: Stack) -> str:
            its = cause_of(stack)
            if stack in inside or its not in TRAINING:
                return its
            return START if last[stack] <= begins else OUTSIDE

        def line(stack: Stack) -> Place:
            return own(stack)[-1] if own(stack) else NOWHERE

        parts: dict[Place, dict[str, float]] = defaultdict(dict)
        both = tally.shares(lambda stack: (line(stack), cause(stack)))
        for (place, its), (part, _) in both.items():
            parts[place][its] = part
        self.every_line = []
        for place, (share, interval) in tally.shares(line).items():
            first, *less = parts[place]
            others = tuple(its for its in less if parts[place][its] >= share / 4)
            if place.file:
                self.every_line.append(Line(*place, first, share, interval, others))
        self.lines = [each for each in self.every_line[:5] if each.share >= WORTH]
        self.causes = {name: share for name, (share, _) in tally.shares(cause).items()}

    def share(self, wanted: Callable[[Stack], bool], without: str = "") -> Share:
        """The share of these stacks in all, or in those ``without`` a cause."""
        shares = self._tally.shares(
            lambda stack: None if cause_of(stack) == without else wanted(stack)
        )
        return shares.get(True, NONE)

    def where(self, causes: tuple[str, ...]) -> str:
        """The heaviest line of these causes; nothing where there is none to name."""
        # Of updates last: most of theirs may be torch's.
        for line in sorted(self.every_line, key=lambda line: line.cause == UPDATE):
            if line.cause in causes and line.share >= LEAST_SHARE:
                return f"{line.place}: {line.source}"
        return ""

    @property
    def sentence(self) -> str:
        """The result in words."""
        if not self.looks:
            return "No line of your own files ran while it was watched."
        told = f"Watched {format_seconds(self.seconds)}"
        if self.ended:
            told += f", until {self.ended}"
        if self.looks < FEW:
            told += f", only {self.looks} looks: too short to say much"
        start, share = self.causes.get(START, 0.0), self.causes[self._first]
        if start > share and self._first != START:
            return f"{told}. {start:.0%} of it is start-up; most of the rest is {self._first}."
        return f"{told}. Most time goes to {self._first}: {share:.0%}."

    @property
    def _first(self) -> str:
        """The heaviest cause; what is paid once only where it is nearly all."""
        others = [cause for cause in self.causes if cause != START]
        return START if self.causes.get(START, 0.0) > ALL else others[0]

    def __repr__(self) -> str:
        if not self.looks:
            return self.sentence
        rows = []
        for line in self.lines:
            share, interval = in_words((line.share, line.interval))
            bar = "█" * max(1, round(BAR * line.share))
            source = line.source or f"(no source, in {line.function})"
            rows.append([f"{share:>4}", interval, bar, line.place, source[:70], line.causes])
        return "\n\n".join([self.sentence, aligned(rows), *self._notes()])

    def _notes(self) -> Iterator[str]:
        remedy = remedies.REMEDIES[self._first].format(loader=remedies.loader())
        yield f"Try first, for {self._first}:\n{remedy}".replace("\n", "\n  ")
        yield f"By cause: {listed(self.causes)}."
        if self.loop is not None:
            file, (first, last) = self.loop
            yield f"The training loop is {Path(file).name}, lines {first} to {last}."
        yield f"Looked for: {', '.join(CAUSES)}."
        unseen = UNSEEN if {LOADING, HOST} & self.causes.keys() else UNSEEN[1:]
        yield f"Not seen: {'; '.join(unseen)}."

    def _repr_html_(self) -> str:
        if not self.looks:
            return show.result(show.sentence(self.sentence))
        remedy, *notes = self._notes()
        drawn = [line for line in self.every_line if line.share >= WORTH]
        return show.result(
            show.sentence(self.sentence),
            show.sentence(" ".join(remedy.split())),
            *(_excerpt(file, drawn) for file in dict.fromkeys(line.file for line in self.lines)),
            show.details(*notes, summary="What was looked for"),
        )


def _excerpt(file: str, lines: Sequence[Line]) -> Markup:
    """The source of a file, with a bar beside each of its ``lines``."""
    known = {line.number: line for line in lines if line.file == file}
    near = {number + step for number in known for step in range(-AROUND, AROUND + 1)}
    texts = enumerate(linecache.getlines(file), 1)
    rows = [_row(number, text, known.get(number)) for number, text in texts if number in near]
    title = next(iter(known.values())).place.rpartition(":")[0]
    body = show.element("table", *rows, kind="source")
    return show.element("div", show.note(title), body, kind="scroll")


def _row(number: int, text: str, line: Line | None) -> Markup:
    share, bar, cause = "", Markup(), ""
    if line is not None:
        share, cause = f"{line.share:.0%}", line.causes
        drawn = show.element("i", style=f"width:{100 * line.share:.1f}%", data_cause=line.cause)
        bar = show.element("span", drawn, title=cause)
    cells = [str(number), share, bar, show.element("code", text.rstrip()), cause]
    return show.element("tr", *(show.element("td", each) for each in cells))
