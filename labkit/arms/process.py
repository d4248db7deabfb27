"""An arm in a process of its own.

For state that cannot be swapped: cuDNN's plan cache, compiled code, a CUDA context that has failed.
The parent sends one request at a time and waits, so that only one arm runs.

A process takes seconds to start, and what it compiles far longer. So peaks and counts are taken in
the process that was timed, of a workload built anew there; only an arm whose process is gone starts
another one for them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import IO, Any, NoReturn

from labkit.arms.children import Child, LinkBroken, how_it_ended
from labkit.arms.protocol import ArmDied, Counts, Peak
from labkit.device import release_memory
from labkit.memory_timeline import Timeline
from labkit.restore.switches import torch_flags
from labkit.results import Workload

# The child holds one arm.
_NUMBER = 0


class ProcessArm:
    """An `Arm` in another process.

    Its death raises `ArmDied`; exceptions of the step come back as they are. The process has
    torch's switches, the number of threads too, as this process has them at `start`.
    """

    def __init__(
        self,
        make: Callable[[], Workload],
        label: str,
        settings: dict[str, Any] | None = None,
        seed: int | None = None,
    ) -> None:
        self.label, self.settings = label, settings or {}
        self.samples, self.unit, self.device = 1.0, "samples", "cpu"
        self._make, self._seed = make, seed
        self._child: Child | None = None
        self._log: IO[bytes] | None = None

    def start(self) -> float:
        """Start the process, build the workload there and run the first step; its seconds.

        RuntimeError when the process does not come up, or cannot rebuild ``make`` from a pickle.
        """
        # The process shares the card with this one, which may hold gigabytes in reserve.
        release_memory()
        # What the reader's code prints goes there too; only its end is shown, should it die.
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self._child = Child(stdout=self._log, stderr=self._log)
        try:
            self._ask("define", self._make, self.label, self.settings, self._seed, torch_flags())
        except Exception as error:
            reason = str(error)
            if not isinstance(error, ArmDied):
                reason = f"{type(error).__name__}: {error}"
            raise RuntimeError(
                f"could not start {self.label!r} in a process of its own: {reason}"
            ) from None
        # It is up: from here on its death is a result.
        try:
            seconds, self.samples, self.unit, self.device = self._ask("start")
        except ArmDied:
            raise
        except Exception:
            # It lives, and can say on which device memory ran out.
            self.device = self._ask("where")
            raise
        return float(seconds)

    def block(self, steps: int) -> float:
        """Run ``steps`` steps there; their seconds."""
        return float(self._ask("block", steps))

    def check(self) -> None:
        """As `LocalArm.check`."""
        self._ask("check")

    def peak(self) -> Peak:
        """As `LocalArm.peak`, in the process."""
        allocated, reserved = self._ask_process("peak")
        return allocated, reserved

    def timeline(self) -> Timeline:
        """As `LocalArm.timeline`, in the process."""
        found: Timeline = self._ask_process("timeline")
        return found

    def counters(self) -> Counts:
        """As `LocalArm.counters`, in the process."""
        counted: Counts = self._ask_process("counters")
        return counted

    def release(self) -> None:
        """Release the workload there; the process waits."""
        if self._child is None:
            return
        try:
            self._ask("close")
        except ArmDied:
            # It holds nothing any more.
            self.close()

    def close(self) -> None:
        """End the process, and with it whatever it holds."""
        # Forgotten only when it is done: after an interrupt it is done again.
        if self._child is not None:
            self._child.end()
        self._child = None
        if self._log is not None:
            self._log.close()
        self._log = None

    def _ask_process(self, method: str) -> Any:
        """Ask the process that was timed; another one, if that is gone."""
        if self._child is None:
            self.start()
        return self._ask(method)

    def _ask(self, method: str, *arguments: object) -> Any:
        child = self._child
        assert child is not None, "start() comes first"
        try:
            child.send(f"arm.{method}", _NUMBER, *arguments)
            return child.receive()
        except LinkBroken:
            self._died(child)
        except KeyboardInterrupt:
            # Its answer would be taken for that to the next request.
            self.close()
            raise

    def _died(self, child: Child) -> NoReturn:
        assert self._log is not None
        how = how_it_ended(child.process.wait())
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        last = ""
        if lines:
            last = f": {lines[-1]}"
        raise ArmDied(f"the process of {self.label!r} {how}{last}") from None
