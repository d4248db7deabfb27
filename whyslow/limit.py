"""What may hang, and ends only itself.

Only the main thread of a program can be interrupted, by a signal of the operating system. Elsewhere
what hangs is not ended.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from labkit.restore import giving_back


@contextmanager
def limit(seconds: float, what: str) -> Iterator[None]:
    """TimeoutError when the block takes more than ``seconds``; it says ``what`` took so long."""

    def ring(number: int, frame: FrameType | None) -> NoReturn:
        late = f"{what} took longer than {seconds:g} s; patience={2 * seconds:g} waits longer"
        if frame is not None:
            late += f" (it stood in {frame.f_code.co_name}, line {frame.f_lineno})"
        raise TimeoutError(late)

    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or not hasattr(signal, "setitimer"):
        yield
        return
    before, old = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)

    def put_back() -> None:
        signal.setitimer(signal.ITIMER_REAL, *old)
        signal.signal(signal.SIGALRM, before)

    with giving_back(put_back):
        signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
