"""Run on change: a moved control starts the next run, once the reader's hand is still."""

from __future__ import annotations

import threading
from collections.abc import Callable

# Seconds without a change before a run begins: a slider passes over several values.
STILL = 0.12


class Debounced:
    """Calls ``action`` in a thread of its own, once nothing was touched for `STILL` seconds."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()

    def touch(self) -> None:
        """Begin the wait anew."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = threading.Timer(STILL, self._fire)
            self._timer.daemon = True
            self._timer.start()

    def cancel(self) -> None:
        """Forget what was touched."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None

    @property
    def waits(self) -> bool:
        """Whether something was touched, and nothing done about it yet."""
        with self._lock:
            return self._timer is not None

    def _fire(self) -> None:
        me = threading.current_thread()
        with self._lock:
            if self._timer is not me:
                return
        try:
            self._action()
        finally:
            with self._lock:
                if self._timer is me:
                    self._timer = None
