"""A program is watched while it runs as it is: `watch` around a block, or `start` in one line."""

from __future__ import annotations

import atexit
import math
import multiprocessing
import sys
import threading
from typing import Any

from labkit import show
from labkit.comparing import budget
from whyslow.lines import Sampled
from whyslow.report import Report
from whyslow.sampling import Sampler


class Watch:
    """``with whyslow.watch():`` around a loop; what was found is shown at the end of the block.

    It looks at the line that runs, every 2 to 50 ms, and changes nothing. It ends by itself after
    ``seconds`` of the program's work, while the program goes on; else with the block, also with one
    that fails. `report` is what was found by then; ``show=False`` leaves it to the caller.
    ValueError or TypeError for a budget that is none.
    """

    def __init__(self, *, seconds: float | None = None, show: bool = True) -> None:
        self._sampler = Sampler(self.stop, math.inf if seconds is None else budget(seconds))
        self._ended = ""
        self._shows, self._place = show, None
        # Who takes it shows the report: the sampler's own thread, or the program's.
        self._unshown = threading.Lock()

    def start(self) -> Watch:
        """Begin to watch the thread that calls it."""
        if self._shows:
            self._place = _place_in_a_notebook()
        self._sampler.start()
        return self

    def stop(self, ended: str = "") -> Report:
        """End it, and show what was found, if that was not done yet; ``ended`` says by what."""
        self._ended = self._ended or ended
        self._sampler.stop()
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
        return Report(Sampled(self._sampler.tally), self._ended)

    def __enter__(self) -> Watch:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.stop(kind.__name__ if kind else "")

    def __repr__(self) -> str:
        return str(self.report)


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


def _place_in_a_notebook() -> Any:
    """Where a cell's output will show the report; None in a script."""
    if "ipykernel" not in sys.modules:
        return None
    from IPython.core.getipython import get_ipython
    from IPython.display import display

    in_kernel = getattr(get_ipython(), "kernel", None) is not None
    return display(show.note("watching ..."), display_id=True) if in_kernel else None
