"""A student's function as the judge sees it: it runs in a process behind a wall.

The judge calls `Remote(...)` like a function. Its arguments go there, what it returned and changed
comes back as values (`values`), and the check looks at those, here, where no code of the student's
runs. So there is no verdict to forge: a lie is a wrong answer.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import pickle
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import torch

from course.classroom import values
from course.classroom.child import START, unlimited
from course.classroom.files import CourseError
from course.classroom.sandbox import Container, Limits, Trust, Wall

MB = 2**20
# bytes of one message: no exercise needs more, and the judge has to hold it
LONGEST = 64 * MB
# seconds between two looks at a process's memory and descendants
LOOK = 0.1
# else all processes of the machine have to be read for a look
CHILDREN_LISTED = Path("/proc/thread-self/children").exists()
# errors of a student's code that checks look for; any other arrives as a plain Exception
ERRORS = {
    each.__name__: each
    for each in (
        NotImplementedError,
        AssertionError,
        AttributeError,
        TypeError,
        ValueError,
        RuntimeError,
        OSError,
    )
}


class Stopped(Exception):
    """The process was ended, or ended itself: ``result``, and why."""

    def __init__(self, result: str, why: str) -> None:
        super().__init__(why)
        self.result = result


class Process:
    """A student's code behind a wall. Use it in a ``with`` statement: it ends with the block."""

    def __init__(self, wall: Wall, box: Path, environment: dict[str, str], limits: Limits) -> None:
        self.wall, self.box, self.limits = wall, box, limits
        self.outside = ""
        self._given, self._room = wall.places(box)
        homes = {"HOME": str(self._room / "home"), "TMPDIR": str(self._room / "tmp")}
        self._command = wall.command(box, environment | homes, limits)

    def __enter__(self) -> Process:
        self._errors = tempfile.TemporaryFile()
        with unlimited():
            self._process = subprocess.Popen(
                self._command,
                executable=shutil.which(self._command[0]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                # the first process of a sandbox: answers can read what it was started with
                env=self.wall.environment(),
                # an engine may leave a file where it runs
                cwd=self.box,
                start_new_session=True,
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._to, False)
        os.set_blocking(self._from, False)
        self._looked = time.monotonic()
        self._deadline = self._looked + START
        try:
            limits = {"memory": self.limits.memory, "disk": self.limits.disk}
            places = {"given": str(self._given), "room": str(self._room)}
            programs = not isinstance(self.wall, Trust)
            told = self.ask(limits | places | {"programs": programs})
            if "error" in told:
                raise CourseError(f"what was handed in could not be copied: {told['message']}")
        except Stopped as why:
            self._errors.seek(0)
            said = self._errors.read()[-1000:].decode(errors="replace").strip()
            self.end()
            raise CourseError(f"answers cannot be run here: {said or why}") from None
        except BaseException:
            self.end()
            raise
        self.began = time.monotonic()
        self._deadline = self.began + self.limits.seconds
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def end(self) -> None:
        """Kill the process and all it started."""
        family = [] if self._process.poll() is not None else list(self._family())
        # nobody is left in it
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for pid in family:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with unlimited():
            self.wall.end(self.box)
        self._process.wait()
        for file in (self._process.stdin, self._process.stdout, self._errors):
            assert file is not None
            # what it had not read is lost
            with contextlib.suppress(BrokenPipeError):
                file.close()

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a message and wait for the answer. Stopped at a limit, or when the process ends."""
        data = pickle.dumps(message)
        self._write(struct.pack("!Q", len(data)) + data)
        (length,) = struct.unpack("!Q", self._read(8))
        if length > LONGEST:
            raise Stopped("error", f"it answered with {length / MB:.0f} MB")
        try:
            told = json.loads(self._read(length))
        except (ValueError, RecursionError):
            told = None
        if not isinstance(told, dict):
            raise Stopped("error", "it answered with something else than values")
        outside = told.get("outside")
        self.outside = self.outside or str(*outside[:1] if isinstance(outside, list) else "")
        return told

    def _write(self, data: bytes) -> None:
        while data:
            if self._wait(writing=True):
                try:
                    data = data[os.write(self._to, data) :]
                except BrokenPipeError:
                    self._ended()

    def _read(self, length: int) -> bytes:
        found = bytearray()
        while len(found) < length:
            if self._wait(writing=False):
                some = os.read(self._from, min(length - len(found), MB))
                found += some or self._ended()
        return bytes(found)

    def _wait(self, *, writing: bool) -> bool:
        """Whether the pipe is ready now; Stopped where a limit was passed meanwhile."""
        ends = ([], [self._to]) if writing else ([self._from], [])
        # asked first: what it said before its end is then in the pipe
        ended = self._process.poll() is not None
        ready = select.select(*ends, [], 0 if ended else LOOK)
        # also when it is ready: an answer may come in bytes now and then, and never be whole
        self._hold_to_limits()
        if ready[0] or ready[1]:
            return True
        # a process that it left behind may hold the pipe open
        if ended:
            self._ended()
        return False

    def _hold_to_limits(self) -> None:
        """Raise Stopped where a limit is passed. The machine's processes are read now and then."""
        now = time.monotonic()
        if now > self._deadline:
            raise Stopped("time limit", f"stopped after {self.limits.seconds:g} s")
        if now - self._looked < LOOK:
            return
        self._looked = now
        family = self._family()
        if len(family) > self.limits.processes:
            raise Stopped("process limit", f"more than {self.limits.processes} processes")
        # to divide what they share takes the kernel a hundred times as long
        most = self.limits.memory * MB
        if sum(family.values()) > most and sum(map(_own_memory, family)) > most:
            raise Stopped("memory limit", f"more than {self.limits.memory} MB")

    def _ended(self) -> NoReturn:
        """Raise its end as Stopped; where it only closed the pipe, wait for its end."""
        while (code := self._process.poll()) is None:
            self._hold_to_limits()
            time.sleep(0.01)
        # bubblewrap and containers tell a signal as a shell does
        code = 128 - code if code - 128 in signal.valid_signals() else code
        if code == -signal.SIGKILL and isinstance(self.wall, Container):
            what = f"its container was ended, as one is beyond {self.limits.memory} MB"
            raise Stopped("memory limit", what)
        how = signal.strsignal(-code) if code < 0 else f"exit code {code}"
        raise Stopped("error", f"the process ended before its check did: {how}")

    def _family(self) -> dict[int, int]:
        """The process and its descendants: bytes of memory, shared ones too. Linux only."""
        children = _listed if CHILDREN_LISTED else _looked_for().__getitem__
        found: dict[int, int] = {}
        new = {self._process.pid}
        while new:
            found |= {pid: _memory(pid) for pid in new}
            new = {child for pid in new for child in children(pid)} - found.keys()
        return found


def _listed(pid: int) -> list[int]:
    """The children of a process, as the kernel lists them for each of its threads."""
    # it has just ended
    with contextlib.suppress(OSError):
        lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
        return [int(child) for each in lists for child in each.split()]
    return []


def _looked_for() -> defaultdict[int, list[int]]:
    """The children of each process of this machine."""
    found = defaultdict[int, list[int]](list)
    for path in Path("/proc").glob("[0-9]*/stat"):
        # it has just ended
        with contextlib.suppress(OSError):
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            found[parent].append(int(path.parent.name))
    return found


def _memory(pid: int) -> int:
    """Bytes of a process, with all that it shares."""
    # it has just ended
    with contextlib.suppress(OSError, ValueError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * mmap.PAGESIZE
    return 0


def _own_memory(pid: int) -> int:
    """Bytes of a process; what several share is divided among them, as after a fork."""
    # it has just ended, or may not be looked at
    with contextlib.suppress(OSError, ValueError):
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        return int(text.partition("\nPss:")[2].split()[0]) * 1024
    return 0


class Remote:
    """The answer number ``number`` of a process, to be called like a function."""

    # checks ask for it: operators inside cannot be counted from here
    far = True

    def __init__(self, process: Process, number: int) -> None:
        self.process, self.number = process, number

    def __call__(self, *arguments: Any) -> Any:
        data = values.send(arguments)
        known = list(values.parts(arguments))
        told = self.process.ask(
            {"do": "call", "number": self.number, "grad": torch.is_grad_enabled(), "data": data}
        )
        if "parts" in told:
            for part, now in zip(known, told["parts"], strict=True):
                values.change(part, now, known)
        raise_error(told)
        return values.decode(told["value"], known)


def raise_error(told: dict[str, Any]) -> None:
    """Raise what the student's code raised, by its name and as the nearest of `ERRORS`."""
    if "error" in told:
        kinds = [str(each)[:80] for each in told["error"]]
        nearest = next((ERRORS[name] for name in kinds if name in ERRORS), Exception)
        raise type(kinds[0], (nearest,), {})(str(told["message"]))
