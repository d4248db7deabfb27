"""Record notebooks: run them headless at this machine's full size and keep what their labs
measured.

What was found out on the way:

- Cells are executed one by one. `NotebookClient.execute` takes Ctrl-C for itself, and then fails
  with an AssertionError.
- A kernel that is asked to end in the middle of a cell prints tracebacks; it is ended at once.
- A kernel runs in the notebook's folder: paths in the environment are made absolute for it.
- The result file of a full disk ends in half a line: what follows the last newline is left out.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import re
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from course.notebook_files import (
    NOTEBOOKS,
    ROOT,
    code_cells,
    course_notebooks,
    notebook_path,
    read_notebook,
)
from course.records.format import (
    RecordError,
    RecordFile,
    Result,
    decode,
    decode_entry,
    encode,
    entry_of,
)
from course.records.notebook_hash import notebook_hash
from course.records.store import LARGEST, Record, read, read_all, reference_folder, write
from labkit.journal import Keeper, open_journal
from labkit.machine import machine_card, machine_state
from labkit.progress import progress

OVER = "the time budget was over"
LISTEN = "from course.records import record; record.listen({!r}); del record"
# Seconds that a notebook is taken to need that nobody has recorded yet.
UNKNOWN_SECONDS = 120
NAME = re.compile(r"[A-Za-z0-9_-]+")

Card = dict[str, Any]


def machine_name(card: Mapping[str, Any]) -> str:
    """A folder name for a machine, from its GPU or else its CPU and cores.

    ``nvidia-h200``, ``amd-epyc-2-cores``.
    """
    if card.get("gpu"):
        name = card["gpu"]["name"]
    else:
        name = f"{card['cpu']['model']} {card['cpu']['cores']} cores"
    plain = re.sub(r"\((r|tm)\)|\bprocessor\b|\bcpu\b", "", name.lower())
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-") or "unnamed-machine"


# --------------------------------------------------------------------------------------- recording


def record(
    notebooks: Sequence[Path] = (),
    out: Path | None = None,
    *,
    budget_minutes: float | None = None,
    again: bool = False,
) -> int:
    """Record notebooks (all, if none is named) into ``out/<machine>/``; the number that failed.

    What was recorded already with the same code, labkit and torch is passed over unless ``again``:
    a run that was stopped goes on where it was. With a budget, the missing come first, then the
    oldest, as many as fit. ``out`` may be a ``.zip``: the one file to carry home, whole after every
    notebook; `add` unpacks it.
    """
    if budget_minutes is not None and not 0 < budget_minutes < math.inf:
        raise ValueError(f"budget_minutes={budget_minutes!r}: use a positive number of minutes")
    paths = [_find(path) for path in notebooks or course_notebooks()]
    end = math.inf
    if budget_minutes is not None:
        end = time.monotonic() + 60 * budget_minutes
    with _unpacked(out or reference_folder()) as (top, pack):
        # Now, and not after the first notebook.
        _check_writable(top)
        print("measuring this machine ...", flush=True)
        card = machine_card(measure=True)
        folder = top / machine_name(card)
        old = {path: _old(folder / f"{path.stem}.json") for path in paths}
        jobs = _jobs(old, card, again=again, by_age=budget_minutes is not None)
        failed = 0
        for number, path in enumerate(jobs, 1):
            expected = _expected_seconds(path, old[path])
            if expected > end - time.monotonic():
                wait = f"takes about {expected:.0f} s, more than is left of the budget; next time"
                print(f"{path.stem}: {wait}")
                continue
            print(f"{path.stem} ({number} of {len(jobs)})", flush=True)
            content = _run(path, card, end)
            failed += content.failed is not None
            print(f"  {_keep(folder, content, old[path])}", flush=True)
            pack()
    return failed


def _jobs(
    old: Mapping[Path, Record | None], card: Card, *, again: bool, by_age: bool
) -> list[Path]:
    """The notebooks to record, in order."""
    jobs = []
    for path, there in old.items():
        if there is not None and not again and _is_current(there, path, card):
            when = f"recorded {there.recorded:%Y-%m-%d} with this very code"
            print(f"{path.stem}: {when}; --again records it anew")
        else:
            jobs.append(path)
    if by_age:
        jobs.sort(key=lambda path: _turn(old[path]))
    return jobs


def _find(path: Path) -> Path:
    """A notebook by its path, or by its name in the course."""
    for candidate in (path, notebook_path(path.stem)):
        if candidate.suffix == ".ipynb" and candidate.is_file():
            if not NAME.fullmatch(candidate.stem):
                wanted = "a record is named after its notebook; use letters, digits, - and _"
                raise ValueError(f"{candidate.name}: {wanted}")
            return candidate
    raise FileNotFoundError(f"no notebook at {path}, and none of that name in {NOTEBOOKS}")


def _check_writable(folder: Path) -> None:
    """OSError, naming the place, if records cannot be written there."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


def _old(path: Path) -> Record | None:
    """The record that is there already."""
    if not path.exists():
        return None
    try:
        return read(path)
    except RecordError as error:
        print(f"{error}; it will be replaced")
        return None


def _is_current(old: Record, path: Path, card: Card) -> bool:
    """Whether nothing that could change the figures has changed since."""
    if old.failed:
        return False
    then = old.notebook_hash, old.labkit, old.card["torch"], _hardware(old.card)
    now = notebook_hash(path), card["labkit"], card["torch"], _hardware(card)
    return then == now


def _hardware(card: Card) -> str | None:
    """Machines whose CPUs tell no more than "Xeon" share a folder;
    what they can do tells them apart.
    """
    if card["gpu"]:
        return str(card["gpu"]["name"])
    if isinstance(card["cpu"], dict):
        return str(card["cpu"].get("instructions"))
    return None


def _turn(old: Record | None) -> tuple[int, float]:
    """Order under a budget: the missing, the doubtful, the oldest;
    last what the budget ended before.
    """
    if old is None:
        return 0, 0.0
    if old.failed == OVER:
        turn = 3
    elif old.doubt:
        turn = 1
    else:
        turn = 2
    return turn, old.recorded.timestamp()


def _expected_seconds(path: Path, old: Record | None) -> float:
    """What this notebook takes: as here the last time, else as on the slowest of other machines."""
    if old is not None and old.seconds:
        if not old.failed:
            return old.seconds
        if old.failed == OVER:
            # It was not at its end yet.
            return 1.5 * old.seconds
    known = [UNKNOWN_SECONDS]
    others, _ = read_all(path.stem)
    whole = [other.seconds for other in others if other.seconds and not other.failed]
    return max(whole or known)


# ------------------------------------------------------------------------------------ one notebook


def _run(path: Path, card: Card, end: float) -> RecordFile:
    """Run one notebook; the record, also of a run that failed."""
    before, begin = machine_state(), time.monotonic()
    with tempfile.TemporaryDirectory() as draft:
        kept = Path(draft) / "results.jsonl"
        kept.touch()
        failed = _execute(path, kept, end)
        lines = kept.read_bytes().split(b"\n")
    results = tuple(map(decode_entry, lines[:-1]))
    if not results and not failed:
        failed = "none of its cells called lab.run, lab.sweep or lab.race"
    return RecordFile(
        notebook=path.stem,
        notebook_hash=notebook_hash(path),
        recorded=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        seconds=round(time.monotonic() - begin, 1),
        labkit=card["labkit"],
        failed=failed,
        machine=card,
        before=before,
        after=machine_state(),
        results=results,
    )


def _execute(path: Path, kept: Path, end: float) -> str | None:
    """Run all cells in a kernel that collects into ``kept``; why it ended early, or None."""
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    def seconds_left(cell: object) -> int | None:
        if math.isinf(end):
            return None
        return max(1, int(end - time.monotonic()))

    notebook = read_notebook(path)
    with progress(total=len(code_cells(notebook)), desc="  cells", unit="cell") as bar:
        client = NotebookClient(
            notebook,
            timeout_func=seconds_left,
            startup_timeout=300,
            shutdown_kernel="immediate",
            resources={"metadata": {"path": path.parent}},
            extra_arguments=[
                # Not a warning for each start.
                "--IPKernelApp.log_level=ERROR",
                f"--IPKernelApp.exec_lines={LISTEN.format(str(kept))}",
            ],
            on_cell_executed=lambda **_: bar.update(),
        )
        try:
            with client.setup_kernel(env=_environment()):
                for index, cell in enumerate(notebook.cells):
                    client.execute_cell(cell, index)
        except CellTimeoutError:
            return OVER
        except CellExecutionError as error:
            return _first_line(f"{error.ename}: {error.evalue}")
        except DeadKernelError as error:
            return str(error)
        except KeyboardInterrupt:
            # The kernel has ended; asyncio would print tracebacks of what was left behind.
            logging.getLogger("asyncio").setLevel(logging.CRITICAL)
            raise
        except Exception as error:
            # Whatever ends one notebook must not end the others.
            return _first_line(f"{type(error).__name__}: {error}")
    return None


def _first_line(text: str) -> str:
    return text.partition("\n")[0][:500]


def listen(kept: str) -> None:
    """In the kernel: keep all that its labs measure in this file."""
    open_journal(keeper(Path(kept)), counters=True)


def keeper(path: Path) -> Keeper:
    """A keeper for `labkit.journal` that appends each result to the file."""

    def append(result: Result, about: Mapping[str, int | None]) -> None:
        line = encode(entry_of(result, **about))
        with path.open("ab") as file:
            file.write(line + b"\n")

    return append


def _environment() -> dict[str, str]:
    """The kernel's environment: the course can be imported, at its full size,
    with absolute paths.
    """
    # labkit may not be installed.
    paths = [str(ROOT)]
    for path in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        if path:
            paths.append(os.path.abspath(path))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "LABKIT_SIZE": "full"}
    data = os.environ.get("LABKIT_DATA")
    if data:
        environment["LABKIT_DATA"] = os.path.abspath(data)
    return environment


def _keep(folder: Path, content: RecordFile, old: Record | None) -> str:
    """Write the record, unless it failed where an earlier one had not; what was done, in words."""
    if content.failed and old is not None and not old.failed:
        return f"FAILED: {content.failed}; the record of {old.recorded:%Y-%m-%d} stays"
    path = write(folder, content)
    what = f"{len(content.results)} results"
    if content.failed:
        what = f"FAILED: {content.failed}; recorded as failed"
    return f"{what}, {content.seconds or 0:.0f} s, in {path}"


# -------------------------------------------------------------------------------------- travelling


@contextmanager
def _unpacked(out: Path) -> Iterator[tuple[Path, Callable[[], None]]]:
    """The folder to write to, and a function that packs it, for a folder or a zip file."""
    if out.suffix != ".zip":
        yield out, lambda: None
        return
    with tempfile.TemporaryDirectory() as draft:
        folder = Path(draft) / "records"
        if out.exists():
            with zipfile.ZipFile(out) as archive:
                archive.extractall(folder)
        yield folder, lambda: _pack(folder, out)


def _pack(folder: Path, out: Path) -> None:
    """Pack the folder's records; the old file stays if that fails."""
    out.parent.mkdir(parents=True, exist_ok=True)
    draft = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
            for path in sorted(folder.glob("*/*.json")):
                archive.write(path, path.relative_to(folder))
        os.replace(draft, out)
    finally:
        draft.unlink(missing_ok=True)


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
    old = _old(folder / f"{content.notebook}.json")
    name = f"{folder.name}/{content.notebook}"
    if old is not None and old.recorded > content.time:
        return f"{name}: not added, the record of {old.recorded:%Y-%m-%d} is newer"
    return f"{name}: {_keep(folder, content, old)}"


def main(args: argparse.Namespace) -> int:
    """``python -m course record``: 0 when all went well, else 1."""
    try:
        if args.add:
            print(*add(args.add, args.out), sep="\n")
            return 0
        minutes = args.budget_minutes
        failed = record(args.notebooks, args.out, budget_minutes=minutes, again=args.again)
    except KeyboardInterrupt:
        said = "stopped; every notebook that was done is recorded, and the same command goes on"
        print(f"\n{said}", file=sys.stderr)
        return 130
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        print(f"course: {error}", file=sys.stderr)
        return 1
    return int(failed > 0)
