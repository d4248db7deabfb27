"""Worker processes for a notebook, started by the launcher that ``torchrun`` uses, and with the same environment.

The kernel forks nothing and stays out of the process group, so all of this is safe after it has used CUDA. Each worker
holds a connection to the notebook: when that breaks, because the run was stopped or the kernel died, the worker ends
itself and its children. ``torchrun SCRIPT`` runs the same script without any of this.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import itertools
import json
import logging
import os
import queue
import runpy
import secrets
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from labkit.arms import LocalArm
from labkit.lab import Lab

_LOG = logging.getLogger("torch.distributed.elastic.multiprocessing.api")
_KILL: signal.Signals = getattr(signal, "SIGKILL", signal.SIGTERM)
_GRACE = 1.0  # seconds that the others have to fail as well, so that the first cause is among what is shown


class WorkerFailed(RuntimeError):
    """A worker raised, died or hung. The message holds its own traceback; all workers have been ended."""


def launch(
    script: str | Path,
    *arguments: Any,
    processes: int = 2,
    seconds: float = 120.0,
    show: Callable[[str], Any] = print,
) -> list[dict[str, Any]]:
    """Run ``script`` to its end in ``processes`` processes of this machine and return what it printed as results.

    A line on stdout that is a JSON object is a result; every other line is shown at once, behind the worker's rank.
    `WorkerFailed` when a worker fails, or when they have not all ended after ``seconds``; whatever ends the call, an
    interrupt too, no process is left behind.
    """
    with contextlib.closing(
        Workers(script, *arguments, processes=processes, seconds=seconds, show=show)
    ) as workers:
        return workers.wait()


class Workers:
    """Processes that run ``script`` with ``arguments``; they start at the first `ask` or `wait`, and anew after an end.

    ``seconds`` is the longest that one answer, or the whole run, may take. ``results`` holds the JSON objects that
    they printed. An object that is dropped ends its processes, and so does the end of the kernel.
    """

    def __init__(
        self,
        script: str | Path,
        *arguments: Any,
        processes: int = 2,
        seconds: float = 120.0,
        show: Callable[[str], Any] = print,
    ) -> None:
        if isinstance(processes, bool) or not isinstance(processes, int) or processes < 1:
            raise ValueError(f"processes={processes!r}: use a positive whole number")
        if not 0 < seconds < float("inf"):
            raise ValueError(
                f"seconds={seconds!r}: use a positive number of seconds, after which hanging workers end"
            )
        if not Path(script).is_file():
            raise FileNotFoundError(f"script={str(script)!r}: there is no such file")
        self.script, self.arguments, self.show = Path(script).resolve(), arguments, show
        self.processes, self.seconds = processes, seconds
        self.results: list[dict[str, Any]] = []
        self.failure = ""  # why they ended last, if they failed
        self._lock = threading.RLock()
        self._finalizer: Any = None

    @property
    def pids(self) -> list[int]:
        """The ids of the processes, in the order of their ranks; empty when none runs."""
        return [process.pid for process in self._processes] if self._alive else []

    @property
    def _alive(self) -> bool:
        return self._finalizer is not None and self._finalizer.alive

    def ask(self, what: str, *arguments: Any, ranks: Iterable[int] | None = None) -> list[Any]:
        """Have all workers, or those of ``ranks``, do what they `serve`; their answers, in the order of ranks."""
        wanted = list(range(self.processes) if ranks is None else ranks)
        if not wanted or not set(wanted) <= set(range(self.processes)):
            raise ValueError(f"ranks={wanted}: there are {self.processes} workers, counted from 0")
        message = (json.dumps([what, arguments]) + "\n").encode()
        with self._lock:
            self._start()
            self._until(lambda: set(wanted) <= set(self._ranks.values()))
            self._answers: dict[int, Any] = {}
            for link, rank in self._ranks.items():
                if rank in wanted:
                    with contextlib.suppress(
                        ConnectionError
                    ):  # it is dead: that is seen below, with the reason
                        link.sendall(message)
            self._until(lambda: set(wanted) <= set(self._answers))
            return [self._answers[rank] for rank in wanted]

    def wait(self) -> list[dict[str, Any]]:
        """Wait until all workers have ended; their results."""
        with self._lock:
            self._start()
            self._until(lambda: all(process.returncode == 0 for process in self._processes))
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
        from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std, start_processes

        folder = tempfile.mkdtemp(prefix="labkit-workers-")
        self._server = socket.create_server(("127.0.0.1", 0))
        # Where the workers find each other. The notebook holds it, so that no port is chosen before it is bound.
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self._token = secrets.token_hex()
        shared = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(store.port),
            "WORLD_SIZE": str(self.processes),
            "LOCAL_WORLD_SIZE": str(self.processes),
            "GROUP_RANK": "0",
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "0",
            "TORCHELASTIC_RUN_ID": "labkit",
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "PYTHONUNBUFFERED": "1",
            "LABKIT_LINK": f"{self._server.getsockname()[1]} {self._token}",
        }
        each = range(self.processes)
        start = partial(
            start_processes,
            name="worker",
            entrypoint=sys.executable,
            args={
                rank: ("-m", "labkit.distributed", str(self.script), *self.arguments)
                for rank in each
            },
            envs={rank: {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in each},
            logs_specs=DefaultLogsSpecs(log_dir=folder, redirects=Std.ALL),
        )
        with (
            _quietly(),
            ThreadPoolExecutor(1) as thread,
        ):  # in the main thread it would take over Jupyter's interrupt
            context: Any = thread.submit(start).result()
        self._processes = [context.subprocess_handlers[rank].proc for rank in each]
        self._buffers: dict[
            socket.socket, bytes
        ] = {}  # connections, and what came in of their next line
        self._ranks: dict[socket.socket, int] = {}
        self._answers = {}
        self.results, self.failure = [], ""
        kinds = {"stdout": context.stdouts, "stderr": context.stderrs}
        self._logs = {
            (rank, kind): Path(paths[rank]) for rank in each for kind, paths in kinds.items()
        }
        self._read = dict.fromkeys(self._logs, 0)
        self._finalizer = weakref.finalize(
            self, _end, context, self._server, self._buffers, folder, store
        )

    def _until(self, done: Callable[[], bool]) -> None:
        """Pass on what the workers say until ``done()``. Ends them all when one fails, or for lack of time."""
        end = time.monotonic() + self.seconds
        try:
            while True:
                codes = [process.poll() for process in self._processes]
                self._listen(0 if done() else 0.05)
                self._show_logs()
                if any(codes):
                    self._fail()
                if done():
                    return
                if None not in codes:
                    raise WorkerFailed(
                        f"{self.script.name} ended before it answered: it does not call serve()"
                    )
                if time.monotonic() > end:
                    self._fail_late()
        except BaseException:
            self.close()
            raise

    def _listen(self, seconds: float) -> None:
        """Take in what the workers answer, and wait so long for the first word."""
        ready, _, _ = select.select([self._server, *self._buffers], [], [], seconds)
        for link in ready:
            if link is self._server:
                self._buffers[link.accept()[0]] = b""
                continue
            try:
                received = link.recv(2**16)
            except ConnectionError:
                received = b""
            *lines, self._buffers[link] = (self._buffers[link] + received).split(b"\n")
            for line in lines:
                if link in self._ranks:
                    self._answers[self._ranks[link]] = json.loads(line)
                elif line.startswith(self._token.encode()):
                    self._ranks[link] = int(line.split()[1])
            if not received:
                del self._buffers[link]
                self._ranks.pop(link, None)
                link.close()

    def _show_logs(self, everything: bool = False) -> None:
        """Whole new lines of the workers' output, to the reader or to the results."""
        for (rank, kind), path in self._logs.items():
            with path.open("rb") as file:
                file.seek(self._read[rank, kind])
                new = file.read()
            if not everything:
                new = new[: new.rfind(b"\n") + 1]
            self._read[rank, kind] += len(new)
            for line in new.decode(errors="replace").splitlines():
                result = _result(line) if kind == "stdout" else None
                if result is None:
                    self.show(f"[{rank}] {line}")
                else:
                    self.results.append(result)

    def _fail(self) -> None:
        end = time.monotonic() + _GRACE
        while time.monotonic() < end and any(process.poll() is None for process in self._processes):
            time.sleep(0.02)
        dead = [rank for rank, process in enumerate(self._processes) if process.returncode]
        dead.sort(
            key=lambda rank: self._logs[rank, "stderr"].stat().st_mtime
        )  # who failed first wrote first
        self._raise({rank: _how(self._processes[rank].returncode) for rank in dead})

    def _fail_late(self) -> None:
        late = [rank for rank, process in enumerate(self._processes) if process.poll() is None]
        if hasattr(signal, "SIGUSR1"):
            for rank in late:
                self._processes[rank].send_signal(
                    signal.SIGUSR1
                )  # each writes where it stands: see _work
            time.sleep(0.5)
        self._raise(dict.fromkeys(late, f"had not done it after {self.seconds:g} s; it stood here"))

    def _raise(self, ranks: dict[int, str]) -> None:
        """With the end of what each of ``ranks`` wrote to stderr: its traceback."""
        self._show_logs(everything=True)
        texts = {
            rank: self._logs[rank, "stderr"].read_text(errors="replace").splitlines()[-40:]
            for rank in ranks
        }
        self.failure = "\n".join(
            "\n".join([f"worker {rank} {ranks[rank]}", *texts[rank]]) for rank in ranks
        )
        raise WorkerFailed(self.failure)


def _end(
    context: Any, server: socket.socket, links: dict[socket.socket, bytes], folder: str, store: Any
) -> None:
    for link in (*links, server):
        link.close()  # each worker sees that, and ends itself
    with _quietly():
        context.close(death_sig=_KILL, timeout=5)
    if hasattr(os, "killpg"):
        for pid in context.pids().values():
            with contextlib.suppress(
                ProcessLookupError, PermissionError
            ):  # the usual case: nobody is left
                os.killpg(pid, _KILL)  # a worker that was killed has left its own children
    shutil.rmtree(folder, ignore_errors=True)
    del store


@contextlib.contextmanager
def _quietly() -> Any:
    """The launcher warns of what we do on purpose: to start in a thread, and to kill."""
    before, _LOG.disabled = _LOG.disabled, True
    try:
        yield
    finally:
        _LOG.disabled = before


def _result(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line) if line.startswith("{") else None
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _how(code: int) -> str:
    if code > 0:
        return f"ended with exit status {code}"
    hint = " (was the system short of memory?)" if code == -9 else ""
    return f"was ended by {signal.Signals(-code).name}{hint}"


# -------------------------------------------------------------------------------------------------------- in a lab


class DistributedLab(Lab):
    """A `Lab` whose arms run in ``workers``, the first ``processes`` of them; the script calls `serve`.

    ``processes`` must be one of the controls. A step's time is that of the slowest worker, its samples those of all.
    """

    def __init__(self, workers: Workers, *, name: str = "make_workload", **options: Any) -> None:
        def make_workload(**settings: Any) -> Any:
            raise TypeError(
                f"{name} lives in the workers ({workers.script.name}), not in this process"
            )

        if "processes" not in options:
            raise TypeError("a DistributedLab needs a control named 'processes': processes=[1, 2]")
        make_workload.__name__ = name
        super().__init__(make_workload, **options)
        self.workers = workers

    def _arm(self, label: str, settings: dict[str, Any]) -> Any:
        return _WorkersArm(self.workers, label, settings, self.seed)


class _WorkersArm:
    """A `LocalArm` in each of several workers; they run in step because each does the same number of steps."""

    numbers = itertools.count()

    def __init__(self, workers: Workers, label: str, settings: dict[str, Any], seed: int) -> None:
        self.label, self.settings, self.seed = label, settings, seed
        self.samples, self.unit, self.device = 1.0, "samples", "cpu"
        self._workers, self._number = workers, next(self.numbers)
        self._pids: list[int] = []  # of the workers that know this arm
        self._open = False

    def _ask(self, what: str, *arguments: Any) -> list[Any]:
        if what != "start" and self._pids != self._workers.pids:  # new ones would not know this arm
            raise WorkerFailed(self._workers.failure or "the workers that held this arm have ended")
        return self._workers.ask(
            what, self._number, *arguments, ranks=range(self.settings["processes"])
        )

    def start(self) -> float:
        answers = self._ask("start", self.label, self.settings, self.seed)
        self._pids, self._open = self._workers.pids, True
        self.samples, self.unit, self.device = (
            sum(a[1] for a in answers),
            answers[0][2],
            answers[0][3],
        )
        return max(answer[0] for answer in answers)

    def block(self, steps: int) -> float:
        return max(self._ask("block", steps))

    def check(self) -> None:
        self._ask("check")

    def peak(self) -> tuple[int, int | None]:
        """Of the worker that needs most."""
        return max(((a, r) for a, r in self._ask("peak")), key=lambda both: both[0])

    def counters(self) -> dict[str, int] | str:
        """Of the first worker."""
        return self._ask("counters")[0]

    def close(self) -> None:
        if (
            self._open and self._pids == self._workers.pids
        ):  # else they ended, and the arm with them
            self._ask("close")
        self._open = False


# --------------------------------------------------------------------------------------------------- in the worker


_inbox: queue.SimpleQueue[str] = queue.SimpleQueue()
_link: Any = None


def serve(make_workload: Callable[..., Any], *functions: Callable[..., Any]) -> None:
    """In a worker's script: build and time workloads, and call ``functions`` by name, whenever the notebook asks.

    ``make_workload(**settings)`` returns this worker's share as a Workload. Does not return.
    """
    if _link is None:
        raise RuntimeError(
            "serve() answers a notebook: start this script with labkit.distributed.Workers"
        )
    known = {function.__name__: function for function in functions}
    arms: dict[int, LocalArm] = {}
    gc.freeze()  # else each release of an arm searches all of torch for garbage
    while True:
        what, arguments = json.loads(_inbox.get())
        if what in known:
            answer = known[what](*arguments)
        elif what == "start":
            number, label, settings, seed = arguments
            arms[number] = LocalArm(partial(make_workload, **settings), label, settings, seed)
            seconds = arms[number].start()
            answer = seconds, arms[number].samples, arms[number].unit, arms[number].device
        elif what in ("block", "check", "peak", "counters", "close"):
            answer = getattr(arms[arguments[0]], what)(*arguments[1:])
        else:
            raise ValueError(f"ask({what!r}): this script serves {sorted(known)}")
        _link.sendall((json.dumps(answer) + "\n").encode())


def _work() -> None:
    """A worker's first and only act: connect to the notebook, then become the script."""
    global _link
    if hasattr(faulthandler, "register"):
        faulthandler.register(signal.SIGUSR1)  # the notebook asks a hanging worker where it stands
    port, token = os.environ["LABKIT_LINK"].split()
    _link = socket.create_connection(("127.0.0.1", int(port)))
    _link.sendall(f"{token} {os.environ['RANK']}\n".encode())

    def listen() -> None:
        with contextlib.suppress(ConnectionError):
            for line in _link.makefile("r"):
                _inbox.put(line)
        if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
            os.killpg(0, _KILL)
        os._exit(1)

    threading.Thread(target=listen, daemon=True).start()
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except Exception as error:
        while (
            error.__traceback__ and error.__traceback__.tb_frame.f_code.co_filename != sys.argv[0]
        ):
            error.__traceback__ = (
                error.__traceback__.tb_next
            )  # the way to the script is not the reader's
        sys.excepthook(type(error), error, error.__traceback__)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(
            1
        )  # an orderly end would write more lines, of what is not released, behind the traceback


if __name__ == "__main__":
    from labkit.distributed import (
        _work as work,
    )  # not this copy, named __main__: the script imports the other one

    work()
