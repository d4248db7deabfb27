"""Record notebooks: run them headless at this machine's full size and keep what their labs measured."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from course.notebook_files import NOTEBOOKS, ROOT, course_notebooks, notebook_path, read_notebook
from course.records.files import (
    LARGEST,
    SCHEMA,
    Record,
    RecordError,
    check,
    notebook_hash,
    read,
    read_all,
    reference_folder,
    write,
    writer,
)
from labkit.journal import open_journal
from labkit.machine import machine_card, machine_state
from labkit.progress import progress

OVER = "the time budget was over"
LISTEN = "from course.records import recording; recording.listen({!r}); del recording"
UNKNOWN_SECONDS = 120  # what a notebook is taken to need that nobody has recorded yet


def machine_name(card: dict[str, Any]) -> str:
    """A folder name for a machine, from its GPU or else its CPU and cores: ``nvidia-h200``, ``amd-epyc-2-cores``."""
    name = (
        card["gpu"]["name"]
        if card.get("gpu")
        else f"{card['cpu']['model']} {card['cpu']['cores']} cores"
    )
    plain = re.sub(r"\((r|tm)\)|\bprocessor\b|\bcpu\b", "", name.lower())
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-") or "unnamed-machine"


def record(
    notebooks: Sequence[Path] = (),
    out: Path | None = None,
    *,
    budget_minutes: float | None = None,
    again: bool = False,
) -> int:
    """Record notebooks (all, if none is named) into ``out/<machine>/``; 0 when all of them succeeded, else 1.

    What was recorded already with the same code, labkit and torch is passed over unless ``again``: a run that was
    stopped goes on where it was. With a budget, the missing come first, then the oldest, as many as fit. ``out`` may be
    a ``.zip``: the one file to carry home, whole after every notebook; `add` unpacks it.
    """
    if budget_minutes is not None and not 0 < budget_minutes < math.inf:
        raise ValueError(f"budget_minutes={budget_minutes!r}: use a positive number of minutes")
    paths = [_find(path) for path in notebooks or course_notebooks()]
    end = None if budget_minutes is None else time.monotonic() + 60 * budget_minutes
    with _unpacked(out or reference_folder()) as (top, pack):
        _writable(top)  # now, and not after the first notebook
        print("measuring this machine ...", flush=True)
        card = machine_card(measure=True)
        folder = top / machine_name(card)
        old = {path: _old(folder / f"{path.stem}.json") for path in paths}
        done = [] if again else [path for path in paths if _is_current(old[path], path, card)]
        for path in done:
            print(
                f"{path.stem}: recorded {old[path].recorded:%Y-%m-%d} with this very code; --again records it anew"
            )
        jobs = [path for path in paths if path not in done]
        if end is not None:
            jobs.sort(key=lambda path: _turn(old[path]))
        failed = 0
        for number, path in enumerate(jobs, 1):
            if (
                end is not None
                and (expected := _expected(path, old[path])) > end - time.monotonic()
            ):
                print(
                    f"{path.stem}: takes about {expected:.0f} s, more than is left of the budget; next time"
                )
                continue
            print(f"{path.stem} ({number} of {len(jobs)})", flush=True)
            entry = _run(path, card, None if end is None else end - time.monotonic())
            failed += entry["failed"] is not None
            print(f"  {_keep(folder, entry, old[path])}", flush=True)
            pack()
    return int(failed > 0)


def add(files: Iterable[Path], out: Path | None = None) -> list[str]:
    """Unpack records of other machines into ``out/<machine>/``; what became of each, in words.

    All are checked before any is written; a record that is there already and is newer, or whole where the other failed,
    stays.
    """
    found: list[tuple[Path, dict[str, Any]]] = []
    for file in files:
        if not zipfile.is_zipfile(file):
            raise RecordError(
                f"{file}: no zip of records, as `python -m course record --out FILE.zip` makes one"
            )
        with zipfile.ZipFile(file) as archive:
            for info in archive.infolist():
                if info.is_dir():
                    continue
                try:
                    if info.file_size > LARGEST:
                        raise RecordError(f"has {info.file_size} bytes, a record at most {LARGEST}")
                    entry = json.loads(archive.read(info))
                    check(entry)
                    machine = machine_name(entry["machine"])
                    if info.filename != f"{machine}/{entry['notebook']}.json":
                        raise RecordError("is not named after its machine and notebook")
                except (
                    RecordError,
                    ValueError,
                    LookupError,
                    TypeError,
                    RuntimeError,
                    zlib.error,
                ) as error:
                    raise RecordError(
                        f"{file}: {info.filename} {error}; nothing was added"
                    ) from None
                found.append(((out or reference_folder()) / machine, entry))
    return [_add(folder, entry) for folder, entry in found]


def _add(folder: Path, entry: dict[str, Any]) -> str:
    old = _old(folder / f"{entry['notebook']}.json")
    name = f"{folder.name}/{entry['notebook']}"
    if old is not None and f"{old.recorded:%Y-%m-%dT%H:%M:%SZ}" > entry["recorded"]:
        return f"{name}: not added, the record of {old.recorded:%Y-%m-%d} is newer"
    return f"{name}: {_keep(folder, entry, old)}"


def _find(path: Path) -> Path:
    """A notebook by its path, or by its name in the course."""
    for candidate in (path, notebook_path(path.stem)):
        if candidate.suffix == ".ipynb" and candidate.is_file():
            if not re.fullmatch(r"[A-Za-z0-9_-]+", candidate.stem):
                raise ValueError(
                    f"{candidate.name}: a record is named after its notebook; use letters, digits, - and _"
                )
            return candidate
    raise FileNotFoundError(f"no notebook at {path}, and none of that name in {NOTEBOOKS}")


def _writable(folder: Path) -> None:
    """OSError, naming the place, if records cannot be written there."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


@contextmanager
def _unpacked(out: Path) -> Iterator[tuple[Path, Any]]:
    """The folder to write to, and a function that packs it, for an ``out`` that is a folder or a zip file."""
    if out.suffix != ".zip":
        yield out, lambda: None
        return
    with tempfile.TemporaryDirectory() as draft:
        folder = Path(draft) / "records"
        if out.exists():
            with zipfile.ZipFile(out) as archive:
                archive.extractall(folder)

        def pack() -> None:
            out.parent.mkdir(parents=True, exist_ok=True)
            packed = out.with_name(f".{out.name}.{os.getpid()}")
            try:
                with zipfile.ZipFile(
                    packed, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False
                ) as archive:
                    for path in sorted(folder.glob("*/*.json")):
                        archive.write(path, path.relative_to(folder))
                os.replace(packed, out)
            finally:
                packed.unlink(missing_ok=True)

        yield folder, pack


def _old(path: Path) -> Any:
    """The record that is there already, or None."""
    try:
        return read(path) if path.exists() else None
    except RecordError as error:
        print(f"{error}; it will be replaced")
        return None


def _is_current(old: Record | None, path: Path, card: dict[str, Any]) -> bool:
    """Whether nothing that could change the figures has changed since."""
    if old is None or old.failed:
        return False
    known = old.notebook_hash, old.labkit, old.card["torch"], _hardware(old.card)
    return known == (notebook_hash(path), card["labkit"], card["torch"], _hardware(card))


def _hardware(card: dict[str, Any]) -> Any:
    """Machines whose CPUs tell no more than "Xeon" share a folder; what they can do tells them apart."""
    if gpu := card["gpu"]:
        return gpu["name"]
    return str(card["cpu"].get("instructions")) if isinstance(card["cpu"], dict) else None


def _turn(old: Record | None) -> tuple[int, float]:
    """The order within a budget: missing, then doubtful, oldest first; what the budget once ended comes last."""
    if old is None:
        return 0, 0.0
    return (3 if old.failed == OVER else 1 if old.doubt else 2), old.recorded.timestamp()


def _expected(path: Path, old: Record | None) -> float:
    """Seconds that this notebook takes: as here the last time, else as on the slowest of the other machines."""
    if old is not None and old.seconds and (not old.failed or old.failed == OVER):
        return old.seconds * (1.5 if old.failed else 1)  # it was not at its end yet
    known = [
        found.seconds for found in read_all(path.stem)[0] if found.seconds and not found.failed
    ]
    return max(known, default=UNKNOWN_SECONDS)


def _run(path: Path, card: dict[str, Any], seconds_left: float | None) -> dict[str, Any]:
    """Run one notebook; the record, also of a run that failed."""
    before, begin = machine_state(), time.monotonic()
    with tempfile.TemporaryDirectory() as draft:
        results = Path(draft) / "results.jsonl"
        failed = _execute(path, results, seconds_left)
        lines = results.read_text(encoding="utf-8").split("\n") if results.exists() else []
        kept = [
            json.loads(line) for line in lines[:-1]
        ]  # after the last newline: nothing, or what a full disk cut off
    if not kept and not failed:
        failed = "none of its cells called lab.run, lab.sweep or lab.race"
    return {
        "schema": SCHEMA,
        "notebook": path.stem,
        "notebook_hash": notebook_hash(path),
        "recorded": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "seconds": round(time.monotonic() - begin, 1),
        "labkit": card["labkit"],
        "failed": failed,
        "machine": card,
        "before": before,
        "after": machine_state(),
        "results": kept,
    }


def _execute(path: Path, results: Path, seconds_left: float | None) -> str | None:
    """Run all cells in a kernel of their own that collects into ``results``; why it ended early, or None."""
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    notebook, begin = read_notebook(path), time.monotonic()
    cells = sum(cell.cell_type == "code" for cell in notebook.cells)
    with progress(total=cells, desc="  cells", unit="cell") as bar:
        client = NotebookClient(
            notebook,
            timeout_func=lambda _: (
                None
                if seconds_left is None
                else max(1, int(begin + seconds_left - time.monotonic()))
            ),
            startup_timeout=300,
            shutdown_kernel="immediate",  # a kernel that is asked to end in the middle of a cell prints tracebacks
            resources={"metadata": {"path": path.parent}},
            extra_arguments=[
                "--IPKernelApp.log_level=ERROR",  # not a warning for each start
                f"--IPKernelApp.exec_lines={LISTEN.format(str(results))}",
            ],
            on_cell_executed=lambda **_: bar.update(),
        )
        try:
            # Cell by cell: `client.execute` takes Ctrl-C for itself, and fails with an AssertionError.
            with client.setup_kernel(env=_environment()):
                for index, cell in enumerate(notebook.cells):
                    client.execute_cell(cell, index)
        except CellTimeoutError:
            return OVER
        except CellExecutionError as error:
            return f"{error.ename}: {error.evalue}".split("\n", 1)[0][:500]
        except DeadKernelError as error:
            return str(error)
        except (
            KeyboardInterrupt
        ):  # the kernel has ended; asyncio would print tracebacks of what was left behind
            logging.getLogger("asyncio").setLevel(logging.CRITICAL)
            raise
        except Exception as error:  # whatever ends one notebook must not end the others
            return f"{type(error).__name__}: {error}".split("\n", 1)[0][:500]
    return None


def listen(results: str) -> None:
    """In the kernel: keep all that its labs measure in this file."""
    open_journal(writer(Path(results)), counters=True)


def _environment() -> dict[str, str]:
    """The kernel's, which runs in the notebook's folder: paths that were given relative to ours would miss there."""
    paths = [
        str(ROOT),
        *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)),
    ]  # labkit: not installed, perhaps
    absolute = {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, paths))}
    if data := os.environ.get("LABKIT_DATA"):
        absolute["LABKIT_DATA"] = os.path.abspath(data)
    return os.environ | absolute | {"LABKIT_SIZE": "full"}


def _keep(folder: Path, entry: dict[str, Any], old: Record | None) -> str:
    """Write the record, unless it failed where an earlier one had not; what was done, in words."""
    if entry["failed"] and old is not None and not old.failed:
        return f"FAILED: {entry['failed']}; the record of {old.recorded:%Y-%m-%d} stays"
    path = write(folder, entry)
    what = (
        f"FAILED: {entry['failed']}; recorded as failed"
        if entry["failed"]
        else f"{len(entry['results'])} results"
    )
    return f"{what}, {entry['seconds']:.0f} s, in {path}"


def main(args: Any) -> int:
    """``python -m course record``."""
    try:
        if args.add:
            print(*add(args.add, args.out), sep="\n")
            return 0
        return record(
            args.notebooks, args.out, budget_minutes=args.budget_minutes, again=args.again
        )
    except KeyboardInterrupt:
        print(
            "\nstopped; every notebook that was done is recorded, and the same command goes on",
            file=sys.stderr,
        )
        return 130
    except (OSError, RecordError, ValueError, zipfile.BadZipFile) as error:
        print(f"labkit: {error}", file=sys.stderr)
        return 1
