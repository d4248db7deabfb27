"""Worker processes for a notebook, with the environment that ``torchrun`` gives.

The same script runs under ``torchrun``, on several machines too: it finds its rank, the number of
processes and where they meet in the same variables. The notebook holds the store at which the
workers meet, so that no port is chosen before it is bound.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.remote.children import Children

if TYPE_CHECKING:
    from torch.distributed import TCPStore

Result = dict[str, Any]
Show = Callable[[str], Any]


class WorkerFailed(RuntimeError):
    """A worker raised, died or hung. The message holds its own traceback; all have been ended."""


def launch(
    script: str | Path,
    *arguments: object,
    processes: int = 2,
    seconds: float = 120.0,
    show: Show = print,
) -> list[Result]:
    """Run ``script`` to its end in ``processes`` processes; what it printed as results.

    A line on stdout that is a JSON object is a result; every other line is shown at once, behind
    the worker's rank. `WorkerFailed` when a worker fails, or when they have not all ended after
    ``seconds``; whatever ends the call, an interrupt too, no process is left behind.
    """
    workers = Workers(script, *arguments, processes=processes, seconds=seconds, show=show)
    with contextlib.closing(workers):
        return workers.wait()


class Workers(Children):
    """Processes that run ``script`` with ``arguments``.

    They start at the first `ask` or `wait`, and anew after an end. ``seconds`` is the longest that
    one answer, or the whole run, may take. ``results`` holds the JSON objects that they printed. An
    object that is dropped ends its processes, and so does the end of the kernel.
    """

    look = 0.05

    def __init__(
        self,
        script: str | Path,
        *arguments: object,
        processes: int = 2,
        seconds: float = 120.0,
        show: Show = print,
    ) -> None:
        if not isinstance(processes, int) or processes < 1:
            raise ValueError(f"processes={processes!r}: use a positive whole number")
        if not 0 < seconds < math.inf:
            raise ValueError(
                f"seconds={seconds!r}: use a positive number of seconds, "
                "after which hanging workers end"
            )
        if not Path(script).is_file():
            raise FileNotFoundError(f"script={str(script)!r}: there is no such file")
        self.script, self.arguments, self.show = Path(script).resolve(), arguments, show
        super().__init__(self.script.name, processes, seconds)
        self.results: list[Result] = []
        self._store: TCPStore | None = None

    def wait(self) -> list[Result]:
        """Wait until all workers have ended; their results."""
        with self._lock, contextlib.closing(self):
            self._start()
            self._until(self._ended_well)
            # The last line may have no end.
            self._show(everything=True)
            return self.results

    def _ended_well(self) -> bool:
        return all(code == 0 for code in self._codes())

    def _start(self) -> None:
        if self.pids:
            return
        from torch.distributed import TCPStore

        self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.results = []
        super()._start()

    def _command(self, rank: int) -> tuple[list[str], Mapping[str, str]]:
        """The script, and what torchrun sets for a worker on this machine."""
        assert self._store is not None
        environment = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self._store.port),
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "GROUP_RANK": "0",
            "WORLD_SIZE": str(self.processes),
            "LOCAL_WORLD_SIZE": str(self.processes),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "0",
            "TORCHELASTIC_RUN_ID": "labkit",
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
            "PYTHONUNBUFFERED": "1",
        }
        return [str(self.script), *map(str, self.arguments)], environment

    def _show(self, everything: bool = False) -> None:
        """Whole new lines of the workers' output, to the reader or to the results."""
        for rank, child in enumerate(self._children):
            for line in child.stdout.new_lines(everything):
                result = _result(line)
                if result is None:
                    self.show(f"[{rank}] {line}")
                else:
                    self.results.append(result)
            for line in child.stderr.new_lines(everything):
                self.show(f"[{rank}] {line}")

    def _failure(self, reasons: Mapping[int, str]) -> Exception:
        self._show(everything=True)
        if self._ended_well():
            return WorkerFailed(f"{self.owner} ended before it answered: it does not call serve()")
        lines = []
        for rank, reason in reasons.items():
            lines += [f"worker {rank} {reason}", *self._children[rank].stderr.last_lines()]
        return WorkerFailed("\n".join(lines))


def _result(line: str) -> Result | None:
    """The JSON object that a line is, or None."""
    if not line.startswith("{"):
        return None
    with contextlib.suppress(ValueError):
        return json.loads(line)
    return None
