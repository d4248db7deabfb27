"""Record notebooks: run them headless at this machine's full size and keep what their labs measured."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from labkit.machine import machine_card, machine_state
from labkit.records.files import (
    SCHEMA,
    Record,
    RecordError,
    check,
    notebook_hash,
    notebook_path,
    read,
    reference_folder,
    write,
)
from labkit.units import progress

_ROOT = Path(__file__).resolve().parents[2]  # where labkit lies
UNKNOWN_SECONDS = 120  # what a notebook is taken to need that nobody has recorded yet


def machine_name(card: dict[str, Any]) -> str:
    """A folder name for a machine, from its GPU or else its CPU and cores: ``nvidia-h200``, ``amd-epyc-2-cores``."""
    name = card["gpu"]["name"] if card.get("gpu") else f"{card['cpu']['model']} {card['cpu']['cores']} cores"
    plain = re.sub(r"\((r|tm)\)|\bprocessor\b|\bcpu\b", "", name.lower())
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")


def record(
    notebooks: Sequence[Path] = (), out: Path | None = None, *, budget_minutes: float | None = None, again: bool = False
) -> int:
    """Record notebooks (all, if none is named) into ``out/<machine>/``; 0 when all of them succeeded, else 1.

    What was recorded already with the same code, labkit and torch is passed over unless ``again``: a run that was
    stopped goes on where it was. With a budget, the missing come first, then the oldest, as many as fit. ``out`` may be
    a ``.zip``: the one file to carry home, whole after every notebook; `add` unpacks it.
    """
    if budget_minutes is not None and not budget_minutes > 0:
        raise ValueError(f"budget_minutes={budget_minutes!r}: use a positive number of minutes")
    paths = [_find(path) for path in notebooks or sorted(notebook_path("x").parent.glob("[0-9]*.ipynb"))]
    end = None if budget_minutes is None else time.monotonic() + 60 * budget_minutes
    print("measuring this machine ...", flush=True)
    card = machine_card(measure=True)
    with _unpacked(out or reference_folder()) as (folder, pack):
        folder = folder / machine_name(card)
        old = {path: _old(folder / f"{path.stem}.json") for path in paths}
        done = [] if again else [path for path in paths if _is_current(old[path], path, card)]
        for path in done:
            print(f"{path.stem}: recorded {old[path].recorded:%Y-%m-%d} with this very code; --again records it anew")
        jobs = [path for path in paths if path not in done]
        if end is not None:
            jobs.sort(key=lambda path: old[path].recorded.timestamp() if old[path] and not old[path].doubt else 0)
        failed = 0
        for number, path in enumerate(jobs, 1):
            if end is not None and (expected := _expected(path, folder)) > end - time.monotonic():
                print(f"{path.stem}: takes about {expected:.0f} s, more than is left of the budget; next time")
                continue
            print(f"{path.stem} ({number} of {len(jobs)})", flush=True)
            entry = _run(path, card, None if end is None else end - time.monotonic())
            failed += entry["failed"] is not None
            print(f"  {_keep(folder, entry, old[path])}", flush=True)
            pack()
    return int(failed > 0)


def add(files: Iterable[Path], out: Path | None = None) -> list[Path]:
    """Unpack records of other machines into ``out/<machine>/``; all are checked before any is written."""
    found: list[tuple[str, dict[str, Any]]] = []
    for file in files:
        with zipfile.ZipFile(file) as archive:
            for name in archive.namelist():
                machine, _, notebook = name.partition("/")
                try:
                    entry = json.loads(archive.read(name))
                    check(entry)
                    if machine != machine_name(entry["machine"]) or notebook != f"{entry['notebook']}.json":
                        raise RecordError("is not named after its machine and notebook")
                except (RecordError, ValueError) as error:
                    raise RecordError(f"{file}: {name} {error}; nothing was added") from None
                found.append((machine, entry))
    return [write((out or reference_folder()) / machine, entry) for machine, entry in found]


def _find(path: Path) -> Path:
    """A notebook by its path, or by its name in the course."""
    for candidate in (path, notebook_path(path.stem)):
        if candidate.suffix == ".ipynb" and candidate.is_file():
            return candidate
    raise FileNotFoundError(f"no notebook at {path}, and none of that name in {notebook_path('x').parent}")


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
                with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
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
    known = old.notebook_hash, old.labkit, old.card["torch"]
    return known == (notebook_hash(path), card["labkit"], card["torch"])


def _expected(path: Path, folder: Path) -> float:
    """Seconds that this notebook took when it was last recorded: here, or at most on any machine of the reference."""
    places = [folder / f"{path.stem}.json", *reference_folder().glob(f"*/{path.stem}.json")]
    known = [found.seconds for place in places if (found := _old(place)) and found.seconds and not found.failed]
    return max(known, default=UNKNOWN_SECONDS)


def _run(path: Path, card: dict[str, Any], seconds_left: float | None) -> dict[str, Any]:
    """Run one notebook; the record, also of a run that failed."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    before, begin, failed = machine_state(), time.monotonic(), None
    with tempfile.TemporaryDirectory() as draft, progress(total=len(code), desc="  cells", unit="cell") as bar:
        results = Path(draft) / "results.jsonl"
        client = NotebookClient(
            notebook,
            timeout_func=lambda _: (
                None if seconds_left is None else max(1, int(begin + seconds_left - time.monotonic()))
            ),
            resources={"metadata": {"path": path.parent}},
            extra_arguments=["--IPKernelApp.log_level=ERROR"],  # not a warning for each start
            on_cell_executed=lambda **_: bar.update(),
        )
        try:
            found_here = os.pathsep.join(
                filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")])
            )  # not installed, perhaps
            recording = {"LABKIT_RECORD": str(results), "LABKIT_SIZE": "full", "PYTHONPATH": found_here}
            client.execute(env=os.environ | recording)
        except CellTimeoutError:
            failed = "the time budget was over"
        except CellExecutionError as error:
            failed = f"{error.ename}: {error.evalue}".splitlines()[0]
        except DeadKernelError as error:
            failed = str(error)
        except (
            KeyboardInterrupt
        ):  # nbclient has ended the kernel; asyncio would print tracebacks of what it left behind
            logging.getLogger("asyncio").setLevel(logging.CRITICAL)
            raise
        kept = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
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


def _keep(folder: Path, entry: dict[str, Any], old: Record | None) -> str:
    """Write the record, unless it failed where an earlier one had not; what was done, in words."""
    if entry["failed"] and old is not None and not old.failed:
        return f"FAILED: {entry['failed']}; the record of {old.recorded:%Y-%m-%d} stays"
    path = write(folder, entry)
    what = f"FAILED: {entry['failed']}; recorded as failed" if entry["failed"] else f"{len(entry['results'])} results"
    return f"{what}, {entry['seconds']:.0f} s, in {path}"


def main(args: Any) -> int:
    """``labkit record``."""
    try:
        if args.add:
            for path in add(args.add, args.out):
                print(f"added {path}")
            return 0
        return record(args.notebooks, args.out, budget_minutes=args.budget_minutes, again=args.again)
    except KeyboardInterrupt:
        print("\nstopped; every notebook that was done is recorded, and the same command goes on", file=sys.stderr)
        return 130
    except (OSError, RecordError, ValueError, zipfile.BadZipFile) as error:
        print(f"labkit: {error}", file=sys.stderr)
        return 1
