"""Record notebooks: run them headless at this machine's full size and keep what their labs
measured.

A notebook's record is written when it is done, and the zip with it; the next call goes on with the
notebooks that are missing.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

from course.machine import machine_state
from course.records.card import Card, machine_name, measured_card
from course.records.format import Device, RecordFile
from course.records.jobs import Job, find, jobs, left_in_words
from course.records.kernel import execute
from course.records.listening import first_line, read_entries
from course.records.notebook_hash import notebook_hash
from course.records.store import reference_folder
from course.records.travel import Place, add, check_writable, keep, unpacked
from labkit.device import pick_device


def record(
    notebooks: Sequence[Path] = (),
    out: Path | None = None,
    *,
    budget_minutes: float | None = None,
    again: bool = False,
) -> int:
    """Record notebooks (all, if none is named) into ``out/<machine>/``; the number that failed.

    What was recorded already with the same code, labkit and torch is passed over unless ``again``:
    a run that was stopped goes on where it was. Notebooks that are named are taken in their order,
    all others in the course's; with a budget the missing, then the oldest, as many as fit. ``out``
    may be a ``.zip``: the one file to carry home, whole after every notebook; `add` unpacks it.
    """
    if budget_minutes is not None and not 0 < budget_minutes < math.inf:
        raise ValueError(f"budget_minutes={budget_minutes!r}: use a positive number of minutes")
    _check_device()
    paths = find(notebooks)
    end = math.inf
    if budget_minutes is not None:
        end = time.monotonic() + 60 * budget_minutes
    out = out or reference_folder()
    # Now, and not after the first notebook.
    check_writable(out)
    with unpacked(out) as place:
        print("measuring this machine ...", flush=True)
        card = measured_card()
        by_turn = budget_minutes is not None and not notebooks
        waiting = jobs(paths, place.folder, card, again=again, by_turn=by_turn)
        return _record_all(waiting, place, card, end)


def _check_device() -> None:
    """ValueError on an accelerator that records know no figures of."""
    kind = pick_device().type
    if kind not in get_args(Device):
        raise ValueError(
            f"the device is {kind!r}: records are of the CPU and of CUDA GPUs; "
            "LABKIT_DEVICE=cpu records this machine's CPU"
        )


def _record_all(waiting: list[Job], place: Place, card: Card, end: float) -> int:
    """Record one notebook after the other, as far as they fit; the number that failed."""
    failed, left = 0, []
    print(left_in_words(waiting), flush=True)
    for number, job in enumerate(waiting, 1):
        if job.expected.seconds > end - time.monotonic():
            print(f"{job.name}: takes {job.expected}, more than is left of the budget; next time")
            left.append(job)
            continue
        print(f"{job.name} ({number} of {len(waiting)}), {job.expected}", flush=True)
        content = _run(job, card, end)
        failed += content.failed is not None
        said = keep(place.folder / machine_name(card), content, job.old)
        place.pack()
        print(f"  {said}\n{left_in_words([*left, *waiting[number:]])}", flush=True)
    return failed


def _run(job: Job, card: Card, end: float) -> RecordFile:
    """Run one notebook; the record, also of a run that failed."""
    before, begin = machine_state(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results"
        failed = execute(job.path, first_line(file), end)
        results = read_entries(file)
    if not results and not failed:
        failed = "none of its cells called lab.run, lab.sweep or lab.race"
    return RecordFile(
        notebook=job.name,
        notebook_hash=notebook_hash(job.path),
        recorded=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        seconds=round(time.monotonic() - begin, 1),
        labkit=card["labkit"],
        failed=failed,
        machine=card,
        before=before,
        after=machine_state(),
        results=results,
    )


def main(args: argparse.Namespace) -> int:
    """``python -m course record``: 0 when all went well, else 1."""
    try:
        if args.add:
            print(*add(args.add, args.out), sep="\n")
            return 0
        failed = record(
            args.notebooks,
            args.out,
            budget_minutes=args.budget_minutes,
            again=args.again,
        )
    except KeyboardInterrupt:
        said = "stopped; the notebooks that were done are kept, and the same command goes on"
        print(f"\n{said}", file=sys.stderr)
        return 130
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        print(f"course: {error}", file=sys.stderr)
        return 1
    return int(failed > 0)
