"""A child process for work that may end the process that does it: by a crash, memory or time.

What a student hands in can do that to its judge: a tensor of 200,000 dimensions crashes torch, an
empty one of 10**9 rows becomes 10**9 lists. The parent only listens, and ends what takes too long.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection, util
from pathlib import Path
from typing import Any, NamedTuple

MB = 2**20
LINUX = sys.platform.startswith("linux")
# seconds for the imports, on a slow machine that does other work
START = 300.0
# of the folder of a server's socket: the system takes names of about a hundred characters
LONGEST_FOLDER = 80
PRELOADED = ["course.classroom.check"]

# the limits of address space, soft and hard, before this process got its own; none elsewhere
_before: list[tuple[int, int]] = []

Say = Callable[[Any], None]


class Now(NamedTuple):
    """A child says what it begins with, and how many seconds that may take."""

    what: Any
    seconds: float


class _Ended(NamedTuple):
    """The last that a child says: why its work failed; empty where it is done."""

    why: str


class Child:
    """``work(say)`` in a process of its own; ``end_box`` ends what uses a folder that it left.

    ``memory``: MB of address space beyond what the process begins with, on Linux.
    """

    def __init__(
        self,
        work: Callable[[Say], None],
        what: Any,
        end_box: Callable[[Path], None],
        environment: dict[str, str],
        memory: int,
    ) -> None:
        # what it said, and what it began last
        self.said: list[Any] = []
        self.what = what
        # None while it runs
        self.why: str | None = None
        self._end_box = end_box
        self._folder = tempfile.TemporaryDirectory(
            prefix="labkit-course-", ignore_cleanup_errors=True
        )
        self._allow(START)
        context = _context()
        self.ear, mouth = context.Pipe(duplex=False)
        arguments = (work, mouth, os.getcwd(), self._folder.name, environment, memory)
        self._process = context.Process(target=_run, args=arguments, daemon=True)
        with _only(environment):
            self._process.start()
        mouth.close()

    def _allow(self, seconds: float) -> None:
        self._seconds, self.deadline = seconds, time.monotonic() + seconds

    def over(self) -> bool:
        """Whether it has ended, or had to be: ``why`` then says why, or nothing if it is done."""
        try:
            # also what it said before its time was over
            while self.why is None and self.ear.poll():
                self._hear(self.ear.recv())
        except EOFError:
            self._process.join()
            self.why = _how(self._process.exitcode)
        if self.why is None and time.monotonic() > self.deadline:
            self.why = f"it went on for more than {self._seconds:g} s"
        return self.why is not None

    def _hear(self, told: Any) -> None:
        if isinstance(told, Now):
            self.what = told.what
            self._allow(told.seconds)
        elif isinstance(told, _Ended):
            self.why = told.why
        else:
            self.said.append(told)

    def end(self) -> None:
        """End it, and what it leaves behind."""
        self._process.kill()
        self._process.join()
        self.ear.close()
        for box in Path(self._folder.name).resolve().iterdir():
            self._end_box(box)
        self._folder.cleanup()


def _context() -> Any:
    """A server that imports once, and forks for each child; else each child imports."""
    # forks of a macOS framework may crash
    if not LINUX or len(util.get_temp_dir()) > LONGEST_FOLDER:
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def wait_for(children: Sequence[Child]) -> None:
    """Wait until one of them says something, or has to be ended."""
    left = min(child.deadline for child in children) - time.monotonic()
    connection.wait([child.ear for child in children], max(0.0, left))


@contextlib.contextmanager
def unlimited() -> Iterator[None]:
    """Start other programs in it: they do not inherit a child's limit of memory."""
    if not _before:
        yield
        return
    import resource

    now = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, _before[0])
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, now)


def _run(
    work: Callable[[Say], None],
    mouth: connection.Connection,
    place: str,
    folder: str,
    environment: dict[str, str],
    memory: int,
) -> None:
    """The child: do the work, and say how it ended."""
    # the parent is interrupted, too, and ends it; "ignore" would be inherited by programs
    signal.signal(signal.SIGINT, lambda *_: None)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # a server that runs already was started with others
    os.chdir(place)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = folder
    _limit(memory)
    try:
        work(mouth.send)
        why = ""
    except MemoryError:
        why = f"out of memory, more than {memory} MB"
    except Exception as error:
        why = f"{type(error).__name__}: {error}"[:2000]
    mouth.send(_Ended(why))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


def _limit(memory: int) -> None:
    """Let the kernel refuse more than ``memory`` MB beyond what is mapped now."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # macOS neither tells what is mapped nor keeps to the limit
    if LINUX:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + memory * MB
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        _before.append((soft, hard))
        most = most if soft == resource.RLIM_INFINITY else min(most, soft)
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def _how(code: int | None) -> str:
    """How a process ended that had not said why."""
    if code is not None and code < 0:
        return signal.strsignal(-code) or f"signal {-code}"
    return f"exit code {code}"


@contextlib.contextmanager
def _only(environment: dict[str, str]) -> Iterator[None]:
    """Let processes that start in it inherit this environment alone."""
    before = os.environ.copy()
    os.environ.clear()
    os.environ.update(environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
