"""The waterfall: seconds to the target, from the slow script down, one step for each switch.

How many images the slow script trains on until then was recorded, over several seeds; its rate is
measured here. Every step divides the one above by what its switch was measured to bring, so all of
them are estimates, and say so, up to a run of the script: from there on it counts. A loss makes it
longer. What is unclear is drawn and not counted; where only the size of a gain or a loss is unclear
it is counted, and the whole is "about". With a switch that kept the training from its target no
time is left to estimate: it is infinite from there on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from course.board.advice import LEAVE, advice, advised, in_short, pairs_in_words
from course.board.outlook import Likely
from course.board.provisional import Provisional, provisional
from course.board.recorded import Machine, images_to_target
from course.board.stars import Stars
from course.board.store import Choice, Choices, Figure, Run
from course.board.words import factor_in_words, told
from course.speedrun import batch_size
from course.switches import SWITCHES, TASK
from labkit.text import aligned, format_bytes, format_factor, format_rate, format_share

SLOW, TODAY, BEST = "slow script", "you, today", "best recorded"
# The step to what a run of the script took, from what was estimated.
RAN = "your script, as it ran"
NOT_REACHED = "not reached"
HOW = {
    "time": "timed in turn",
    "race": "raced to an accuracy that is reached early",
    "cut race": "raced as far as two minutes allowed",
    "whole race": f"raced to {TASK.target:.0%}",
}
SCRIPT = (
    "The slow script is a common PyTorch training without any switch (course/speedrun.py): a small "
    "ResNet learns to tell {images:,} CIFAR-10 photographs of 32 x 32 pixels apart, {batch} at a "
    "time. After each pass over them it names {validation:,} unseen ones."
)
TOTAL = (
    "It needs {passes:g} passes until {target:.0%} of these are right{whose}: {total:,.0f} "
    "photographs in all. "
)
# What comes next is the path's to say: these may be of any notebook.
STILL = "Likely to win most of what is left here, by what was recorded"
UNTIMED = "The slow script was not timed here yet: the first switch that is measured does that."
FACTORS = (
    "A switch divides the time of the slow script by its factor, times as fast; 0.80x is slower, "
    "and makes it longer."
)
DISTURBED = (
    "Other programs took the cores while the slow script was timed: its seconds are rough. "
    "A quiet measurement takes them anew."
)
# An estimate that is as many times the record is not left without it.
FAR_ABOVE = 2.0


@dataclass(frozen=True)
class Step:
    """One bar: the seconds before and after a switch, and what was measured of it."""

    name: str
    before: float
    after: float
    figure: Figure | None = None
    undecided: bool = False

    @property
    def measured(self) -> float:
        """The seconds that its factor would make, counted or not; nan without a factor."""
        if self.figure is None:
            return self.after
        factor = self.figure.gain
        return self.before / factor if 0 < factor < math.inf else math.nan

    @property
    def peak(self) -> float:
        """Bytes at most, with the switch; nan where nobody looked."""
        return self.figure.peak * self.figure.memory if self.figure else math.nan


@dataclass(frozen=True)
class Waterfall:
    """The steps, and what stands around them.

    ``rate`` is the slow script's images per second; where it is unknown each time is told as how
    many times as fast as the slow script that is.
    ``disturbed`` says that other programs took the cores while that was measured: it then counts as
    unknown. ``not_kept`` are
    the figures of what was not kept, ``tried`` counts all. ``armed`` is the switch that can be
    measured now, ``elsewhere`` what it brought where it was recorded, ``doubt`` what speaks against
    it, ``needs`` the minutes that it is likely to need after it had too little time. ``saves`` is
    what the bars show: "time" or "memory". ``decided`` is the choice that was made last. ``run`` is
    that of the script with what is kept, ``fastest`` the best of all, and ``earlier`` its seconds
    before the latest run.
    """

    steps: tuple[Step, ...]
    rate: float
    disturbed: bool = False
    not_kept: tuple[Figure, ...] = ()
    tried: int = 0
    armed: str = ""
    needs: int = 0
    elsewhere: str = ""
    doubt: str = ""
    known: str = ""
    said: str = ""
    beside: str = ""
    best: Machine | None = None
    ahead: tuple[Likely, ...] = ()
    saves: str = "time"
    decided: Choice | None = None
    run: Run | None = None
    fastest: Run | None = None
    earlier: float = math.nan

    @property
    def latest(self) -> Figure | None:
        """The figure about which nothing is decided yet."""
        return self.steps[-1].figure if self.steps[-1].undecided else None

    @property
    def left(self) -> tuple[str, ...]:
        """The switches that were tried and not kept."""
        return tuple(figure.switch for figure in self.not_kept)

    @property
    def timed(self) -> bool:
        """Whether the slow script's seconds are known."""
        return math.isfinite(self.rate) and not self.disturbed

    def __str__(self) -> str:
        rows = []
        for step in self.steps:
            measured = _told(step.figure) if step.figure else ""
            rows.append(
                [step.name, self.time(step.after), measured, peak_in_words(step), _question(step)]
            )
        if self.provisional.words:
            rows.append([TODAY, self.today_in_words(), self.provisional.words, "", ""])
        if self.best:
            rows.append([BEST, *self.best_in_words(self.best), "", ""])
        parts = [f"{self.headline()} {self.caption()}", self.caution(), str(self.stars)]
        parts += [aligned(rows), *self.notes(), self.about(), self.still_in_words()]
        parts += [self.said, self.command()]
        return "\n".join(filter(None, parts))

    def headline(self) -> str:
        """``17.5 min → 14.1 min``: the slow script, and the last step."""
        slow, last = self.steps[0].after, self.steps[-1]
        if self.by_memory and last.figure:
            return f"{format_bytes(last.figure.peak)} → {format_bytes(last.peak)}"
        if self.ran:
            took = duration(self.ran.seconds)
            return f"{self.time(slow)} → {took}" if self.timed else took
        if self.fresh and math.isfinite(self.rate):
            return f"about {rough(images_to_target() / self.rate)}"
        if self.fresh and self.best:
            return _from_to(self.best)
        # A side that never arrives has no time to arrow to.
        early = last.figure is not None and last.figure.early
        untold = (early or math.isnan(last.measured)) and last.after == slow
        if len(self.steps) == 1 or untold:
            return self.time(slow)
        about = "about " if self.is_rough else ""
        if not self.timed and math.isfinite(last.after):
            return about + speed_in_words(last.after / slow)
        return f"{self.time(slow)} → {about}{self.time(last.after)}"

    def caption(self) -> str:
        """What the headline is of, and how many switches were tried."""
        what = f"until {TASK.target:.0%} of unseen images are right"
        clear = ", by what is clear so far" * self.unsure
        if self.by_memory:
            time = f", and {self.time(self.steps[-1].after)} {what}" if self.timed else ""
            what = f"at the peak of a step{time}"
        elif self.ran:
            what += ", as it ran" + ", beside other programs" * self.ran.disturbed
        elif self.fresh and math.isfinite(self.rate):
            what += ", beside other programs"
            if self.best:
                what += f"; on a recorded machine {_from_to(self.best)}"
        elif self.fresh:
            where = ", on a recorded machine; " if self.best else "; "
            whose = "yours" if self.best and not self.tried else "the slow script"
            what += f"{where}{whose} is not timed {'here ' * bool(self.tried)}yet"
        elif not self.timed:
            what = f"as fast as the slow script{clear}"
        else:
            what += f", estimated{clear}"
        kept = "if you keep it; " if self.latest and self.latest.counts else ""
        return f"{what}; {kept}{self.tried} of {len(SWITCHES)} switches tried."

    def caution(self) -> str:
        """Why the estimate may be wrong, and what stands against it; empty where nothing does."""
        texts = []
        if self.disturbed:
            texts.append(DISTURBED)
        best = self.best
        if best and self.timed and self.steps[0].after > FAR_ABOVE * best.seconds():
            took = duration(best.seconds())
            texts.append(f"The recorded machine, {_whose(best)}, took {took} for the slow script.")
        return " ".join(texts)

    def of_your_script(self) -> str:
        """``about 12 s``: what the script is likely to take with all that is kept, or took last."""
        if self.run:
            return f"{duration(self.run.seconds)} when it ran last"
        kept = [step for step in self.steps if not step.undecided][-1].after
        return f"about {duration(kept)}" if self.timed and math.isfinite(kept) else ""

    def command(self) -> str:
        """What measures a switch that had too little time; for who has no button."""
        if not (self.needs and self.armed):
            return ""
        return (
            f"It needs about {self.needs} minutes: board({self.armed!r}, minutes={self.needs}), or "
            f"python -m course board {self.armed} --minutes {self.needs}"
        )

    @property
    def ran(self) -> Run | None:
        """The run that the headline is of: with what is kept, and nothing left to decide."""
        return None if self.latest else self.run

    @property
    def counted(self) -> list[Figure]:
        """The figures that the estimate rests on, since the script ran last."""
        return [step.figure for step in self._since if step.figure and step.figure.counts]

    @property
    def _since(self) -> tuple[Step, ...]:
        """The steps since the script ran last; all of them before that."""
        names = [step.name for step in self.steps]
        return self.steps[names.index(RAN) :] if RAN in names else self.steps

    @property
    def provisional(self) -> Provisional:
        """What is open of what is kept; nothing where a run or a missed target tells it all."""
        kept = [step for step in self.steps if step.figure and not step.undecided]
        since = [step.figure for step in kept if step in self._since and step.figure]
        last = math.inf if self.ran and self.timed else (kept or self.steps)[-1].after
        missed = self.ran is not None and math.isinf(self.ran.seconds)
        return provisional([] if missed or math.isinf(last) else since, len(kept))

    @property
    def unsure(self) -> bool:
        """Whether what is not clear would change what the reader has today."""
        return self.provisional.gain != 1

    @property
    def today(self) -> float:
        """What the script takes with all that is kept: as it ran, as estimated, or roughly."""
        if self.ran and self.timed:
            return self.ran.seconds
        kept = [step for step in self.steps if not step.undecided]
        return kept[-1].after / self.provisional.gain

    def today_in_words(self) -> str:
        """That, with as many digits as it has."""
        if not self.unsure:
            return self.time(self.today)
        if self.timed:
            return f"about {rough(self.today)}"
        return f"about {float(f'{1 / self.today:.2g}'):g}×"

    @property
    def is_rough(self) -> bool:
        """Whether the whole is: by a figure that says little, or is on top of what is out now."""
        names = {step.name for step in self.steps}
        return any(is_rough(each) or not names.issuperset(each.on_top_of) for each in self.counted)

    @property
    def fresh(self) -> bool:
        """Whether nothing is known of this machine yet."""
        return len(self.steps) == 1 and not self.timed

    @property
    def by_memory(self) -> bool:
        """Whether the peak of the last step stands in the headline."""
        return self.saves == "memory" and math.isfinite(self.steps[-1].peak)

    def about(self) -> str:
        """What is to be decided, or can be measured."""
        if self.latest is not None:
            # What others found comes after what was found here: it was bet on.
            return f"{self.latest.switch} {advice(self.latest)} {self.elsewhere}".strip()
        if self.decided:
            return decided_in_words(self.decided)
        if self.armed:
            parts = [f"{self.armed}: {SWITCHES[self.armed].text}.", self.known, self.doubt]
            return " ".join(filter(None, parts))
        return ""

    @property
    def stars(self) -> Stars:
        """Those of the best run; where the slow script was not timed there are none."""
        kept = [step for step in self.steps if not step.undecided]
        slow, last = kept[0].after, kept[-1]
        won = self._times(self.fastest.seconds if self.fastest else math.nan)
        before = won if math.isnan(self.earlier) else self._times(self.earlier)
        best = self.best.seconds() / self.best.best()[0] if self.best else math.nan
        return Stars(won, before, best, slow / last.after, self._why_no_star(won))

    def _why_no_star(self, gain: float) -> str:
        """Why no run has won one, and what to do; empty where one has, and before any."""
        run = self.fastest
        if run is None or gain >= 2:
            return ""
        if math.isinf(run.seconds):
            return f"your script has not reached {TASK.target:.0%}: try other switches, then run it"
        quiet = "when nothing else runs"
        if not self.timed:
            how = "timed beside other programs" if self.disturbed else "not timed yet"
            return f"the slow script was {how}: run yours again {quiet}, which times both anew"
        times = f"{format_factor(gain)} times as fast as" if gain > 1 else "no faster than"
        beside = ", beside other programs," * run.disturbed
        what = f"run it again {quiet}" if run.disturbed else "keep what is faster, and run it again"
        return f"your best run{beside} is {times} the slow script: {what}"

    def _times(self, seconds: float) -> float:
        """How many times as fast as the slow script; 1 where that is not known, or it is slower."""
        if not self.timed or not seconds < self.steps[0].after:
            return 1.0
        return self.steps[0].after / seconds

    def still_in_words(self) -> str:
        """The switches that are likely to bring most."""
        named = [each.switch for each in self.ahead]
        return f"{STILL}: {', '.join(named)}." if named else ""

    def notes(self) -> list[str]:
        """How all this is known."""
        notes = [UNTIMED]
        if math.isfinite(self.rate):
            beside = ", beside other programs" if self.disturbed else ""
            notes = [f"Here it trains on {format_rate(self.rate, 'images')}{beside}"]
            takes = f", so {self.time(self.steps[0].after)} in all" if self.timed else ""
            notes[0] += f"{takes}. {FACTORS}"
        notes.insert(0, self._script())
        notes.append(self.whole())
        notes += [f"{sentence(step.figure)}." for step in self.steps if step.figure]
        if self.not_kept:
            tried = "; ".join(f"{each.switch}, {in_short(each)}" for each in self.not_kept)
            notes.append(f"Tried and not kept: {tried}.")
        if self.fastest:
            took, which = duration(self.fastest.seconds), ", ".join(self.fastest.switches)
            notes.append(f"Your best run, {self.fastest.date}: {took}, with {which}.")
        if self.best:
            seconds, switches = self.best.best()
            many = f"{len(switches)} of the {len(SWITCHES)} switches"
            notes.append(f"The best recorded, {duration(seconds)}, has {many} on.")
        return [note for note in [*notes, self.beside] if note]

    def _script(self) -> str:
        """What is trained, on what, and how often until the target."""
        script = SCRIPT.format(
            images=TASK.images, batch=batch_size(frozenset()), validation=TASK.validation
        )
        total = images_to_target()
        whose = f" (the median of {len(self.best.of())} recorded seeds)" if self.best else ""
        told = TOTAL.format(
            passes=total / TASK.images, target=TASK.target, whose=whose, total=total
        )
        return f"{script} {told}".strip()

    def whole(self) -> str:
        """What all steps bring together, as far as it is known."""
        figures = [step.figure for step in self.steps if step.figure]
        counted = [figure for figure in figures if figure.counts]
        out = [f"{each.switch}: {in_short(each)}" for each in figures if not each.counts]
        texts = []
        if counted and math.isfinite(self.steps[-1].after):
            about = "about " if self.is_rough else ""
            factor = format_factor(self.steps[0].after / self.steps[-1].after)
            texts.append(f"Together: {about}{factor}x.")
            if any(step.name == RAN for step in self.steps):
                product = format_factor(math.prod(figure.gain for figure in counted))
                texts.append(
                    f"Their factors alone make {product}x: a run may need more or fewer passes "
                    "over the photographs than the slow script's median."
                )
        if out:
            texts.append(f"Without a clear factor: {'; '.join(out)}.")
        return " ".join(texts)

    def time(self, value: float) -> str:
        """Seconds, or how many times as fast as the slow script."""
        if self.timed:
            return duration(value)
        return "?" if len(self.steps) == 1 else speed_in_words(value)

    def best_in_words(self, best: Machine) -> tuple[str, str]:
        """The best recorded time, in the unit of the others; whose, when, and from what."""
        seconds, _ = best.best()
        slow = best.seconds()
        whose, day = _whose(best), best.date.rpartition(" to ")[2]
        if self.timed or self.fresh:
            return duration(seconds), f"{whose}, {day}; from {duration(slow)}"
        note = f"{whose}, {day}; {duration(seconds)} in place of {duration(slow)}"
        return speed_in_words(seconds / slow), note


def is_rough(figure: Figure) -> bool:
    """Whether a figure says little of the whole way."""
    return figure.verdict == "unclear"


def _from_to(best: Machine) -> str:
    """What the slow script takes on a recorded machine, and the best of all."""
    return f"{duration(best.seconds())} → {duration(best.best()[0])}"


def waterfall(choices: Choices, latest: Figure | None, images: float) -> Waterfall:
    """The slow script, what was kept, then ``latest``, about which nothing is decided yet.

    ``images`` is what the slow script needs to the target.
    """
    figures = [choice.figure for choice in choices.kept]
    made = {name: choice for name, choice in choices.made.items() if name in SWITCHES}
    left = [choice.figure for choice in made.values() if not choice.kept]
    if latest is not None:
        figures = [each for each in figures if each.switch != latest.switch] + [latest]
        left = [each for each in left if each.switch != latest.switch]
        choices = choices.timed_by(latest)
    rate = choices.rate
    seconds = images / rate if choices.sure else 1.0
    found = [Step(SLOW, seconds, seconds)]
    names = [figure.switch for figure in figures if figure is not latest]
    ran = choices.run_of_first(names) if choices.sure else None
    for number, figure in enumerate(figures):
        if ran and number == len(ran.switches):
            found.append(Step(RAN, seconds, ran.seconds))
            seconds = ran.seconds
        after = seconds / (figure.gain if figure.counts else 1)
        if figure.prevents and figure is not latest:
            after = math.inf
        found.append(Step(figure.switch, seconds, after, figure, figure is latest))
        seconds = after
    if ran and len(figures) == len(ran.switches):
        found.append(Step(RAN, seconds, ran.seconds))
    tried = len(made.keys() | {each.switch for each in figures})
    return Waterfall(
        tuple(found),
        rate,
        choices.disturbed,
        tuple(left),
        tried,
        run=choices.run,
        fastest=choices.fastest,
    )


def _whose(machine: Machine) -> str:
    return machine.name.replace("(R)", "").replace(" Processor", "")


def _question(step: Step) -> str:
    if not step.undecided or step.figure is None:
        return ""
    return "better not kept" if advised(step.figure) == LEAVE else "keep it?"


def sentence(figure: Figure) -> str:
    """What was measured of a switch, in words."""
    below = "the slow script"
    if figure.on_top_of:
        below = ", ".join(figure.on_top_of)
    text = f"{figure.switch}: {_told(figure)}"
    if figure.direction not in (figure.verdict, "same"):
        text += "; by how much is not clear yet"
    text += f", on top of {below}, {HOW[figure.mode]}{_memory(figure)}"
    if figure.stopped:
        text += "; stopped early"
    return text


def _memory(figure: Figure) -> str:
    if math.isnan(figure.memory):
        return ""
    return f"; peak memory {format_share(figure.memory)}"


def peak_in_words(step: Step) -> str:
    return format_bytes(step.peak) if math.isfinite(step.peak) else ""


def _told(figure: Figure) -> str:
    if figure.direction == figure.verdict:
        return told(figure.factor, figure.interval, figure.verdict)
    # Where the pairs agree and the interval does not tell, it is of no use.
    low, high = figure.interval
    if not (high < 1 or 1 < low <= high < math.inf):
        return f"{factor_in_words(figure.factor)}, {pairs_in_words(figure)}"
    return told(figure.factor, figure.interval, pairs_in_words(figure))


def decided_in_words(choice: Choice) -> str:
    """``as_tensor: 1.04x unclear, not counted. Not kept.``"""
    figure = choice.figure
    return f"{figure.switch}: {in_short(figure)}. {'Kept' if choice.kept else 'Not kept'}."


def speed_in_words(value: float) -> str:
    """``0.5`` -> ``2.00×``; ``1`` -> ``1×``: of a part of the slow script's time, the speed."""
    if math.isinf(value):
        return NOT_REACHED
    return "1×" if value == 1 else f"{format_factor(1 / value)}×"


def rough(seconds: float) -> str:
    """``23 min``: in whole numbers."""
    return f"{seconds / 60:.0f} min" if 120 <= seconds < 6000 else duration(seconds)


def duration(seconds: float) -> str:
    """``8.8 s``, ``88 s``, ``17.5 min``, ``3.8 h``; nan -> ``?``, infinite -> ``not reached``."""
    if math.isnan(seconds):
        return "?"
    if math.isinf(seconds):
        return NOT_REACHED
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"
