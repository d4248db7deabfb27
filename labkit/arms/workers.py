"""An arm in several workers: each does its share of every step."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from labkit.arms.protocol import Counts, Peak
from labkit.memory_timeline import Timeline
from labkit.workers import WorkerFailed, Workers

_numbers = itertools.count()


class WorkersArm:
    """An `Arm` in the first ``settings["processes"]`` workers.

    ``make`` is the name of a function that the workers' script serves. A step's time is that of the
    slowest worker, its samples those of all; the workers run in step because each does the same
    number of steps. Whatever fails in a worker raises `WorkerFailed`.
    """

    def __init__(
        self,
        workers: Workers,
        make: str,
        label: str,
        settings: dict[str, Any],
        seed: int | None = None,
    ) -> None:
        self.label, self.settings = label, settings
        self.samples, self.unit, self.device = 1.0, "samples", "cpu"
        self._workers, self._make, self._seed = workers, make, seed
        self._number = next(_numbers)
        # The processes that know this arm; none before it starts.
        self._pids: list[int] = []

    def start(self) -> float:
        """Build the workload in each worker and run the first step; the slowest one's seconds."""
        self._send("define", self._make, self.label, self.settings, self._seed, {})
        self._pids = self._workers.pids
        seconds, samples, units, devices = zip(*self._send("start"), strict=True)
        self.samples, self.unit, self.device = sum(samples), units[0], devices[0]
        return float(max(seconds))

    def block(self, steps: int) -> float:
        """Run ``steps`` steps; the slowest worker's seconds."""
        return float(max(self._ask("block", steps)))

    def check(self) -> None:
        """As `LocalArm.check`, in each worker."""
        self._ask("check")

    def peak(self) -> Peak:
        """Those of the worker that needs most; None where one of them cannot tell."""
        allocated, reserved = zip(*self._ask("peak"), strict=True)
        return _most(allocated), _most(reserved)

    def timeline(self) -> Timeline:
        """That of the first worker."""
        first: Timeline = self._ask("timeline")[0]
        return first

    def counters(self) -> Counts:
        """Those of the first worker."""
        counted: Counts = self._ask("counters")[0]
        return counted

    def release(self) -> None:
        """As `close`: the workers live on."""
        self.close()

    def close(self) -> None:
        """Release the workload in each worker; the workers live on."""
        # Workers that have ended since took the arm with them.
        if self._pids and self._pids == self._workers.pids:
            self._ask("close")

    def _ask(self, method: str, *arguments: object) -> list[Any]:
        # New workers would not know this arm.
        if self._pids != self._workers.pids:
            why = self._workers.failure or "the workers that held this arm have ended"
            raise WorkerFailed(why)
        return self._send(method, *arguments)

    def _send(self, method: str, *arguments: object) -> list[Any]:
        ranks = range(self.settings["processes"])
        return self._workers.ask(f"arm.{method}", self._number, *arguments, ranks=ranks)


def _most(sizes: Sequence[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):
        return None
    return max(known)
