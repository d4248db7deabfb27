"""What a notebook's labs measure, on its way from the kernel to the recorder: a line for each.

The kernel itself appends to the file, as soon as there is a result.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from course.records.format import AnyEntry, Result, encode, entry_of
from labkit.journal import open_journal

LISTEN = "from course.records import listening; listening.listen({!r}); del listening"
# Seconds between two looks whether the recorder still lives.
LOOK = 0.1

_entries = msgspec.json.Decoder(AnyEntry)


class Listener:
    """Appends each result to a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def keep(self, result: Result, about: Mapping[str, int | None]) -> None:
        """What a kernel's journal calls."""
        with self.file.open("ab") as file:
            file.write(encode(entry_of(result, **about)) + b"\n")


def read_entries(file: Path) -> tuple[AnyEntry, ...]:
    """The results of a file, in order; none where there is no file.

    The last line may have been cut off with its kernel: without its end it is left out.
    """
    if not file.exists():
        return ()
    *whole, _ = file.read_bytes().split(b"\n")
    return tuple(map(_entries.decode, whole))


def first_line(file: Path) -> str:
    """The Python line with which a kernel begins whose results go to ``file``."""
    return LISTEN.format(str(file.resolve()))


def listen(file: str) -> None:
    """In the kernel: keep all that its labs measure, and end when the recorder does."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    open_journal(Listener(Path(file)).keep)


def _end_with(parent: int) -> None:
    """A killed recorder leaves its kernel behind, which would disturb what the next call times."""
    while os.getppid() == parent:
        time.sleep(LOOK)
    os._exit(1)
