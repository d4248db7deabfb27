"""The board of a reader's speedrun: measure a switch, look at the waterfall, keep it or not."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

from course.board import recorded, store
from course.board.advice import after_keeping
from course.board.buttons import Buttons
from course.board.measure import (
    NoFigure,
    Tell,
    TooSlow,
    machine_name,
    measure,
    minutes_in_words,
    on_top_of,
    promised,
    run_script,
    seconds_at_most,
)
from course.board.outlook import doubt, lacking, lent, likely
from course.board.page import html
from course.board.rate import Beside, Rate, images_per_second
from course.board.store import NEAR, BoardError, Choice, Choices, Figure, Run
from course.board.waterfall import Waterfall, decided_in_words, duration, waterfall
from course.switches import EARLY_ON, SWITCHES, TASK, checked
from labkit.device import test_size
from labkit.panel import guess
from labkit.text import format_rate

# Seconds for the slow script where it has to be timed beside a switch.
AGAIN = 3.0


def board(
    switch: str | None = None,
    *,
    seconds: float | None = None,
    whole: bool = False,
    minutes: float | None = None,
    rate: float | None = None,
) -> Board:
    """The reader's speedrun: its goal, what was kept, and a button that measures ``switch``.

    Given ``seconds``, a budget for the measuring proper, the cell itself measures; a race takes one
    seed at least. ``minutes`` is what all of it may take, where the script is too slow for the
    minute of the button. ``whole`` races to the target of the task on five seeds: minutes to an
    hour. An interrupt shows what there is by then. ``rate`` is the slow script's,
    `images_per_second()`: it is noted for later boards, as long as no switch was timed on it.
    ValueError for an unknown switch, and for minutes that are not above 0.
    """
    found = Board(switch, rate)
    if switch is not None and (whole or seconds is not None or minutes is not None):
        found.measure(seconds, whole, minutes)
    return found


class Board:
    """The reader's choices on this machine, and the latest figure of one switch.

    Shown in a notebook it has buttons, which call `start`, `keep`, `leave` and `undo`. Whatever is
    wrong with the reader's file stands in ``said``; figures and choices then stay in this object,
    and the next choice tries to save them again.
    """

    def __init__(self, switch: str | None = None, rate: float | None = None) -> None:
        if switch is not None:
            checked([switch])
        self.switch = switch
        self.machine = machine_name()
        self.path = None if _for_tests() else store.board_path()
        self.choices, self.said = Choices(), ""
        # What is wrong with the reader's file.
        self._trouble = ""
        self.latest: Figure | None = None
        # Minutes that the switch is likely to need, where it had too little time.
        self.needs = 0
        # The best seconds before the latest run.
        self._earlier = math.nan
        self._unsaved: list[Choice] = []
        # What the latest choice changed, and what was there before.
        self._undo: tuple[Choice, Choices] | None = None
        self._buttons: Buttons | None = None
        self._read()
        if rate:
            notice = rate.notice if isinstance(rate, Rate) else ""
            self._note(rate, bool(notice))
            self.said = f"{self.said} {notice}".strip()

    def _read(self) -> None:
        """The choices as they are in the reader's file: another notebook may have made some."""
        if self.path is None or self._unsaved:
            return
        try:
            self.choices, self._trouble = store.read(self.path, self.machine), ""
        except BoardError as error:
            self.said = self._trouble = str(error)

    def _note(self, rate: float, disturbed: bool) -> None:
        """Keep the slow script's rate, here and in the reader's file."""
        if not math.isfinite(rate):
            return
        before, self.choices = self.choices, self.choices.with_rate(rate, disturbed)
        if self.path is None or self._trouble or self.choices == before:
            return
        try:
            store.change(
                self.path, self.machine, lambda choices: choices.with_rate(float(rate), disturbed)
            )
        except BoardError as error:
            self.said = self._trouble = str(error)

    def measure(
        self,
        seconds: float | None = None,
        whole: bool = False,
        minutes: float | None = None,
        *,
        stop: threading.Event | None = None,
        tell: Tell | None = None,
    ) -> None:
        """Measure the switch on top of those that were kept.

        The figure is saved as not kept, until it is. Where the slow script's rate is unknown or was
        disturbed it is timed first, and saved.
        ``minutes`` is what all may take, ``stop`` and ``tell`` as for
        `course.board.measure.measure`. ValueError without a switch, and for minutes that are not
        above 0.
        """
        if self.switch is None:
            raise ValueError("name the switch: board('data_loading') measures one")
        if minutes is not None and not minutes > 0:
            raise ValueError(f"minutes={minutes!r}: a number above 0, such as 5")
        if tell is None:
            promise = promised(self.switch, seconds, whole, minutes)
            print(f"Training without and with {self.switch}: {promise}")
        self._read()
        before = self.latest, self._undo
        self.latest, self._undo, self.said, self.needs = None, None, self._trouble, 0
        most = math.inf
        if minutes is not None:
            most = 60 * minutes
        elif seconds is None and not whole:
            most = seconds_at_most(self.switch)
        beside, rate = Beside(), math.nan
        try:
            left = most - self._time_slow_script(whole, stop, tell)
            self.latest = measure(
                self.switch,
                self.choices.below(self.switch),
                seconds,
                whole,
                left,
                stop=stop,
                tell=tell,
            )
        except KeyboardInterrupt:
            self.said = (
                f"{self.switch} was interrupted before there was a figure; nothing has changed."
            )
        except TooSlow as error:
            self.needs, rate = error.minutes, error.rate
            short = minutes_in_words(most / 60)
            self.said = f"{self.switch} was not measured: it needs more than {short} here."
        except NoFigure as error:
            rate = error.rate
            self.said = f"{self.switch} was not measured: {error}. Nothing has changed."
        stopped = stop is not None and stop.is_set() and self.latest is None
        self._conclude(rate, "" if stopped else beside.notice())
        if self.latest is None and not self.needs:
            # What was found before stands.
            self.latest, self._undo = before

    def _conclude(self, rate: float, notice: str) -> None:
        """Note what was found while other programs worked, if ``notice`` says so."""
        before = self.choices.rate
        self._note(rate, bool(notice))
        if self.latest is not None:
            self.latest = replace(self.latest, disturbed=bool(notice))
            if self.latest.direction != "unclear":
                # What is clear although others worked is clear.
                notice = ""
            self._remember(self.latest)
        self.said = f"{self.said} {notice} {_timed_anew(before, self.choices.rate)}".strip()

    def _remember(self, figure: Figure) -> None:
        """Save a figure as not kept; of a switch that is kept only a choice changes something."""
        if figure.switch in self.choices.switches:
            return
        found = Choice(figure, kept=False)
        if not self._save(lambda choices: choices.with_choice(found)):
            self._unsaved.append(found)

    def _time_slow_script(
        self, whole: bool, stop: threading.Event | None, tell: Tell | None
    ) -> float:
        """Time it where its rate is not sure and the switch is measured on top of others.

        The seconds that it took.
        """
        begin = time.monotonic()
        switch = self.switch
        below = on_top_of(switch, self.choices.below(switch), whole) if switch else ()
        if below and not self.choices.sure:
            self._time(stop, tell)
        return time.monotonic() - begin

    def _time(self, stop: threading.Event | None, tell: Tell | None) -> None:
        """Time the slow script, and note its rate."""
        rate = images_per_second(AGAIN, stop=stop, tell=tell)
        self._note(rate, bool(rate.notice))

    def run(self, *, stop: threading.Event | None = None, tell: Tell | None = None) -> None:
        """Train the script with all that is kept to the target, once: stars are for what it takes.

        The slow script is timed first where its rate is not sure. ``stop`` and ``tell`` as for
        `measure`. ValueError where nothing is kept.
        """
        self._read()
        switches = self.choices.switches
        if not switches:
            raise ValueError("nothing is kept yet: measure a switch, and keep it")
        self.latest, self._undo, self.said, self.needs = None, None, self._trouble, 0
        beside = Beside()
        try:
            if not self.choices.sure:
                self._time(stop, tell)
            before = self.waterfall
            seconds, passes = run_script(switches, stop=stop, tell=tell)
        except (KeyboardInterrupt, NoFigure) as error:
            self.said = f"Your script did not run to its end: {error}".rstrip(": ") + "."
            return
        notice = beside.notice()
        run = Run(switches, seconds, date.today().isoformat(), bool(notice))
        fastest = self.choices.fastest
        self._earlier = fastest.seconds if fastest else math.inf
        told = (
            f"Your script reached {TASK.target:.0%} in {duration(seconds)} and "
            f"{'one pass' if passes == 1 else f'{passes} passes'} over the photographs. "
            "Another run may need more or fewer."
        )
        if before.run is None and (estimate := before.of_your_script()):
            told += f" The estimate was {estimate}."
        if math.isinf(seconds):
            told = f"Your script did not reach {TASK.target:.0%}. {_what_may_help(switches)}"
        self._save(lambda choices: choices.with_run(run))
        self.said = " ".join(filter(None, [told, notice, self.said]))

    def _save(self, how: Callable[[Choices], Choices]) -> bool:
        """Change what was measured, here and in the reader's file; whether it is saved."""
        self.choices, saved = how(self.choices), True
        if self.path is None:
            return saved
        try:
            self.choices, notice = store.change(self.path, self.machine, how)
        except BoardError as error:
            notice, saved = str(error), False
            self._trouble = notice
        if notice not in self.said:
            self.said = f"{self.said} {notice}".strip()
        return saved

    # -------------------------------------------------------------------------------- choices

    def choose(self, switch: str) -> None:
        """Take another switch; what was measured of the last one is saved. ValueError for an
        unknown one.
        """
        checked([switch])
        self.switch = switch
        self.latest, self._undo, self.said, self.needs = None, None, self._trouble, 0
        self._earlier = math.nan
        self._read()

    def keep(self) -> None:
        """Keep the latest switch: later ones are measured on top of it. ValueError without one."""
        self._choose(kept=True)

    @property
    def left(self) -> Figure | None:
        """What was measured of the switch earlier, and not kept."""
        choice = self.choices.made.get(self.switch or "")
        open_ = self.latest is None and choice is not None and not choice.kept
        return choice.figure if choice is not None and open_ else None

    def keep_after_all(self) -> None:
        """Keep the switch by its earlier figure. ValueError where there is none."""
        self.latest = self.left or self.latest
        self._choose(kept=True)

    def leave(self) -> None:
        """Do not keep it; the figure is kept all the same."""
        self._choose(kept=False)

    def take_out(self) -> None:
        """Keep the switch no longer; its figure stays known. ValueError where it is not kept."""
        choice = self.choices.made.get(self.switch or "")
        if choice is None or not choice.kept:
            raise ValueError(f"{self.switch} is not kept")
        left, before = Choice(choice.figure, kept=False), self.choices
        if not self._change(lambda choices: choices.with_choice(left), "Taken out"):
            self._unsaved.append(left)
        self._undo = left, before
        self.said = f"{self.said} {lacking(self.choices.switches)}".strip()
        self._show_again()

    def undo(self) -> None:
        """Take the latest choice back: the file has what it had before. ValueError without one."""
        if self._undo is None:
            raise ValueError("there is no choice to undo")
        choice, before = self._undo
        self._unsaved = [each for each in self._unsaved if each is not choice]
        there = True

        def back(choices: Choices) -> Choices:
            nonlocal there
            there = choices.has(choice)
            return choices.undone(choice, before)

        self._change(back, "Undone")
        if not there:
            self.said = (
                f"Not undone: another notebook has chosen {choice.figure.switch} anew since."
            )
        self._undo = None
        self._show_again()

    def _choose(self, kept: bool) -> None:
        if self.latest is None:
            raise ValueError("no switch was measured: board('data_loading', minutes=1) does it")
        if self._undo and self._undo[0].figure is self.latest:
            self.undo()
        choice, before = Choice(self.latest, kept), self.choices
        self._unsaved = [
            each for each in self._unsaved if each.figure.switch != choice.figure.switch
        ]
        self._unsaved.append(choice)

        def add(choices: Choices) -> Choices:
            nonlocal before
            before = choices
            for each in self._unsaved:
                choices = choices.with_choice(each)
            return choices

        if self._change(add, "Kept" if kept else "Not kept"):
            self._unsaved.clear()
        self._undo = choice, before
        if kept:
            self.said = f"{self.said} {after_keeping(choice.figure, self.choices.switches)}".strip()
        self._show_again()

    def _change(self, how: Callable[[Choices], Choices], word: str) -> bool:
        """Change the choices, here and in the reader's file; whether it is saved."""
        if self.path is None:
            self.choices, self.said = (
                how(self.choices),
                f"{word}. In the test size nothing is saved.",
            )
            return True
        try:
            self.choices, notice = store.change(self.path, self.machine, how)
        except BoardError as error:
            self.choices = how(self.choices)
            self.said = f"{word} in this cell, but not saved. {error}"
            return False
        self.said = f"{word}, in {store.shown(self.path)}. {notice}".strip()
        return True

    @property
    def unsaved(self) -> bool:
        """Whether a choice could not be written to the reader's file."""
        return self.path is not None and bool(self._unsaved)

    @property
    def undecided(self) -> bool:
        """Whether there is a figure about which nothing was decided yet."""
        decided = self._undo and self._undo[0].figure is self.latest
        return self.latest is not None and not decided

    @property
    def undoable(self) -> bool:
        """Whether there is a choice to take back."""
        return self._undo is not None

    # ---------------------------------------------------------------------------------- shown

    @property
    def waterfall(self) -> Waterfall:
        """The steps as they are now."""
        latest = self.latest if self.undecided else None
        found = waterfall(self.choices, latest, recorded.images_to_target())
        named: dict[str, Any] = {"needs": self.needs, "earlier": self._earlier}
        if self.switch is not None:
            named["saves"] = SWITCHES[self.switch].saves
            if self.latest is None:
                named |= {"armed": self.switch, "doubt": self.doubt, "known": self._known()}
            elif not self._bet_waits:
                named["beside"] = recorded.beside(self.switch)
                named["elsewhere"] = recorded.in_short(self.switch)
        if self._undo is not None and not self.undecided:
            named["decided"] = self._undo[0]
        # What was left open may be tried again.
        tried = {
            name
            for name, choice in self.choices.made.items()
            if choice.kept or choice.figure.direction != "unclear"
        }
        ahead = likely({*tried, self.switch or ""}, self.choices.switches)
        return replace(found, said=self.said, best=recorded.nearest(), ahead=ahead, **named)

    @property
    def _bet_waits(self) -> bool:
        """Whether the reader has a bet that is not decided: what others found would spoil it."""
        wager = self._buttons.wager if self._buttons is not None else None
        return wager is not None and wager.waits

    def _known(self) -> str:
        """What was found of the switch before, and what its race lends both sides."""
        if self.switch is None:
            return ""
        choice = self.choices.made.get(self.switch)
        known = f"So far: {decided_in_words(choice)}" if choice else ""
        return f"{known} {lent(self.switch, self.choices.switches)}".strip()

    @property
    def doubt(self) -> str:
        """What speaks against the switch on this machine, before it is measured."""
        return doubt(self.switch, self.choices.switches) if self.switch else ""

    def __str__(self) -> str:
        return str(self.waterfall)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html(self.waterfall)

    def _ipython_display_(self) -> None:
        if self._buttons is not None:
            self._buttons.close()
        self._buttons = Buttons(self)
        self._buttons.open()

    def _show_again(self) -> None:
        if self._buttons is not None:
            self._buttons.refresh()
        # The end of a notebook shows the speedrun, too.
        guess.SCORE.changed()

    # --------------------------------------------------------------------------- in the background

    def start(self, minutes: float | None = None) -> None:
        """Measure the switch in a thread, as its button does; a cell that begins ends it.

        ``minutes`` as for `measure`. RuntimeError while anything measures in this process,
        ValueError without a switch.
        """
        if self.switch is None:
            raise ValueError("name the switch: board('data_loading') measures one")
        if self._buttons is None:
            self._buttons = Buttons(self)
        self._buttons.start(minutes)

    def wait(self, timeout: float | None = None) -> None:
        """Wait for what `start` began; raise what ended it, TimeoutError after so many seconds."""
        if self._buttons is not None:
            self._buttons.wait(timeout)


def _timed_anew(before: float, now: float) -> str:
    """That the slow script's rate is another one than was shown; empty where it is about that."""
    if not max(before / now, now / before) > NEAR:
        return ""
    rate = format_rate(now, "images")
    was = format_rate(before, "images")
    return f"The slow script was timed again, beside the switch: {rate}, where it was {was}."


def _what_may_help(switches: Sequence[str]) -> str:
    """What to do where the target was not reached."""
    if needs := lacking(switches):
        return needs
    if missing := [name for name in EARLY_ON if name not in switches]:
        return f"{', '.join(missing)} makes it learn early: keep it, and run again."
    return f"Take {switches[-1]} out, which was kept last, and run again."


def _for_tests() -> bool:
    """In the test size no file of the reader's is touched, unless one is named."""
    return test_size() and not os.environ.get("LABKIT_BOARD")
