"""The board in a notebook: what a reader can press, and a measurement that goes on meanwhile.

A measurement is a run as those of panels: in a thread, ended by a cell that begins, and never two
at once in a kernel (`labkit.panel.run`).
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol
from uuid import uuid4

import ipywidgets as W

from course.board.advice import KEEP, LEAVE, advised, wants_a_whole_race, wants_more_time
from course.board.live import Live, picture
from course.board.measure import Tell, promised, seconds_at_most
from course.board.outlook import lacking
from course.board.page import body, head
from course.board.store import Choices, Figure
from course.board.wager import Wager
from course.board.waterfall import Waterfall
from course.switches import SWITCHES, label, labelled
from labkit import show
from labkit.panel.outputs import SHOWN_IN, current_cell
from labkit.panel.run import CELLS, STOPPING, Found, Run, Runs, Watcher
from labkit.show import Markup

CELL_BEGAN = "Ended, since another cell began. Measure it again when it is done."
# Seconds between two lines of progress.
SELDOM = 1.0
# What a whole race may take about, in seconds.
HOUR = 3600.0
# Minutes for what was not clear.
LONGER = 5
ENDS = "stopping after this training step ..."
SAVED = "The figure is saved. What you keep is under all that is measured later."


class Measurable(Protocol):
    """What the buttons of a board act on, and what they show of it."""

    switch: str | None
    choices: Choices
    latest: Figure | None
    said: str
    needs: int

    @property
    def left(self) -> Figure | None: ...
    @property
    def undecided(self) -> bool: ...
    @property
    def undoable(self) -> bool: ...
    @property
    def doubt(self) -> str: ...
    @property
    def waterfall(self) -> Waterfall: ...
    def measure(
        self,
        *,
        minutes: float | None = None,
        whole: bool = False,
        stop: threading.Event | None = None,
        tell: Tell | None = None,
    ) -> None: ...
    def run(self, *, stop: threading.Event | None = None, tell: Tell | None = None) -> None: ...
    def keep(self) -> None: ...
    def keep_after_all(self) -> None: ...
    def leave(self) -> None: ...
    def choose(self, switch: str) -> None: ...
    def undo(self) -> None: ...
    def take_out(self) -> None: ...


class Clock(threading.Thread):
    """Draws the race on the page with the seconds that are left, also while an epoch is long."""

    def __init__(
        self, status: W.HTML, most: float, context: contextvars.Context, bet: str | None
    ) -> None:
        super().__init__(name="board-clock", daemon=True)
        self.live = Live()
        self._bet, self._stopping, self._part = bet, False, 0.0
        # Two threads draw: the clock's own, and the one that presses Stop.
        self._lock = threading.Lock()
        self._status, self._most, self._context = status, most, context
        self._begin, self._over = time.monotonic(), threading.Event()
        self._draw()

    def run(self) -> None:
        """Draw, each second, until `end`."""
        while not self._over.wait(SELDOM):
            self._context.run(self._draw)

    def end(self) -> None:
        """Draw nothing more: when it returns the line is free."""
        self._over.set()
        self.join()

    def stopping(self) -> None:
        """Say at once that it ends."""
        self._stopping = True
        self._draw()

    def _draw(self) -> None:
        with self._lock:
            live, passed = self.live, time.monotonic() - self._begin
            part, before = min(1.0, passed / self._most), self._part
            self._part = part
            race = picture(live, part, before, time.perf_counter())
            words = show.sentence(live.words()) if live.words() else ""
            bar = show.progress(part, self._text(live, passed))
            self._status.value = show.result(race, words, bar)

    def _text(self, live: Live, passed: float) -> str:
        if self._stopping:
            return ENDS
        # Compiling and planning come on top.
        left = f"{passed:.0f} s"
        if passed <= self._most < HOUR:
            left = f"{self._most - passed:.0f} s left at most"
        bet = f". You bet: {self._bet}" if self._bet else ""
        return f"{left}: {live.doing}{bet}"


class Buttons(Watcher):
    """Shows a board: its head, its buttons, its picture."""

    def __init__(self, board: Measurable) -> None:
        self.board = board
        self.status = W.HTML(layout=W.Layout(flex="1 1 100%"))
        self.buttons = {
            "patient": self._button("Take the time", lambda: self.start(board.needs)),
            "measure": self._button("Measure it", self.start),
            "whole": self._button("A whole race (minutes to an hour)", self.start_whole),
            "longer": self._button(
                f"Measure longer ({LONGER} minutes at most)", lambda: self.start(LONGER)
            ),
            "stop": self._button("Stop", lambda: self.runs.stop()),
            KEEP: self._button("Keep it", lambda: self._choose(board.keep)),
            "after all": self._button(
                "Keep it after all", lambda: self._choose(board.keep_after_all)
            ),
            LEAVE: self._button("Do not keep it", lambda: self._choose(board.leave)),
            "script": self._button("Run your script", self.start_script),
            "undo": self._button("Undo", board.undo),
            "out": self._button("Take it out", board.take_out),
        }
        self.wager = Wager(board.switch) if board.switch is not None else None
        self.picker = self._picker()
        self.box = W.HBox(layout=W.Layout(align_items="flex-end", flex_flow="row wrap"))
        self.runs = Runs(self, self._run)
        CELLS.add(self.runs)
        self._names = {"head": uuid4().hex, "body": uuid4().hex}
        self._shown, self._running = False, False
        # What was found before the run that goes on: it decides no bet.
        self._before: Figure | None = None
        self._minutes: float | None = None
        self._whole = self._script = False
        self._clock: Clock | None = None
        # The picture of the last measurement, as it was at its end.
        self._watched = Markup()
        self._context = contextvars.copy_context()

    # -------------------------------------------------------------------------------- shown

    def open(self) -> None:
        """Display it in this cell; what an earlier run of the cell showed is closed."""
        from IPython.display import display

        self._context = contextvars.copy_context()
        if cell := current_cell():
            SHOWN_IN.show(self, *cell)
        self._shown = True
        self._arrange()
        for name, bundle in self._bundles().items():
            if name == "body":
                display(self.box)
            display(bundle, raw=True, display_id=self._names[name])

    def refresh(self) -> None:
        """Show the board as it is now."""
        self._arrange()
        if not self._shown:
            return
        from IPython.display import update_display

        for name, bundle in self._bundles().items():
            update_display(bundle, raw=True, display_id=self._names[name])

    def close(self) -> None:
        """End what goes on, and take the widgets off the page."""
        self.runs.stop()
        bets = [self.wager.choices] if self.wager else []
        for widget in (*self.buttons.values(), *bets, self.picker, self.status, self.box):
            widget.close()

    def _bundles(self) -> dict[str, dict[str, str]]:
        found = self.board.waterfall
        return {
            "head": {"text/html": show.result(head(found)), "text/plain": str(found)},
            "body": {"text/html": show.result(body(found, self._watched)), "text/plain": ""},
        }

    def _arrange(self) -> None:
        """The buttons that mean something now, and behind them what was said last."""
        board, buttons = self.board, self.buttons
        names = self._useful()
        advice = advised(board.latest) if board.latest is not None else ""
        for name in (KEEP, LEAVE):
            buttons[name].button_style = "primary" if name == advice else ""
        if board.switch is not None:
            promise = promised(board.switch).rstrip(".")
            words = "Measure again" if board.latest is not None else "Measure it"
            buttons["measure"].description = f"{words} ({promise[0].lower()}{promise[1:]})"
            # What speaks against it has been said above.
            minor = board.doubt or board.latest is not None or board.needs
            buttons["measure"].button_style = "" if minor else "primary"
            # Short enough for a phone.
            patient = f"Take the time it needs (about {board.needs} min)"
            buttons["patient"].description = patient
            buttons["patient"].button_style = "" if board.doubt else "primary"
        took = board.waterfall.of_your_script()
        buttons["script"].description = f"Run your script ({took})" if took else "Run your script"
        # What is kept has not run yet.
        buttons["script"].button_style = "" if board.choices.run else "primary"
        if not self._running:
            self.say(labelled(board.said or self._hint()))
        self.picker.disabled = self._running
        acts = (buttons[name] for name in names)
        self.box.children = [self.picker, *self._bets(), *acts, self.status]

    def _useful(self) -> list[str]:
        """The names of the buttons that mean something now."""
        board = self.board
        if self._running:
            return ["stop"]
        names: list[str] = []
        if board.undecided:
            names = [KEEP, LEAVE, "measure"]
            if board.latest is not None and wants_a_whole_race(board.latest):
                names.append("whole")
            elif board.latest is not None and wants_more_time(board.latest):
                names[-1] = "longer"
        elif board.undoable:
            names = ["undo", "measure"]
        elif board.switch is not None:
            names = ["patient", "measure"] if board.needs else ["measure"]
            if board.left is not None:
                names.append("after all")
            if board.switch in board.choices.switches:
                names.append("out")
        if board.choices.switches and not board.undecided:
            names.append("script")
        return names

    def _hint(self) -> str:
        """What the reader should know before the next press."""
        return SAVED if self.board.undecided else lacking(self.board.choices.switches)

    def _bets(self) -> list[W.ToggleButtons]:
        """The bet, until a figure has decided it: while that is measured it stands as it is."""
        if not self.wager or not self.wager.open or (self._running and not self.wager.waits):
            return []
        self.wager.lock(self._running)
        return [self.wager.choices]

    def _picker(self) -> W.Dropdown:
        """All switches by their names on the page, the board's own one chosen."""
        options = [(label(name), name) for name in SWITCHES]
        first = [("choose one", "")] if self.board.switch is None else []
        picker = W.Dropdown(
            options=[*first, *options],
            value=self.board.switch or "",
            description="Switch:",
            layout=W.Layout(width="auto", max_width="100%"),
            style={"description_width": "auto"},
        )
        picker.observe(self._picked, "value")
        return picker

    def _picked(self, change: dict[str, Any]) -> None:
        if change["new"] in ("", self.board.switch):
            return
        given_up = self.wager.give_up() if self.wager and self.wager.waits else ""
        self.board.choose(change["new"])
        self.board.said = f"{given_up} {self.board.said}".strip()
        before, self.wager, self._watched = self.wager, Wager(change["new"]), Markup()
        self._pressed(self.refresh)
        if before is not None:
            before.choices.close()

    def _choose(self, choice: Callable[[], None]) -> None:
        """Keep or leave; a bet that no figure has decided is given up, and no secret any more."""
        if self.wager is None or not self.wager.waits:
            choice()
            return
        said = self.wager.give_up()
        elsewhere = self.board.waterfall.elsewhere
        choice()
        self.board.said = f"{said} {elsewhere} {self.board.said}".strip()
        self.refresh()

    def _button(self, text: str, call: Callable[[], None]) -> W.Button:
        button = W.Button(description=text, layout=W.Layout(width="auto"))
        button.on_click(lambda _: self._pressed(call))
        return button

    def _pressed(self, call: Callable[[], None]) -> None:
        # In the name of the cell: a button's own messages may come from a shell that is gone later.
        try:
            self.context().run(call)
        # Refused: the page is the only place where the reader sees it.
        except RuntimeError as error:
            self.say(str(error), "bad")

    # ----------------------------------------------------------------------------------- a run

    def start(self, minutes: float | None = None) -> None:
        """Begin to measure, for so many minutes at most.

        RuntimeError while anything measures in this process.
        """
        self._minutes, self._whole, self._script = minutes, False, False
        self.runs.press(self._run())

    def start_whole(self) -> None:
        """Begin a race to the target of the task."""
        self._minutes, self._whole, self._script = None, True, False
        self.runs.press(self._run())

    def start_script(self) -> None:
        """Begin to train the script with all that is kept."""
        self._minutes, self._whole, self._script = None, False, True
        self.runs.press(self._run())

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the end, and raise what ended it. TimeoutError after so many seconds."""
        if not self.runs.wait(timeout):
            raise TimeoutError(f"the board is still measuring after {timeout} s")
        if self.runs.latest is not None and self.runs.latest.error is not None:
            raise self.runs.latest.error

    def _run(self) -> Run:
        minutes, whole, script = self._minutes, self._whole, self._script
        most = HOUR
        if not (whole or script):
            most = 60 * minutes if minutes else seconds_at_most(self.board.switch or "")

        def job(_: Any, stop: threading.Event) -> Any:
            if script:
                self.board.run(stop=stop, tell=self._tell)
            else:
                self.board.measure(minutes=minutes, whole=whole, stop=stop, tell=self._tell)
            return self.board.latest

        return Run(job, "Time", most, ({}, {}))

    def _tell(self, live: Live) -> None:
        if self._clock is not None:
            self._clock.live = live

    def begun(self, run: Run) -> None:
        """The button gives way to Stop, and seconds count."""
        self._running, self._before = True, self.board.latest
        bet = None
        if self.wager and self.wager.waits and not self._script:
            bet = self.wager.choices.value
        self._clock = Clock(self.status, run.budget, self.context(), bet)
        self._clock.start()
        self._arrange()

    def finish(self, run: Run, result: Found) -> str:
        """What the board says of it."""
        return self.board.said

    def over(self, run: Run) -> None:
        """The figure, or what ended the run, and the buttons that follow."""
        if self._clock is not None:
            self._clock.end()
            self._watched = picture(self._clock.live, 1.0, 1.0, time.perf_counter())
        if run.error is None and run.ended and not self.board.undecided:
            self.board.said = CELL_BEGAN
        elif run.error is not None:
            self.board.said = f"{type(run.error).__name__}: {run.error}"
        elif self.wager and self.wager.open and self.board.latest not in (None, self._before):
            self.board.said = f"{self.wager.decide(self.board.latest)} {self.board.said}".strip()
        self._running = False
        self.refresh()

    def say(self, text: str, tone: str = "") -> None:
        """Set the line behind the buttons."""
        if text == STOPPING and self._clock is not None:
            self._clock.stopping()
            return
        colour = {"bad": "color:#d55e00;"}.get(tone, "")
        style = f"{colour}overflow-wrap:anywhere;display:block;line-height:1.5"
        self.status.value = show.element("span", text, style=style) if text else ""

    def context(self) -> contextvars.Context:
        """That of the cell which shows the board."""
        return self._context.copy()
