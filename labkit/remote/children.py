"""Child processes, and the link to each: a pipe of `multiprocessing` that carries pickles.

For Linux and macOS. Nothing is forked, so that all of this is safe after the notebook has used
CUDA. A child leads a session of its own: an interrupt of the kernel is handled here and does not
reach it. When the link breaks, because the run was stopped or the kernel died, the child ends
itself and what it started (`labkit.remote.serving`): no process outlives its notebook.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from tempfile import TemporaryFile
from types import ModuleType
from typing import Any

import cloudpickle

from labkit.arm import ArmDied
from labkit.device import release_memory

# The number of the file descriptor that is the child's end of its pipe.
LINK = "LABKIT_LINK"
# Where Triton keeps what it compiled.
KERNELS = "TRITON_CACHE_DIR"
# Seconds that the others have to fail as well: the first cause is then among what is told.
_GRACE = 1.0


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc, no-any-unimported, unused-ignore]
    """Pickles by name the objects that torch puts in a module's place (torch.backends.cudnn)."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, ModuleType) and type(obj) is not ModuleType:
            name = obj.__name__
            if sys.modules.get(name) is obj:
                return import_module, (name,)
        return super().reducer_override(obj)


def dumps(value: object) -> bytes:
    """Pickle ``value``, functions of a notebook included."""
    buffer = io.BytesIO()
    _Pickler(buffer).dump(value)
    return buffer.getvalue()


class Log:
    """A file that one child writes, read as it grows."""

    def __init__(self) -> None:
        # Open as long as its child runs: `Child.end` closes it.
        self.file = TemporaryFile()  # noqa: SIM115
        self._read = 0

    def new_lines(self, everything: bool = False) -> list[str]:
        """The lines since the last call; without ``everything`` only those that are complete."""
        size = os.fstat(self.file.fileno()).st_size
        # At a place: the child writes where the file's own position is.
        new = os.pread(self.file.fileno(), size - self._read, self._read)
        if not everything:
            new = new[: new.rfind(b"\n") + 1]
        self._read += len(new)
        return new.decode(errors="replace").splitlines()

    def last_lines(self) -> list[str]:
        """The end of the file: on stderr, of a child that failed, its traceback."""
        self._read = 0
        return self.new_lines(everything=True)[-40:]


class Child:
    """A process that runs ``python -m labkit.remote ARGUMENTS``, and the ``link`` to it."""

    def __init__(self, arguments: Iterable[str], environment: Mapping[str, str]) -> None:
        self.stdout, self.stderr = Log(), Log()
        paths = os.pathsep.join(filter(None, sys.path))
        self.link, theirs = Pipe()
        with theirs:
            handle = theirs.fileno()
            self.process = subprocess.Popen(
                [sys.executable, "-m", "labkit.remote", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=self.stdout.file,
                stderr=self.stderr.file,
                env={**_inherited(), "PYTHONPATH": paths, **environment, LINK: str(handle)},
                pass_fds=[handle],
                start_new_session=True,
            )

    def how_it_ended(self) -> str:
        """Its exit status in words."""
        code = self.process.wait()
        if code >= 0:
            return f"ended with exit status {code}"
        hint = ""
        if code == -signal.SIGKILL:
            hint = " (was the system short of memory?)"
        return f"was ended by {signal.Signals(-code).name}{hint}"

    def end(self) -> None:
        """End the process and what it started, such as the workers of a loader."""
        self.link.close()
        # Usually the whole group is gone already.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        self.stdout.file.close()
        self.stderr.file.close()


def _inherited() -> dict[str, str]:
    """This process's environment, without the folder for kernels that Inductor has added to it.

    A child that sets a folder of its own for compiled code would still find this one's kernels.
    """
    environment = dict(os.environ)
    kernels = Path(environment.get(KERNELS, ""))
    # Inductor's way to name it: <its own folder>/triton/<number of the device>.
    if kernels.parent.name == "triton" and kernels.name.isdigit():
        del environment[KERNELS]
    return environment


class Children:
    """Child processes that are asked one thing at a time. When one of them fails, all are ended.

    As it is, an arm's own process; ``owner`` is that arm's label. They start at the first `ask`,
    and anew after an end. ``seconds`` is the longest that an answer may take. An object that is
    dropped ends its processes, and so does the end of the kernel.
    """

    # Seconds between two looks at children that say nothing.
    look = 1.0

    def __init__(self, owner: str, processes: int = 1, seconds: float = math.inf) -> None:
        self.owner, self.processes, self.seconds = owner, processes, seconds
        self._lock = threading.RLock()
        self._children: list[Child] = []
        # What the children have sent, by rank.
        self._answers: dict[int, bytes] = {}
        self._finalizer: weakref.finalize[..., Any] | None = None

    @property
    def pids(self) -> list[int]:
        """The ids of the processes, in the order of their ranks; empty when none runs."""
        if self._finalizer is None or not self._finalizer.alive:
            return []
        return [child.process.pid for child in self._children]

    def ask(
        self,
        what: str | Callable[..., Any],
        *arguments: object,
        ranks: Iterable[int] | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> list[Any]:
        """Have all processes, or those of ``ranks``, call a function; their answers by rank.

        ``what`` is the name of one that they `serve`, or the function itself. Raises what an arm's
        own process has raised. `WorkerFailed` or `ArmDied` when a process ends or does not answer
        in time. ``meanwhile`` is called at each look at those that say nothing; what it raises ends
        the processes and comes through.
        """
        wanted = list(range(self.processes) if ranks is None else ranks)
        if not wanted or not set(wanted) <= set(range(self.processes)):
            raise ValueError(f"ranks={wanted}: there are {self.processes} workers, counted from 0")
        message = dumps((what, arguments))
        with self._lock, contextlib.ExitStack() as stack:
            # An answer that is still to come would be taken for that to the next request.
            stack.callback(self.close)
            self._start()
            self._answers = {}
            for rank in wanted:
                # A link is broken when its child has ended: how, is told below.
                with contextlib.suppress(OSError):
                    self._children[rank].link.send_bytes(message)
            self._until(lambda: set(wanted) <= set(self._answers), meanwhile)
            answers = [self._answers[rank] for rank in wanted]
            stack.pop_all()
        values = []
        for done, value in map(pickle.loads, answers):
            if not done:
                raise value
            values.append(value)
        return values

    def close(self) -> None:
        """End all processes and what they started."""
        if self._finalizer is not None:
            self._finalizer()

    def _start(self) -> None:
        """Start the processes, unless they run."""
        if self.pids:
            return
        # The children share the card with this process, which may hold gigabytes in reserve.
        release_memory()
        self._children = []
        self._finalizer = weakref.finalize(self, _end, self._children)
        for rank in range(self.processes):
            self._children.append(Child(*self._command(rank)))

    def _command(self, rank: int) -> tuple[list[str], Mapping[str, str]]:
        """A child's arguments, and what it finds in its environment beside this process's."""
        return [], {}

    def _show(self) -> None:
        """Pass on what the children have written since the last time."""

    def _failure(self, reasons: Mapping[int, str]) -> Exception:
        """The error for children that failed: how, by rank, the first one first."""
        rank = next(iter(reasons))
        # Of all that was printed there, only the end.
        last = "".join(f": {line}" for line in self._children[rank].stderr.last_lines()[-1:])
        return ArmDied(f"the process of {self.owner!r} {reasons[rank]}{last}")

    def _codes(self) -> list[int | None]:
        return [child.process.poll() for child in self._children]

    def _until(self, done: Callable[[], bool], meanwhile: Callable[[], None] | None = None) -> None:
        """Listen until ``done()``. Raises when a child fails, ends too early or is too late."""
        end = time.monotonic() + self.seconds
        while True:
            codes = self._codes()
            self._listen(0 if done() else self.look)
            self._show()
            if any(codes):
                raise self._failure(self._who_failed())
            if done():
                return
            if None not in codes:
                raise self._failure({0: self._children[0].how_it_ended()})
            if meanwhile is not None:
                meanwhile()
            if time.monotonic() > end:
                raise self._failure(self._who_is_late())

    def _listen(self, seconds: float) -> None:
        """Take in what the children answer; wait for the first of it at most so long."""
        links: dict[Any, int] = {}
        for rank, child in enumerate(self._children):
            if not child.link.closed:
                links[child.link] = rank
        if not links:
            # They are about to end.
            time.sleep(min(seconds, 0.05))
        for link in wait(list(links), seconds):
            assert isinstance(link, Connection)
            try:
                self._answers[links[link]] = link.recv_bytes()
            except (EOFError, OSError):
                link.close()

    def _who_failed(self) -> dict[int, str]:
        """When one fails, the others often fail a moment later, of the broken connection."""
        end = time.monotonic() + _GRACE
        while time.monotonic() < end and None in self._codes():
            time.sleep(0.02)
        failed = [rank for rank, code in enumerate(self._codes()) if code]
        # Who failed first wrote first.
        failed.sort(key=lambda rank: os.fstat(self._children[rank].stderr.file.fileno()).st_mtime)
        return {rank: self._children[rank].how_it_ended() for rank in failed}

    def _who_is_late(self) -> dict[int, str]:
        """Has each of them write where it stands."""
        late = [rank for rank, code in enumerate(self._codes()) if code is None]
        for rank in late:
            self._children[rank].process.send_signal(signal.SIGUSR1)
        time.sleep(0.5)
        return dict.fromkeys(late, f"had not done it after {self.seconds:g} s; it stood here")


def _end(children: list[Child]) -> None:
    for child in children:
        child.end()
