"""A stop watch with the interface of Dive into Deep Learning's ``d2l.Timer`` (section 12.5) that
can wait for a GPU.
"""

from __future__ import annotations

import time
from itertools import accumulate

from labkit.device import synchronize


class Timer:
    """Record several running times, in seconds, on a monotonic clock.

    It starts on creation; ``with Timer() as timer:`` times a block. ``Timer(sync=True)`` waits for
    the accelerator before each reading. Without it, a timer around GPU work measures how long it
    took to *queue* that work, as d2l's own class does. ``times`` has the seconds of each `stop`;
    `avg` raises ValueError while there are none.

    >>> timer = Timer()
    >>> total = sum(range(1000))
    >>> seconds = timer.stop()
    >>> seconds > 0 and timer.times == [seconds]
    True
    """

    def __init__(self, *, sync: bool = False) -> None:
        self.times: list[float] = []
        self.sync = sync
        self.start()

    def start(self) -> None:
        """Start, or start again."""
        if self.sync:
            synchronize()
        self._begin = time.perf_counter()

    def stop(self) -> float:
        """Record the seconds since the last start and return them."""
        if self.sync:
            synchronize()
        self.times.append(time.perf_counter() - self._begin)
        return self.times[-1]

    def avg(self) -> float:
        """Mean of the recorded times. Raises ValueError when nothing was recorded."""
        if not self.times:
            raise ValueError("Timer.avg(): nothing was recorded yet; call stop() first")
        return sum(self.times) / len(self.times)

    def sum(self) -> float:
        """Sum of the recorded times."""
        return sum(self.times)

    def cumsum(self) -> list[float]:
        """Running sum of the recorded times."""
        return list(accumulate(self.times))

    def __enter__(self) -> Timer:
        self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()
