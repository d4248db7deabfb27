"""Watch with a dispatch mode in the threads that a block starts, too.

torch keeps its stack of modes for each thread: what a thread computes, a mode in another one does
not see.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from torch.utils._python_dispatch import TorchDispatchMode, _pop_mode, _push_mode

from labkit.restore.attributes import patched

# Those that watch now, and what stands in the place of `threading.Thread.start` meanwhile.
_watching: list[TorchDispatchMode] = []
_exchanged = ExitStack()
_lock = threading.Lock()
_start = threading.Thread.start


@contextmanager
def in_started_threads(mode: TorchDispatchMode) -> Iterator[None]:
    """Python threads that any thread starts inside run in ``mode``, to their own end.

    Not those that run already, such as the workers of an older `ThreadPoolExecutor`.
    """
    with _lock:
        _watching.append(mode)
        if len(_watching) == 1:
            _exchanged.enter_context(patched(threading.Thread, "start", _start_watched))
    try:
        yield
    finally:
        with _lock:
            _watching.remove(mode)
            # Whoever came first may be the first to leave.
            if not _watching:
                _exchanged.close()


def _start_watched(thread: threading.Thread) -> None:
    """As `threading.Thread.start`, with all modes that watch now."""
    modes = tuple(_watching)
    run = thread.run

    def run_watched() -> None:
        # Else the thread and this function would keep each other alive.
        del thread.run
        # Not `with mode`: that keeps flags of the process, which other threads need as they are.
        for mode in modes:
            _push_mode(mode)
        try:
            run()
        finally:
            for _ in modes:
                _pop_mode()

    thread.run = run_watched  # type: ignore[method-assign]
    _start(thread)
