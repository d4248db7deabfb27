"""Records where they lie, ``data/reference/<machine>/<notebook>.json``: read with their doubts,
and written.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from course.notebook_files import ROOT, long_path
from course.records.format import RecordError, RecordFile, Result, decode, encode
from course.records.notebook_hash import notebook_hash
from course.written import write_whole

# Bytes of a record: what is easily carried home from a borrowed machine.
LARGEST = 16 * 2**20


@dataclass(frozen=True)
class Record:
    """One notebook's run on one machine. ``doubt`` says why it may no longer hold, or is None."""

    machine: str
    notebook: str
    notebook_hash: str
    recorded: datetime
    seconds: float | None
    labkit: str
    card: dict[str, Any]
    before: dict[str, Any]
    after: dict[str, Any]
    results: tuple[Result, ...]
    failed: str | None = None
    doubt: str | None = None

    @property
    def label(self) -> str:
        """Machine, date and doubt: how a record is named wherever it is drawn."""
        name = f"{self.machine}, {self.recorded:%Y-%m-%d}"
        if self.doubt:
            return f"{name} ({self.doubt})"
        return name

    @property
    def device(self) -> str:
        """``cuda`` for a machine with a GPU, else ``cpu``."""
        if self.card["gpu"]:
            return "cuda"
        return "cpu"


def reference_folder() -> Path:
    """Where recorded runs lie: ``data/reference`` of the checkout."""
    return ROOT / "data" / "reference"


def write(folder: Path, content: RecordFile) -> Path:
    """Write a record to ``folder/<notebook>.json``, and return the path.

    Raises RecordError, with nothing written, for a record that would be refused when read.
    """
    data = encode(content)
    if len(data) > LARGEST:
        size = f"{len(data)} bytes; a record has at most {LARGEST}"
        raise RecordError(f"{content.notebook}: {size}")
    decode(data)
    path = folder / f"{content.notebook}.json"
    write_whole(path, data.decode() + "\n")
    return path


def read(path: Path) -> Record:
    """One record. RecordError names the file and why it is refused."""
    try:
        content = decode(path.read_bytes())
        if content.notebook != path.stem:
            raise RecordError(f"is a record of {content.notebook}")
    except RecordError as error:
        raise RecordError(f"{path.parent.name}/{path.name} {error}") from None
    return Record(
        machine=path.parent.name,
        notebook=content.notebook,
        notebook_hash=content.notebook_hash,
        recorded=content.time,
        seconds=content.seconds,
        labkit=content.labkit,
        card=content.machine,
        before=content.before,
        after=content.after,
        results=tuple(entry.result() for entry in content.results),
        failed=content.failed,
        doubt=_doubt(content),
    )


def _doubt(content: RecordFile) -> str | None:
    if content.failed:
        return "ended early"
    notebook = long_path(content.notebook)
    if notebook.exists() and notebook_hash(notebook) != content.notebook_hash:
        return "of an older version of the notebook"
    return None


def read_all(notebook: str, folder: Path | None = None) -> tuple[list[Record], list[str]]:
    """The records of a notebook by machine, and the reasons why others were refused."""
    records, refused = [], []
    for path in sorted((folder or reference_folder()).glob(f"*/{notebook}.json")):
        try:
            records.append(read(path))
        except RecordError as error:
            refused.append(str(error))
    return records, refused
