"""Worker processes for a notebook, with the environment that ``torchrun`` gives.

The same script runs under ``torchrun``, on several machines too: it finds its rank, the number of
processes and where they meet in the same variables. What was found out on the way:

- The notebook holds the store at which the workers meet, so that no port is chosen before it is
  bound.
- When one worker fails, the others often fail a moment later, of the broken connection. All get a
  second to do so, and who wrote to its stderr first is shown first.
- A worker that hangs is asked for its traceback (`faulthandler`, SIGUSR1) before it is ended.
- Workers end with their notebook, whatever ended that: see `labkit.arms.children`.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shutil
import signal
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from labkit.arms.children import Child, LinkBroken, how_it_ended
from labkit.arms.serve import answer_requests, is_connected
from labkit.device import release_memory

if TYPE_CHECKING:
    from torch.distributed import TCPStore

    from labkit.results import Workload

# Seconds that the others have to fail as well: the first cause is then among what is shown.
_GRACE = 1.0
# Seconds between two looks at what the workers write.
_LOOK = 0.05

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


def serve(make_workload: Callable[..., Workload], *functions: Callable[..., Any]) -> NoReturn:
    """In a worker's script: answer the notebook. Does not return.

    ``make_workload(**settings)`` returns this worker's share as a Workload, which a
    ``Lab("make_workload", runs_in=workers, ...)`` times. `Workers.ask` calls all of these by name.
    RuntimeError in a process that no notebook has started.
    """
    if not is_connected():
        raise RuntimeError("serve() answers a notebook: start this script with labkit.workers")
    known = {}
    for function in (make_workload, *functions):
        known[function.__name__] = function
    answer_requests(known, errors_go_back=False)


class Workers:
    """Processes that run ``script`` with ``arguments``.

    They start at the first `ask` or `wait`, and anew after an end. ``seconds`` is the longest that
    one answer, or the whole run, may take. ``results`` holds the JSON objects that they printed,
    ``failure`` why they ended last, if they failed. An object that is dropped ends its processes,
    and so does the end of the kernel.
    """

    def __init__(
        self,
        script: str | Path,
        *arguments: object,
        processes: int = 2,
        seconds: float = 120.0,
        show: Show = print,
    ) -> None:
        if isinstance(processes, bool) or not isinstance(processes, int) or processes < 1:
            raise ValueError(f"processes={processes!r}: use a positive whole number")
        if not 0 < seconds < float("inf"):
            raise ValueError(
                f"seconds={seconds!r}: use a positive number of seconds, "
                "after which hanging workers end"
            )
        if not Path(script).is_file():
            raise FileNotFoundError(f"script={str(script)!r}: there is no such file")
        self.script, self.arguments, self.show = Path(script).resolve(), arguments, show
        self.processes, self.seconds = processes, seconds
        self.results: list[Result] = []
        self.failure = ""
        self._lock = threading.RLock()
        self._children: list[Child] = []
        self._logs: list[_Log] = []
        self._answers: dict[int, Any] = {}
        self._finalizer: weakref.finalize[..., Any] | None = None

    @property
    def pids(self) -> list[int]:
        """The ids of the processes, in the order of their ranks; empty when none runs."""
        if not self._alive:
            return []
        return [child.process.pid for child in self._children]

    @property
    def _alive(self) -> bool:
        return self._finalizer is not None and self._finalizer.alive

    def ask(self, what: str, *arguments: object, ranks: Iterable[int] | None = None) -> list[Any]:
        """Have all workers, or those of ``ranks``, call what they `serve`; answers by rank.

        `WorkerFailed` when one of them raises, dies, or does not answer in time.
        """
        wanted = list(range(self.processes))
        if ranks is not None:
            wanted = list(ranks)
        if not wanted or not set(wanted) <= set(range(self.processes)):
            raise ValueError(f"ranks={wanted}: there are {self.processes} workers, counted from 0")
        with self._lock:
            self._start()
            self._answers = {}
            for rank in wanted:
                # One that is dead: that is seen below, with the reason.
                with contextlib.suppress(LinkBroken):
                    self._children[rank].send(what, *arguments)
            self._until(lambda: set(wanted) <= set(self._answers))
            return [self._answers[rank] for rank in wanted]

    def wait(self) -> list[Result]:
        """Wait until all workers have ended; their results."""
        with self._lock:
            self._start()
            self._until(lambda: all(code == 0 for code in self._codes()))
            # The last line may have no end.
            self._show_logs(everything=True)
            self.close()
            return self.results

    def close(self) -> None:
        """End all workers and what they started."""
        if self._finalizer is not None:
            self._finalizer()

    def _start(self) -> None:
        if self._alive:
            return
        from torch.distributed import TCPStore

        # The workers share the card with this process, which may hold gigabytes in reserve.
        release_memory()
        folder = Path(tempfile.mkdtemp(prefix="labkit-workers-"))
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self._children, self._logs = [], []
        self.results, self.failure = [], ""
        self._finalizer = weakref.finalize(self, _end, self._children, folder, store)
        arguments = [str(self.script), *map(str, self.arguments)]
        try:
            for rank in range(self.processes):
                out, err = folder / f"{rank}.stdout", folder / f"{rank}.stderr"
                with out.open("wb") as stdout, err.open("wb") as stderr:
                    child = Child(
                        *arguments,
                        stdout=stdout,
                        stderr=stderr,
                        environment=_environment(rank, self.processes, store.port),
                    )
                self._children.append(child)
                self._logs += [_Log(rank, out, may_hold_results=True), _Log(rank, err)]
        except BaseException:
            self.close()
            raise

    def _codes(self) -> list[int | None]:
        return [child.process.poll() for child in self._children]

    def _until(self, done: Callable[[], bool]) -> None:
        """Pass on what the workers say until ``done()``.

        Ends them all when one fails, or is too late.
        """
        end = time.monotonic() + self.seconds
        try:
            while True:
                codes = self._codes()
                self._listen(0 if done() else _LOOK)
                self._show_logs()
                if any(codes):
                    self._fail()
                if done():
                    return
                if None not in codes:
                    name = self.script.name
                    raise WorkerFailed(f"{name} ended before it answered: it does not call serve()")
                if time.monotonic() > end:
                    self._fail_late()
        except BaseException:
            self.close()
            raise

    def _listen(self, seconds: float) -> None:
        """Take in what the workers answer, and wait so long for the first word."""
        links: dict[Any, int] = {}
        for rank, child in enumerate(self._children):
            if not child.link.closed:
                links[child.link] = rank
        if not links:
            time.sleep(seconds)
        for link in wait(list(links), seconds):
            assert isinstance(link, Connection)
            try:
                _, self._answers[links[link]] = pickle.loads(link.recv_bytes())
            except (EOFError, OSError):
                link.close()

    def _show_logs(self, everything: bool = False) -> None:
        """Whole new lines of the workers' output, to the reader or to the results."""
        for log in self._logs:
            for line in log.new_lines(everything):
                result = None
                if log.may_hold_results:
                    result = _result(line)
                if result is None:
                    self.show(f"[{log.rank}] {line}")
                else:
                    self.results.append(result)

    def _fail(self) -> NoReturn:
        end = time.monotonic() + _GRACE
        while time.monotonic() < end and None in self._codes():
            time.sleep(0.02)
        ended = {rank: code for rank, code in enumerate(self._codes()) if code}
        # Who failed first wrote first.
        order = sorted(ended, key=lambda rank: self._error_log(rank).path.stat().st_mtime_ns)
        self._raise({rank: how_it_ended(ended[rank]) for rank in order})

    def _fail_late(self) -> NoReturn:
        late = [rank for rank, code in enumerate(self._codes()) if code is None]
        if hasattr(signal, "SIGUSR1"):
            # Each writes where it stands: see labkit.arms.serve.
            for rank in late:
                self._children[rank].process.send_signal(signal.SIGUSR1)
            time.sleep(0.5)
        why = f"had not done it after {self.seconds:g} s; it stood here"
        self._raise(dict.fromkeys(late, why))

    def _error_log(self, rank: int) -> _Log:
        return self._logs[2 * rank + 1]

    def _raise(self, reasons: Mapping[int, str]) -> NoReturn:
        """With the end of what each of these workers wrote to stderr: its traceback."""
        self._show_logs(everything=True)
        lines = []
        for rank, reason in reasons.items():
            text = self._error_log(rank).path.read_text(errors="replace")
            lines += [f"worker {rank} {reason}", *text.splitlines()[-40:]]
        self.failure = "\n".join(lines)
        raise WorkerFailed(self.failure)


class _Log:
    """A file that one worker writes, read line by line as it grows."""

    def __init__(self, rank: int, path: Path, *, may_hold_results: bool = False) -> None:
        self.rank, self.path, self.may_hold_results = rank, path, may_hold_results
        self._read = 0

    def new_lines(self, everything: bool) -> list[str]:
        """The lines since the last call; without ``everything`` only those that are complete."""
        with self.path.open("rb") as file:
            file.seek(self._read)
            new = file.read()
        if not everything:
            new = new[: new.rfind(b"\n") + 1]
        self._read += len(new)
        return new.decode(errors="replace").splitlines()


def _environment(rank: int, processes: int, port: int) -> dict[str, str]:
    """What torchrun sets, for a worker on this machine."""
    return {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": "labkit",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        "PYTHONUNBUFFERED": "1",
    }


def _end(children: list[Child], folder: Path, store: TCPStore) -> None:
    for child in children:
        child.end()
    shutil.rmtree(folder, ignore_errors=True)
    del store


def _result(line: str) -> Result | None:
    """The JSON object that a line is, or None."""
    if not line.startswith("{"):
        return None
    try:
        value = json.loads(line)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    return value
