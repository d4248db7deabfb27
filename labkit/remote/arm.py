"""An arm in other processes: the protocol of `labkit.arm.Arm`, asked of children.

A process of its own is for state that cannot be swapped: cuDNN's plan cache, compiled code, a CUDA
context that has failed. It takes seconds to start, and what it compiles far longer. So peaks and
counts are taken in the process that was timed, of a workload built anew there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from labkit.arm import ArmDied, Counts, Peak
from labkit.memory_timeline import Timeline
from labkit.remote import serving
from labkit.remote.children import Children
from labkit.remote.workers import Workers
from labkit.restore.switches import torch_flags
from labkit.results import Workload
from labkit.stages import BUILDING, STARTING, UNWATCHED, Halted, Stages

Check = Callable[[], None]
# Children tell the arms that live in them apart by their numbers.
_numbers = itertools.count()


class RemoteArm:
    """An `Arm` in a process of its own, or in the first ``settings["processes"]`` workers.

    Without ``workers``, ``make`` is a function; the process has torch's switches, the number of
    threads too, as this process has them at `start`. Its death raises `ArmDied`; exceptions of the
    step come back as they are.

    With ``workers``, ``make`` may be the name of a function that their script serves, and each
    worker does its share of every step. A step's time is that of the slowest worker, its samples
    those of all. Whatever fails in a worker raises `WorkerFailed`.
    """

    def __init__(
        self,
        make: str | Callable[[], Workload],
        label: str,
        settings: dict[str, Any] | None = None,
        seed: int | None = None,
        workers: Workers | None = None,
    ) -> None:
        self.label, self.settings = label, settings or {}
        self.samples, self.unit, self.device = 1.0, "samples", "cpu"
        self._make, self._seed = make, seed
        self._own = workers is None
        self._children = workers or Children(label)
        self._ranks = range(1 if self._own else self.settings["processes"])
        self._number = next(_numbers)
        # The processes that know this arm; none before it starts.
        self._pids: list[int] = []

    def start(self, stages: Stages = UNWATCHED) -> float:
        """Build the workload there and run its first step; the slowest process's seconds.

        A process of its own starts first: RuntimeError when it does not come up, or cannot rebuild
        ``make`` from a pickle. `Halted` also while it comes up or builds, which ends it.
        """
        self._define(stages)
        stages.enter(BUILDING)
        # Workers that run already are worth more than the wait.
        meanwhile = stages.check if self._own else None
        try:
            return float(max(self._do("start", meanwhile=meanwhile)))
        finally:
            # Known also of one that is short of memory, as long as the process lives.
            if self._lives:
                samples, units, devices = zip(*self._ask(serving.about), strict=True)
                self.samples, self.unit, self.device = sum(samples), units[0], devices[0]

    def _define(self, stages: Stages) -> None:
        """Tell the processes of this arm, which start where they do not run."""
        meanwhile = None
        if not self._children.pids:
            stages.enter(STARTING)
            meanwhile = stages.check
        flags = torch_flags() if self._own else {}
        about = self._make, self.label, self.settings, self._seed, flags
        try:
            self._ask(serving.define, *about, meanwhile=meanwhile)
        except Exception as error:
            if not self._own or isinstance(error, Halted):
                raise
            raise RuntimeError(
                f"could not start {self.label!r} in a process of its own: "
                f"{type(error).__name__}: {error}"
            ) from None
        self._pids = self._children.pids

    def block(self, steps: int) -> float:
        """Run ``steps`` steps; the slowest process's seconds."""
        return float(max(self._do("block", steps)))

    def check(self) -> None:
        """As `LocalArm.check`, in each process."""
        self._do("check")

    def peak(self) -> Peak:
        """Those of the process that needs most; None where one of them cannot tell."""
        allocated, reserved = zip(*self._do("peak"), strict=True)
        return _most(allocated), _most(reserved)

    def timeline(self) -> Timeline:
        """That of the first process."""
        return self._do("timeline")[0]

    def counters(self) -> Counts:
        """Those of the first process."""
        return self._do("counters")[0]

    def release(self) -> None:
        """Release the workload in each process; the processes wait."""
        # Processes that have ended took the arm with them.
        if self._lives:
            with suppress(ArmDied):
                self._do("close")

    def close(self) -> None:
        """End a process of its own, and with it whatever it holds; workers only `release`."""
        if self._own:
            self._children.close()
        else:
            self.release()

    @property
    def _lives(self) -> bool:
        """Whether the processes that know this arm are there; others would not know it."""
        return bool(self._pids) and self._pids == self._children.pids

    def _do(self, method: str, *arguments: object, meanwhile: Check | None = None) -> list[Any]:
        if not self._lives:
            raise ArmDied(f"the processes that held {self.label!r} have ended")
        return self._ask(serving.do, method, *arguments, meanwhile=meanwhile)

    def _ask(
        self, what: Callable[..., Any], *arguments: object, meanwhile: Check | None = None
    ) -> list[Any]:
        return self._children.ask(
            what, self._number, *arguments, ranks=self._ranks, meanwhile=meanwhile
        )


def _most(sizes: Sequence[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return max(known) if len(known) == len(sizes) else None
