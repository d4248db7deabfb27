"""The waterfall: seconds to the target, from the slow script down, one bar for each switch.

How many images the slow script trains on until then was recorded, over several seeds; its rate is
measured here. Every bar below divides the one above by what its switch was measured to bring, so
all of them are estimates, and say so. A loss makes it longer. Of an unclear factor only a direction
that was measured counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from course.board.advice import LEAVE, advice, advised, pairs_in_words
from course.board.store import Choices, Figure
from course.board.words import factor_in_words, told
from course.switches import SWITCHES, TASK
from labkit import charts, show
from labkit.show import Bar
from labkit.text import aligned, format_factor, format_rate

SLOW = "slow script"
HOW = {
    "time": "timed in turn",
    "race": "raced to an accuracy that is reached early",
    "whole race": f"raced to {TASK.target:.0%}",
}


@dataclass(frozen=True)
class Step:
    """One bar: the seconds before and after a switch, and what was measured of it."""

    name: str
    before: float
    after: float
    figure: Figure | None = None
    undecided: bool = False


@dataclass(frozen=True)
class Waterfall:
    """The bars; ``rate`` is the slow script's images per second, ``left`` what was not kept."""

    steps: tuple[Step, ...]
    rate: float
    left: tuple[str, ...]
    recorded: str = ""
    said: str = ""

    @property
    def latest(self) -> Figure | None:
        """The figure about which nothing is decided yet."""
        if self.steps[-1].undecided:
            return self.steps[-1].figure
        return None

    def __str__(self) -> str:
        rows = []
        for step in self.steps:
            measured = _told(step.figure) if step.figure else ""
            question = _question(step.figure) if step.undecided and step.figure else ""
            rows.append([step.name, _seconds(step.after), measured, question])
        return "\n".join([_title(), aligned(rows), *self._notes()])

    def _repr_html_(self) -> str:
        blocks: list[str] = []
        if self.latest is not None:
            name = self.latest.switch
            head = show.join([show.badge(self.latest.direction), show.element("b", name)])
            text = f": {SWITCHES[name].text}. {sentence(self.latest)}."
            blocks.append(show.sentence(head, text))
        blocks += [show.note(_title()), _chart(self.steps)]
        blocks += [show.note(text) for text in self._notes()]
        return show.result(*blocks)

    def _notes(self) -> list[str]:
        notes = [self._summary()]
        if self.left:
            notes.append(f"Tried and not kept: {', '.join(self.left)}.")
        notes += [self.recorded, self.said]
        if self.latest is not None:
            notes.append(advice(self.latest))
        return [note for note in notes if note]

    def _summary(self) -> str:
        if not math.isfinite(self.steps[0].after):
            return (
                "The slow script was not timed here yet; the first switch that is timed does that."
            )
        return f"The slow script gets through {format_rate(self.rate, 'images')}. {self._whole()}"

    def _whole(self) -> str:
        """What all bars bring together, as far as it is known."""
        figures = [step.figure for step in self.steps if step.figure]
        if not figures:
            return ""
        open_ones = []
        for figure in figures:
            if figure.verdict == "unclear" or not figure.counts:
                open_ones.append(f"{figure.switch}: {_told(figure)}")
        listed = "; ".join(open_ones)
        if all(figure.verdict == "unclear" for figure in figures):
            return f"Nothing is clear yet: {listed}."
        if not any(figure.counts for figure in figures):
            return f"No factor yet: {listed}."
        factor = format_factor(self.steps[0].after / self.steps[-1].after)
        if not listed:
            return f"With all bars: {factor}x, the product of what is clear."
        return f"With all bars: {factor}x. Of these not a clear factor: {listed}."


def waterfall(
    choices: Choices, latest: Figure | None, images: float, recorded: str = "", said: str = ""
) -> Waterfall:
    """The slow script, what was kept, then ``latest``, about which nothing is decided yet.

    ``images`` is what the slow script needs to the target. Seconds are nan where its rate is not
    known. A factor without a direction, or that is not finite, changes nothing.
    """
    rate = choices.rate
    figures = [choice.figure for choice in choices.kept]
    left = [name for name, choice in choices.made.items() if not choice.kept]
    if latest is not None:
        figures = [each for each in figures if each.switch != latest.switch] + [latest]
        left = [name for name in left if name != latest.switch]
        if not latest.on_top_of:
            rate = latest.rate
    seconds = images / rate
    found = [Step(SLOW, seconds, seconds)]
    for figure in figures:
        after = seconds / (figure.factor if figure.counts else 1)
        found.append(Step(figure.switch, seconds, after, figure, figure is latest))
        seconds = after
    return Waterfall(tuple(found), rate, tuple(left), recorded, said)


def _question(figure: Figure) -> str:
    return "better not kept" if advised(figure) == LEAVE else "keep it?"


def sentence(figure: Figure) -> str:
    """What was measured of a switch, in words."""
    below = "the slow script"
    if figure.on_top_of:
        below = ", ".join(figure.on_top_of)
    text = _told(figure)
    if figure.direction != figure.verdict:
        text += "; by how much is not clear yet"
    text += f", on top of {below}, {HOW[figure.mode]}"
    if math.isfinite(figure.memory):
        text += f"; peak memory {format_factor(figure.memory)}x"
    if figure.stopped:
        text += "; stopped early"
    return text


def _told(figure: Figure) -> str:
    if figure.direction == figure.verdict:
        return told(figure.factor, figure.interval, figure.verdict)
    if math.isnan(sum(figure.interval)):
        return f"{factor_in_words(figure.factor)}, {pairs_in_words(figure)}"
    return told(figure.factor, figure.interval, pairs_in_words(figure))


def _chart(found: Sequence[Step]) -> str:
    """How long each step takes, and in grey what its switch took away."""
    rows = []
    for step in found:
        tone, told = "baseline", ""
        if step.figure is not None:
            told = _told(step.figure)
            tone = step.figure.direction if step.undecided else "candidate"
        was = step.before if step.before > step.after else math.nan
        bar = Bar(step.name, step.after, _seconds(step.after), tone=tone, note=told, was=was)
        rows.append(bar)
    return charts.bars(_title(), rows)


def _title() -> str:
    return f"Estimated seconds until {TASK.target:.0%} of unseen images are right"


def _seconds(value: float) -> str:
    if math.isnan(value):
        return "?"
    if value < 10:
        return f"{value:.1f} s"
    return f"{value:.0f} s"
