"""A program is watched while it runs as it is: `watch` around a block, or `start` in one line.

A thread looks, every 2 to 100 milliseconds, at which line the program is. A look takes some 10
microseconds, but the two threads change places for it, which costs a program of small operators 300
to 400. So the looks begin close together, and are soon far apart. Torch's operators release the
interpreter's lock, so that the thread gets its turn while they run. A look counts for the time
since the last one, not for one: where the lock is held for longer, the line that held it gets that
time. Nothing is called in the thread that is looked at.
"""

from __future__ import annotations

import atexit
import contextvars
import math
import multiprocessing
import sys
import threading
import time
import weakref
from typing import Any

from labkit import show
from labkit.comparing import budget
from whyslow.report import Report
from whyslow.shares import Tally
from whyslow.stacks import START, stack_of_thread

# Seconds between two looks, at first and at most; of the seconds so far, after which share.
FIRST, MOST = 0.002, 0.1
SHARE = 1 / 100


class Watch:
    """``with whyslow.watch():`` around a loop; what was found is shown at the end of the block.

    It looks at the line that runs, every 2 to 100 ms, and changes nothing. It ends by itself after
    ``seconds`` of the program's work, while the program goes on; else with the block, also with one
    that fails. `report` is what was found by then; ``show=False`` leaves it to the caller.
    ValueError or TypeError for a budget that is none.
    """

    def __init__(self, *, seconds: float | None = None, show: bool = True) -> None:
        longest = math.inf if seconds is None else budget(seconds)
        self._tally, self._ended, self._why = Tally(), threading.Event(), ""
        self._shows, self._place = show, None
        # Who takes it shows the report: the sampler's own thread, or the program's.
        self._unshown = threading.Lock()
        # What is shown at the end belongs to the cell that has started it. Once nobody has this
        # object, as after an interrupt, the looks end, too.
        looks = _look, threading.get_ident(), self._tally, self._ended, longest
        args = *looks, weakref.WeakMethod(self.stop)
        run = contextvars.copy_context().run
        self._thread = threading.Thread(target=run, args=args, name="whyslow", daemon=True)

    def start(self) -> Watch:
        """Begin to watch the thread that has made it."""
        if self._shows:
            self._place = _place_in_a_notebook()
        self._thread.start()
        return self

    def stop(self, ended: str = "") -> Report:
        """End it, and show what was found, if that was not done yet; ``ended`` says by what."""
        self._why = self._why or ended
        self._ended.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()
        report = self.report
        if self._shows and self._unshown.acquire(blocking=False):
            if self._place is None:
                print(f"\n{report}\n", file=sys.stderr, flush=True)
            else:
                self._place.update(report)
        return report

    @property
    def report(self) -> Report:
        """What was found until now."""
        return Report(self._tally, self._why)

    __enter__ = start

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.stop(kind.__name__ if kind else "")


def start(*, seconds: float | None = 20.0) -> Watch:
    """Watch from here on: one line at the top of a script, or in a cell before the training.

    It ends by itself after ``seconds`` of the program's work, and shows what was found; or at the
    end of the program. In a worker process, which runs the script's top again, it does nothing.
    """
    watch = Watch(seconds=seconds)
    if multiprocessing.current_process().name == "MainProcess":
        watch.start()
        atexit.register(lambda: watch.stop(getattr(getattr(sys, "last_type", 0), "__name__", "")))
    return watch


def _look(
    thread: int, tally: Tally, ended: threading.Event, seconds: float, stop: weakref.WeakMethod[Any]
) -> None:
    """Look at a thread until that is ``ended``, or has worked for ``seconds``."""
    begin = last = time.perf_counter()
    worked, pause = 0.0, FIRST
    while not ended.wait(pause) and stop():
        stack = stack_of_thread(thread)
        now = time.perf_counter()
        pause = min(max(FIRST, SHARE * (now - begin)), MOST)
        if stack:
            tally.add(stack, now - begin, now - last)
            # Imports are over sooner or later: the budget is for what comes then.
            worked += 0.0 if START in stack else now - last
        last = now
        if worked >= seconds and (stops := stop()):
            stops()


def _place_in_a_notebook() -> Any:
    """Where a cell's output will show the report; None in a script."""
    if "ipykernel" not in sys.modules:
        return None
    from IPython.core.getipython import get_ipython
    from IPython.display import display

    in_kernel = getattr(get_ipython(), "kernel", None) is not None
    return display(show.note("watching ..."), display_id=True) if in_kernel else None
