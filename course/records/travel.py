"""How records travel: in a folder or in one zip, continued, and brought home.

A zip is written beside itself, flushed to the disk, and then takes the old one's place: whoever is
killed in between leaves the old one whole.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from course.records.card import machine_name
from course.records.format import RecordError, RecordFile, decode
from course.records.store import LARGEST, Record, read, reference_folder, write


@dataclass(frozen=True)
class Place:
    """Where records go: ``folder`` holds them, ``pack()`` makes the zip of it, if one is wanted."""

    folder: Path
    pack: Callable[[], None]


@contextmanager
def unpacked(out: Path) -> Iterator[Place]:
    """The place to write to, for a folder or a zip file, with what is there already."""
    if out.suffix != ".zip":
        yield Place(out, lambda: None)
        return
    with tempfile.TemporaryDirectory() as draft:
        folder = Path(draft) / "records"
        if out.exists():
            with zipfile.ZipFile(out) as archive:
                archive.extractall(folder)
        yield Place(folder, lambda: _pack(folder, out))


def check_writable(out: Path) -> None:
    """OSError, naming the place, if records cannot be written there."""
    folder = out
    if out.suffix == ".zip":
        folder = out.parent
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


def _pack(folder: Path, out: Path) -> None:
    """Pack the folder's records; the old file stays if that fails."""
    out.parent.mkdir(parents=True, exist_ok=True)
    # Of a recorder that was killed while it packed.
    for left_behind in out.parent.glob(f".{out.name}.*"):
        left_behind.unlink()
    draft = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        with draft.open("wb") as file:
            _write_zip(folder, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, out)
    finally:
        draft.unlink(missing_ok=True)


def _write_zip(folder: Path, file: BinaryIO) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
        for path in sorted(folder.glob("*/*.json")):
            archive.write(path, path.relative_to(folder))


def add(files: Iterable[Path], out: Path | None = None) -> list[str]:
    """Unpack records of other machines into ``out/<machine>/``; what became of each, in words.

    All are checked before any is written. A record that is there already and is newer, or whole
    where the other failed, stays.
    """
    top = out or reference_folder()
    found: list[tuple[Path, RecordFile]] = []
    for file in files:
        if not zipfile.is_zipfile(file):
            wanted = "no zip of records, as `python -m course record --out FILE.zip` makes one"
            raise RecordError(f"{file}: {wanted}")
        with zipfile.ZipFile(file) as archive:
            for info in archive.infolist():
                if info.is_dir():
                    continue
                try:
                    machine, content = _unpack(archive, info)
                except (RecordError, LookupError, TypeError, RuntimeError, zlib.error) as error:
                    refused = f"{file}: {info.filename} {error}; nothing was added"
                    raise RecordError(refused) from None
                found.append((top / machine, content))
    return [_add(folder, content) for folder, content in found]


def _unpack(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> tuple[str, RecordFile]:
    """One record of a zip, and its machine's name."""
    if info.file_size > LARGEST:
        raise RecordError(f"has {info.file_size} bytes, a record at most {LARGEST}")
    content = decode(archive.read(info))
    machine = machine_name(content.machine)
    if info.filename != f"{machine}/{content.notebook}.json":
        raise RecordError("is not named after its machine and notebook")
    return machine, content


def _add(folder: Path, content: RecordFile) -> str:
    old = old_record(folder / f"{content.notebook}.json")
    name = f"{folder.name}/{content.notebook}"
    if old is not None and old.recorded > content.time:
        return f"{name}: not added, the record of {old.recorded:%Y-%m-%d} is newer"
    return f"{name}: {keep(folder, content, old)}"


def old_record(path: Path) -> Record | None:
    """The record that is there already."""
    if not path.exists():
        return None
    try:
        return read(path)
    except RecordError as error:
        print(f"{error}; it will be replaced")
        return None


def keep(folder: Path, content: RecordFile, old: Record | None) -> str:
    """Write the record, unless it failed where an earlier one had not; what was done, in words."""
    if content.failed and old is not None and not old.failed:
        return f"FAILED: {content.failed}; the record of {old.recorded:%Y-%m-%d} stays"
    path = write(folder, content)
    what = f"{len(content.results)} results"
    if content.failed:
        what = f"FAILED: {content.failed}; recorded as failed"
    return f"{what}, {content.seconds or 0:.0f} s, in {path}"
