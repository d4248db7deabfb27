"""One press of Run or Sweep: a thread, its settings and budget, where it is, and what came of it.

Found out in a real kernel:

- ``no_grad``, ``autocast``, the current and the default device are of one thread: what a cell
  enters or sets does not reach the run.
- The kernel's interrupt does not end a background thread. ``lab.run()`` in a cell runs in the
  foreground and handles ``KeyboardInterrupt``.
- Widgets' messages and silent requests trigger no ``pre_run_cell``; a cell does, before its first
  line, and what is printed then is an output of that cell.
- An exception in a callback or a thread is invisible on the page. The run keeps it, the panel shows
  it in its status line and raises it from ``wait``.
"""

from __future__ import annotations

import contextvars
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from typing import Protocol

from labkit.memory_timeline import MemoryComparison
from labkit.panel import cells
from labkit.racing import RaceResult, RaceRun
from labkit.results import Comparison
from labkit.sweep import Progress, Sweep
from labkit.turn import TURN

Found = Comparison | Sweep | RaceResult | MemoryComparison
Result = Found | None
# What a run tells of itself while it goes on.
News = Progress | RaceResult | RaceRun
Job = Callable[..., Found]

# Into the cell that begins: its numbers are at stake as much as the panel's.
SAID_IN_THE_CELL = (
    "A panel is measuring in this kernel: it may repeat this cell's random numbers, change its "
    "default dtype and slow it down. Run this cell again when the panel has ended."
)


class Screen(Protocol):
    """Where a run is seen."""

    def say(self, text: str, tone: str = "") -> None:
        """Set the status line."""

    def begun(self, run: PanelRun) -> None:
        """The run is about to start."""

    def show(self, run: PanelRun, news: News) -> None:
        """Draw a partial result: called between blocks, at most five times a second."""

    def finish(self, run: PanelRun, result: Found) -> str:
        """Show and publish the result; what the status line says."""

    def disturbed(self, run: PanelRun) -> None:
        """Another cell began meanwhile."""

    def ended(self, run: PanelRun) -> None:
        """The run is over, however it ended."""


class PanelRun(threading.Thread):
    """A run in a background thread that prints to, and is shown in, the panel's cell.

    ``job`` takes ``on_update`` and ``stop``; ``budget`` is in seconds for each value, ``mode`` what
    is measured, ``swept`` the swept control. A run that is ``replaced`` by the next one leaves no
    result. ``disturbed`` says that a cell began while it measured.
    """

    def __init__(
        self,
        job: Job,
        screen: Screen,
        context: contextvars.Context,
        *,
        number: int,
        budget: float,
        mode: str = "Time",
        swept: str | None = None,
    ) -> None:
        super().__init__(name="labkit-panel", daemon=True)
        self.number = number
        self.budget = budget
        self.mode = mode
        self.swept = swept
        self.position: Progress | None = None
        self.result: Result = None
        self.error: BaseException | None = None
        self.over = False
        self.replaced = False
        self.disturbed = False
        self._job = job
        self._screen = screen
        self._context = context
        self._stop_event = threading.Event()
        self._watch = ExitStack()
        # An answer to Stop must not stand in the status line after the run's own last word.
        self._last_word = threading.Lock()

    def start(self) -> None:
        """Begin. RuntimeError while anything measures in this process."""
        try:
            TURN.take(self)
            self._screen.begun(self)
            self._watch.enter_context(cells.watched(self._cell_begins))
            super().start()
        except BaseException:
            # An interrupt may strike when the thread has begun: then it gives the turn back.
            if not self.is_alive():
                self._watch.close()
                TURN.give_back_to(0, self)
            raise

    def halt(self) -> None:
        """End the run at its next block and keep what it has."""
        with self._last_word:
            self._stop_event.set()
            if not self.over:
                self._screen.say("Stopping after this block ...")

    def replace(self) -> None:
        """End the run at its next block, and let its result go: another one comes."""
        with self._last_word:
            self.replaced = True
            self._stop_event.set()

    @property
    def halted(self) -> bool:
        return self._stop_event.is_set()

    def run(self) -> None:
        """The thread's work."""
        self._context.run(self._work)

    def _work(self) -> None:
        try:
            said, tone = self._outcome()
            with self._last_word:
                self.over = True
                self._screen.say(said, tone)
                self._screen.ended(self)
        # Of the last word itself; without a reader here, wait() raises it.
        except BaseException as error:
            self.error = error
        finally:
            TURN.give_back_to(0, self)

    def _outcome(self) -> tuple[str, str]:
        """Measure; the last word, and its tone."""
        try:
            return self._measure(), "good"
        # SystemExit too: nobody sees what ends a thread; wait() raises it again.
        except BaseException as error:
            # Else the traceback keeps the failed side's model and data alive.
            traceback.clear_frames(error.__traceback__)
            self.error = error
            reason = (str(error).strip() or "no message").splitlines()[0]
            return f"{type(error).__name__}: {reason} (panel.wait() shows where)", "bad"

    def _measure(self) -> str:
        with self._watch:
            result = self._job(on_update=self._update, stop=self._stop_event)
        if self.replaced:
            return "The settings have changed ..."
        self.result = result
        return self._screen.finish(self, result)

    def _cell_begins(self) -> None:
        self.disturbed = True
        self._screen.disturbed(self)
        print(SAID_IN_THE_CELL, file=sys.stderr)

    def _update(self, so_far: Comparison | News) -> None:
        if self.replaced:
            return
        if isinstance(so_far, Comparison):
            so_far = Progress(0, 1, so_far)
        self._screen.show(self, so_far)
        if isinstance(so_far, Progress):
            self.position = so_far


def running() -> PanelRun | None:
    """The run that measures now, of whichever panel."""
    holder = TURN.holder
    if isinstance(holder, PanelRun):
        return holder
    return None
