"""The turn to measure: one thread of a process has it, since two would time each other."""

from __future__ import annotations

import threading


class Busy(RuntimeError):
    """Another measurement is running in this kernel. A notebook shows the message alone."""

    def _render_traceback_(self) -> list[str]:
        return [f"Busy: {self}"]


class Turn:
    """Who measures now; a thread may take the turn again, and gives it back as often."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._depth = 0
        self.holder: threading.Thread | None = None

    def take(self, thread: threading.Thread) -> None:
        """Let ``thread`` measure, which may start later. Busy while another one does."""
        with self._lock:
            if self.holder not in (None, thread):
                raise Busy(
                    "another measurement is running in this kernel; two at once would disturb "
                    "each other: wait, or press Stop on its panel, then run this again"
                )
            self.holder = thread
            self._depth += 1

    def depth_of(self, thread: threading.Thread) -> int:
        """How often ``thread`` has taken the turn and not given it back."""
        return self._depth if self.holder is thread else 0

    def give_back_to(self, depth: int, thread: threading.Thread) -> None:
        """End all that ``thread`` took beyond ``depth``; the turn of another is left alone.

        It may be called again where an interrupt struck inside.
        """
        with self._lock:
            if self.holder is thread:
                self._depth = depth
                self.holder = thread if depth else None


# The one of this process.
TURN = Turn()
