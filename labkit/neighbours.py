"""Other processes that measure on this machine: noticed by advisory locks, and told, never refused.

Two kernels that measure at once spoil each other's figures, since waiting threads of torch spin:
beside another busy kernel one training fell from 1661 to 77 images per second. Each process that
measures holds a lock on a file of its own in one folder of the temporary directory. The lock ends
with its process, however that ends. Windows has no such locks: there nothing is noticed.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:
    # Windows
    fcntl = None  # type: ignore[assignment]


def folder() -> Path:
    """Where the lock files of this machine's processes are."""
    return Path(tempfile.gettempdir()) / "labkit-measuring"


class Presence:
    """Tells the other processes of this machine that this one measures."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None

    def begin(self) -> None:
        """Take the lock. Where there is no place for one, nobody is told."""
        if fcntl is None:
            return
        with contextlib.suppress(OSError):
            here = folder()
            here.mkdir(exist_ok=True)
            # Every user of the machine has a place in it.
            with contextlib.suppress(PermissionError):
                here.chmod(0o1777)
            file = _own(here / str(os.getpid()))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.close()
                raise
            self._file = file

    def end(self) -> None:
        """Give the lock back, also for workers that were forked meanwhile and hold the file."""
        file, self._file = self._file, None
        if file is None:
            return
        with contextlib.suppress(OSError):
            (folder() / str(os.getpid())).unlink(missing_ok=True)
        fcntl.flock(file, fcntl.LOCK_UN)
        file.close()


def neighbours() -> list[int] | None:
    """The other processes that measure on this machine now, by number.

    None where they cannot be seen.
    """
    if fcntl is None:
        return None
    found = []
    for path in _others():
        with contextlib.suppress(OSError), path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                found.append(int(path.name))
    return sorted(found)


def _own(path: Path) -> IO[bytes]:
    """This process's file; never what another user has put a link to in its place."""
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644), "wb")


def _others() -> Iterator[Path]:
    with contextlib.suppress(OSError):
        for path in folder().iterdir():
            if path.name.isdecimal() and int(path.name) != os.getpid():
                yield path


def told() -> str:
    """What to say of the neighbours; "" when there are none."""
    found = neighbours()
    if not found:
        return ""
    who = f"Another process ({found[0]})"
    verb = "measures"
    if len(found) > 1:
        who, verb = f"{len(found)} other processes", "measure"
    return f"{who} {verb} on this machine: the figures of all are disturbed. Let one finish first."
