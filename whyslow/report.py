"""Where the time of a watched program goes, line by line: as text, and with bars in a notebook."""

from __future__ import annotations

import linecache
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from labkit import show
from labkit.show import Markup
from labkit.text import aligned, format_seconds
from whyslow import remedies
from whyslow.lines import Line, Sampled
from whyslow.sampling import in_words, listed
from whyslow.stacks import CAUSES, HOST, LOADING, START

# Below so many looks a share says little.
FEW = 100
# Lines of source around a heavy one, and the share from which a line gets a bar.
AROUND, DRAWN = 2, 0.005
BAR = 20
# The share from which a line is one of the heaviest.
WORTH = 0.01
UNSEEN = (
    "what worker processes do while the loop waits for them",
    "which operator a GPU runs: its time is at the line that waits for it",
    "what a line could do faster: whyslow.diagnose(step) tries that",
)


@dataclass(frozen=True)
class Report:
    """The heaviest lines of one run; `print` it, or let a cell end in it.

    ``ended`` says why the watching ended, where that was no plain end: the name of an error.
    """

    sampled: Sampled
    ended: str = ""

    @property
    def lines(self) -> tuple[Line, ...]:
        """The heaviest lines, five at most, as far as they are worth a word."""
        return tuple(line for line in self.sampled.lines[:5] if line.share >= WORTH)

    @property
    def causes(self) -> dict[str, float]:
        """The share of each cause, the heaviest first; they add up to 1."""
        return {cause: share for cause, (share, _) in self.sampled.causes.items()}

    @property
    def sentence(self) -> str:
        """The result in words."""
        if not self.sampled.looks:
            return "No line of your own files ran while it was watched."
        told = f"Watched {format_seconds(self.sampled.seconds)}"
        if self.ended:
            told += f", until {self.ended}"
        if self.sampled.looks < FEW:
            told += f", only {self.sampled.looks} looks: too short to say much"
        start, share = self.causes.get(START, 0.0), self.causes[self._first]
        if start > share and self._first != START:
            return f"{told}. {start:.0%} of it is start-up; most of the rest is {self._first}."
        return f"{told}. Most time goes to {self._first}: {share:.0%}."

    @property
    def _first(self) -> str:
        """The heaviest cause; what is paid once only where there is nothing else."""
        others = [cause for cause in self.causes if cause != START]
        return (others or [START])[0]

    def __repr__(self) -> str:
        if not self.sampled.looks:
            return self.sentence
        rows = []
        for line in self.lines:
            share, interval = in_words((line.share, line.interval))
            bar = "█" * max(1, round(BAR * line.share))
            source = line.source or f"(no source, in {line.function})"
            rows.append([f"{share:>4}", interval, bar, line.place, source[:70], line.cause])
        return "\n\n".join([self.sentence, aligned(rows), *self._notes()])

    def _notes(self) -> Iterator[str]:
        remedy = remedies.REMEDIES[self._first].format(loader=remedies.loader())
        yield f"Try first, for {self._first}:\n{remedy}".replace("\n", "\n  ")
        yield f"By cause: {listed(self.causes)}."
        if self.sampled.loop is not None:
            file, (first, last) = self.sampled.loop
            yield f"The training loop is {Path(file).name}, lines {first} to {last}."
        yield f"Looked for: {', '.join(CAUSES)}."
        unseen = UNSEEN if {LOADING, HOST} & self.causes.keys() else UNSEEN[1:]
        yield f"Not seen: {'; '.join(unseen)}."

    def _repr_html_(self) -> str:
        if not self.sampled.looks:
            return show.result(show.sentence(self.sentence))
        remedy, *notes = self._notes()
        drawn = [line for line in self.sampled.lines if line.share >= DRAWN]
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
    rows, before = [], 0
    for number, text in enumerate(linecache.getlines(file), 1):
        if number in near:
            if before and number > before + 1:
                rows.append(_row("⋯"))
            rows.append(_row(str(number), text.rstrip(), known.get(number)))
            before = number
    title = next(iter(known.values())).place.rpartition(":")[0]
    body = show.element("table", *rows, kind="source")
    return show.element("div", show.note(title), body, kind="scroll")


def _row(number: str, text: str = "", line: Line | None = None) -> Markup:
    share, bar, cause = "", Markup(), ""
    if line is not None:
        share, cause = f"{line.share:.0%}", line.cause
        drawn = show.element("i", style=f"width:{100 * line.share:.1f}%", data_cause=cause)
        bar = show.element("span", drawn, title=cause)
    cells = [number, share, bar, show.element("code", text), cause]
    return show.element("tr", *(show.element("td", each) for each in cells))
