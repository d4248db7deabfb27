"""What a run does before it measures: told to who watches it, and given up where it is stopped.

To start a process, to build a side and to warm it up takes seconds to minutes, in which there is
no figure to show. Between two of these stages, and while a process is waited for, a run may end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

STARTING = "Starting a fresh process (it loads PyTorch)"
BUILDING = "Building"
WARMING = "Warming up"
RECORDING = "Recording one step"


class Halted(Exception):
    """The run was stopped before it measured anything of what it was preparing."""


@dataclass(frozen=True)
class Stage:
    """What a run prepares at the moment, in words."""

    words: str


OnStage = Callable[[Stage], None]


@dataclass(frozen=True)
class Stages:
    """Tells ``tell`` of each stage; raises `Halted` once ``stop`` is set."""

    tell: OnStage | None = None
    stop: threading.Event | None = None
    side: str = ""

    def of(self, number: int, count: int) -> Stages:
        """Those of one side, by its place among all of them, counted from 1."""
        return replace(self, side=f", side {number} of {count}")

    def enter(self, what: str) -> None:
        """A stage begins."""
        self.check()
        if self.tell is not None:
            self.tell(Stage(f"{what}{self.side}"))

    def check(self) -> None:
        """Halted where the run is to end."""
        if self.stop is not None and self.stop.is_set():
            raise Halted


# For who neither watches nor stops.
UNWATCHED = Stages()
