"""The runs of a panel: one state, one lock, three events, and a thread that measures.

Found out in a real kernel:

- ``no_grad``, ``autocast``, the current and the default device belong to one thread: what a cell
  enters or sets does not reach the run.
- A run seeds the process's random generators and may change its default dtype. So a cell that
  begins ends the run first: `Cells` is called in the cell's thread before its first line, and
  returns when the measuring thread has put everything back.
- IPython swallows a KeyboardInterrupt in such a call and would then run the cell. `Interrupted`
  passes through, and ends the cell.
- ``Thread.join`` takes a thread for dead when an interrupt strikes meanwhile (Python 3.11), so a
  condition is waited for.
- Widgets' messages and silent requests trigger no ``pre_run_cell``.
- An exception in a callback or a thread is invisible on the page. The run keeps it, the panel shows
  it in its status line and raises it from ``wait``.
"""

from __future__ import annotations

import contextvars
import enum
import math
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import WeakSet

from IPython import get_ipython

from labkit.memory_timeline import MemoryComparison
from labkit.racing import RaceResult, RaceRun
from labkit.results import Comparison
from labkit.stages import Stage
from labkit.sweep import Progress, Sweep
from labkit.turn import TURN

Found = Comparison | Sweep | RaceResult | MemoryComparison
Result = Found | None
# What a run tells of itself while it goes on.
News = Comparison | Progress | RaceResult | RaceRun | Stage
# Takes a function for news, and the event that ends it at its next block.
Job = Callable[[Callable[[News], None], threading.Event], Found]
Settings = dict[str, Any]

# Seconds that a cell waits for the end of a block before it says so.
SILENT = 0.3
# Seconds between two looks at how long a stage has taken.
SECOND = 1.0
# A cell that begins so soon after another one was waiting for its end: no reader is as quick.
AT_ONCE = 0.15

CELL_BEGAN = "Ended: another cell began. Press Run to measure again."
CELL_WAITS = (
    "A panel was measuring: this cell begins when the panel's present block has ended. "
    "Interrupt the kernel to give the cell up."
)
STOPPING = "Stopping at the next step ..."
CELL_RUNS = "A cell is running: it and a measurement would disturb each other. Run when it ends."
MEASURING = "This panel is measuring already. What you change applies to the next run."
OTHER_MEASURES = "Another panel is measuring; two at once disturb each other. Wait, or press Stop."


class State(enum.Enum):
    """What a panel does now; STOPPING: the run ends at its next block."""

    IDLE = enum.auto()
    RUNNING = enum.auto()
    STOPPING = enum.auto()


class Interrupted(BaseException):
    """The kernel was interrupted while a cell waited for a panel: the cell does not run."""

    def _render_traceback_(self) -> list[str]:
        return ["KeyboardInterrupt: the cell did not run; the panel ends at its next block"]


class OtherMeasures(RuntimeError):
    """Another panel of this kernel is measuring."""


@dataclass(eq=False)
class Run:
    """One press of Run or Sweep: what is measured, and what came of it.

    ``budget`` is in seconds for each value, ``sides`` the settings of baseline and candidate,
    ``names`` what its scenario's bet calls them, ``swept`` the swept control, ``ended`` the
    sentence of what ended it early, ``stage`` what it prepares at the moment and since when,
    ``shown`` what the page shows of it.
    """

    job: Job
    mode: str
    budget: float
    sides: tuple[Settings, Settings]
    scenario: str | None = None
    swept: str | None = None
    names: tuple[str, str] | None = None
    number: int = 0
    position: Progress | None = None
    result: Result = None
    error: BaseException | None = None
    ended: str = ""
    stage: tuple[Stage, float] | None = None
    shown: dict[str, Any] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)


class Watcher:
    """Who is told of the runs of a panel."""

    def say(self, text: str, tone: str = "") -> None:
        """Say something; ``tone`` is "good", "bad" or nothing."""

    def begun(self, run: Run) -> None:
        """The run is about to start."""

    def show(self, run: Run, news: News) -> None:
        """A partial result: between blocks, at most five times a second."""

    def prepares(self, run: Run, stage: Stage, seconds: float) -> None:
        """What it prepares, when that begins and once a second."""

    def finish(self, run: Run, result: Found) -> str:
        """The result; what is to be said of it."""
        return ""

    def over(self, run: Run) -> None:
        """The run has ended, in whatever way."""

    def context(self) -> contextvars.Context:
        """Where its messages are sent from."""
        return contextvars.copy_context()


class _Thread(threading.Thread):
    """The thread of one run."""

    def __init__(self, runs: Runs, run: Run) -> None:
        super().__init__(name="labkit-panel", daemon=True)
        self.runs = runs
        self.measured = run

    def run(self) -> None:
        self.runs.watcher.context().run(self.runs._work, self.measured)


@contextmanager
def _ticking(tick: Callable[[], None]) -> Iterator[None]:
    """Call ``tick`` once a second: building a side may keep the measuring thread for minutes."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(SECOND):
            tick()

    clock = threading.Thread(target=run, name="labkit-panel-clock", daemon=True)
    clock.start()
    try:
        yield
    finally:
        over.set()
        clock.join()


class Runs:
    """The runs of one panel, of which at most one goes on.

    The events are `press`, `change` and `stop`. ``prepare`` makes the run that follows a change;
    ``latest`` is the newest one.
    """

    def __init__(self, watcher: Watcher, prepare: Callable[[], Run]) -> None:
        self.watcher = watcher
        self.state = State.IDLE
        self.latest: Run | None = None
        self._prepare = prepare
        self._lock = threading.RLock()
        self._idle = threading.Condition(self._lock)
        self._thread: _Thread | None = None
        # Whether a change has ended the run: then it leaves no result, and the next one follows.
        self._next = False

    # ------------------------------------------------------------------------------ the events

    def press(self, run: Run) -> None:
        """Begin a run. RuntimeError while anything measures in this process."""
        with self._lock:
            if self.state is not State.IDLE:
                raise RuntimeError(MEASURING)
            self._begin(run)

    def change(self) -> None:
        """A control was moved: end the run that goes on, and begin the next.

        A sweep goes on, and so does a run that was told to end otherwise.
        """
        with self._lock:
            if self.state is State.IDLE:
                self._begin_next()
            elif self.state is State.RUNNING and self.latest and self.latest.swept is None:
                self.state, self._next = State.STOPPING, True
                self.latest.stop.set()

    def stop(self, why: str = "") -> None:
        """End the run at its next block, and keep what it has; ``why`` is said of it later."""
        with self._lock:
            self._next = False
            if self.state is not State.IDLE and self.latest:
                self.state = State.STOPPING
                self.latest.ended = self.latest.ended or why
                self.latest.stop.set()
                self.watcher.say(STOPPING)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until nothing runs; whether that is so after ``seconds``."""
        with self._idle:
            done = self._idle.wait_for(lambda: self.state is State.IDLE, seconds)
            thread = self._thread
        if done and thread is not None:
            thread.join()
        return done

    def make_way(self) -> None:
        """End all, since a cell begins: afterwards no thread measures."""
        self.stop(CELL_BEGAN)
        if self.wait(SILENT):
            return
        print(CELL_WAITS, flush=True)
        self.wait()

    # ------------------------------------------------------------------------------ transitions

    def _begin(self, run: Run) -> None:
        """Start the thread; the lock is held."""
        # A click beside a cell, which runs in another thread.
        if CELLS.running and threading.current_thread() is not threading.main_thread():
            raise RuntimeError(CELL_RUNS)
        if measuring() is not None:
            raise OtherMeasures(OTHER_MEASURES)
        thread = _Thread(self, run)
        try:
            TURN.take(thread)
            run.number = 1 + (self.latest.number if self.latest else 0)
            self.watcher.begun(run)
            self.latest, self.state, self._thread = run, State.RUNNING, thread
            thread.start()
        except BaseException:
            # An interrupt may strike when the thread has begun: it ends like any other.
            if not thread.is_alive():
                TURN.give_back_to(0, thread)
                self._enter_idle()
            raise

    def _begin_next(self) -> None:
        """The run that a change calls for; the lock is held."""
        self._next = False
        try:
            if CELLS.running:
                raise RuntimeError(CELL_RUNS)
            self._begin(self._prepare())
        # Refused: the page is the only place where the reader sees it.
        except RuntimeError as error:
            self.watcher.say(str(error), "bad")

    def _enter_idle(self) -> None:
        self.state = State.IDLE
        self._idle.notify_all()

    # ----------------------------------------------------------------------- the thread's work

    def _work(self, run: Run) -> None:
        said = "", ""
        try:
            said = self._outcome(run)
        # Of what is to be said itself; without a reader here, wait() raises it.
        except BaseException as error:
            run.error = error
        with self._lock:
            try:
                self.watcher.say(*said)
                self.watcher.over(run)
            except BaseException as error:
                run.error = error
            finally:
                TURN.give_back_to(0, threading.current_thread())
                follows = self._next
                self._enter_idle()
                if follows:
                    self._begin_next()

    def _outcome(self, run: Run) -> tuple[str, str]:
        """Measure; the last word, and its tone."""
        context = self.watcher.context()
        try:
            with _ticking(partial(context.run, self._tick, run)):
                result = run.job(lambda news: self._show(run, news), run.stop)
            if self._next:
                return "The settings have changed ...", ""
            run.result = result
            said = self.watcher.finish(run, result)
            return run.ended or said, "good"
        # SystemExit too: nobody sees what ends a thread; wait() raises it again.
        except BaseException as error:
            # Else the traceback keeps the failed side's model and data alive.
            traceback.clear_frames(error.__traceback__)
            run.error = error
            reason = (str(error).strip() or "no message").splitlines()[0]
            return f"{type(error).__name__}: {reason} (panel.wait() shows where)", "bad"

    def _show(self, run: Run, news: News) -> None:
        with self._lock:
            if self._next:
                return
            if isinstance(news, Stage):
                run.stage = news, time.monotonic()
                self.watcher.prepares(run, news, 0.0)
                return
            run.stage = None
            if isinstance(news, Comparison):
                news = Progress(0, 1, news)
            self.watcher.show(run, news)
            if isinstance(news, Progress):
                run.position = news

    def _tick(self, run: Run) -> None:
        """Tell how long the stage has taken, while there is one."""
        with self._lock:
            if run.stage is not None and not self._next:
                stage, since = run.stage
                self.watcher.prepares(run, stage, time.monotonic() - since)


class Cells:
    """Whether a cell of this kernel runs; before one does, the panels end their runs.

    ``queued`` says that it was waiting for the one before: all cells are run, or several of them.
    """

    def __init__(self) -> None:
        self.running = self.queued = False
        self._over = -math.inf
        self._panels: WeakSet[Runs] = WeakSet()

    def add(self, runs: Runs) -> None:
        """Let a panel make way for cells; outside of IPython there are none."""
        self._panels.add(runs)
        shell = get_ipython()
        if shell is not None:
            shell.events.register("pre_run_cell", self._begins)
            shell.events.register("post_run_cell", self._ended)

    def _begins(self, info: Any) -> None:
        # Variable inspectors and the like ask the kernel without a number of their own.
        if info.silent or not info.store_history:
            return
        self.running, self.queued = True, time.monotonic() - self._over < AT_ONCE
        try:
            for runs in list(self._panels):
                runs.make_way()
        except KeyboardInterrupt:
            raise Interrupted from None

    def _ended(self, result: Any) -> None:
        if result is None or (result.info.store_history and not result.info.silent):
            self.running, self.queued, self._over = False, False, time.monotonic()


# Those of this process.
CELLS = Cells()


def measuring() -> Runs | None:
    """The runs of the panel that measures now."""
    holder = TURN.holder
    return holder.runs if isinstance(holder, _Thread) else None
