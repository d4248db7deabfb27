"""Record notebooks: run them headless at this machine's full size and keep what their labs
measured.

A notebook's record is written when it is done, and the zip with it. What a notebook that is cut off
had measured stands in a file beside (`course.records.unfinished`), and the next call goes on there.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import zipfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

from course.machine import machine_state
from course.records import loan
from course.records.card import Card, machine_name, measured_card
from course.records.format import Device, RecordFile
from course.records.jobs import Job, find, fits, jobs, left_in_words
from course.records.kernel import CUT_OFF, execute
from course.records.notebook_hash import notebook_hash
from course.records.store import reference_folder
from course.records.travel import Place, add, check_writable, keep, merge, unpacked
from course.records.unfinished import Run
from labkit.device import pick_device


def record(
    notebooks: Sequence[Path] = (),
    out: Path | None = None,
    *,
    earlier: Sequence[Path] = (),
    budget_minutes: float | None = None,
    again: bool = False,
) -> int:
    """Record notebooks (all, if none is named) into ``out/<machine>/``; the number that failed.

    What was recorded already with the same code, labkit and torch is passed over unless ``again``:
    a run that was stopped goes on where it was. Notebooks that are named are taken in their order.
    Else, on a GPU, the most claims that only a GPU can answer, for their time, come first; and with
    a budget the missing, then the oldest, as many as fit. ``out`` may be a ``.zip``: the one file
    to carry home, whole after every notebook; `add` unpacks it. ``earlier`` zips are merged first.
    """
    if budget_minutes is not None and not 0 < budget_minutes < math.inf:
        raise ValueError(f"budget_minutes={budget_minutes!r}: use a positive number of minutes")
    _check_device()
    paths = find(notebooks)
    whole = math.inf
    if budget_minutes is not None:
        whole = 60 * budget_minutes
    end = time.monotonic() + whole
    out = out or reference_folder()
    # Now, and not after the first notebook.
    check_writable(out)
    with unpacked(out) as place:
        if earlier:
            merge(earlier, place)
        print("measuring this machine ...", flush=True)
        card = measured_card()
        waiting = jobs(
            paths,
            place,
            card,
            named=bool(notebooks),
            again=again,
            by_turn=budget_minutes is not None,
        )
        # Of a recorder that was killed between the record and this.
        unfinished = {job.path for job in waiting if not job.current}
        for path in paths:
            if path not in unfinished:
                place.unfinished.drop(machine_name(card), path.stem)
        return _record_all(waiting, place, card, whole, end)


def _check_device() -> None:
    """ValueError on an accelerator that records know no figures of."""
    kind = pick_device().type
    if kind not in get_args(Device):
        raise ValueError(
            f"the device is {kind!r}: records are of the CPU and of CUDA GPUs; "
            "LABKIT_DEVICE=cpu records this machine's CPU"
        )


def _record_all(waiting: list[Job], place: Place, card: Card, whole: float, end: float) -> int:
    """Record one notebook after the other, as far as they fit; the number that failed."""
    failed, left, first = 0, [], True
    print(left_in_words(waiting), flush=True)
    for number, job in enumerate(waiting, 1):
        if not fits(job, end - time.monotonic(), whole, first=first):
            print(f"{job.name}: takes {job.expected}, more than is left of the budget; next time")
            left.append(job)
            continue
        first = False
        print(f"{job.name} ({number} of {len(waiting)}), {job.expected}", flush=True)
        content = _run(job, card, end, place)
        failed += content.failed is not None
        said = keep(place.folder / machine_name(card), content, job.old)
        place.pack()
        if content.failed in CUT_OFF:
            # As the next call will see it.
            left += jobs([job.path], place, card, named=True)
        else:
            # Only now: whoever is killed before has the results still.
            place.unfinished.drop(machine_name(card), job.name)
        print(f"  {said}\n{left_in_words([*left, *waiting[number:]])}", flush=True)
    return failed


def _run(job: Job, card: Card, end: float, place: Place) -> RecordFile:
    """Run one notebook; the record, also of a run that failed."""
    before, begin = machine_state(), time.monotonic()
    run = Run.begin(place.unfinished.path, job.path, card)
    place.unfinished.begin(run)
    kept = place.unfinished.kept(run.notebook, run.code)
    if kept:
        print(f"  goes on: {len(kept)} results of an earlier call are kept", flush=True)
    failed = execute(job.path, run.first_line, end)
    lines = place.unfinished.of(run)
    if not lines and not failed:
        failed = "none of its cells called lab.run, lab.sweep or lab.race"
    seconds = time.monotonic() - begin
    for line in lines:
        if line.measured_in != run.name:
            seconds += line.seconds
    return RecordFile(
        notebook=job.name,
        notebook_hash=notebook_hash(job.path),
        recorded=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        seconds=round(seconds, 1),
        runs=len({run.name, *(line.measured_in for line in lines)}),
        labkit=card["labkit"],
        failed=failed,
        machine=card,
        before=before,
        after=machine_state(),
        results=tuple(line.result for line in lines),
    )


def main(args: argparse.Namespace) -> int:
    """``python -m course record``: 0 when all went well, else 1."""
    try:
        if args.add:
            print(*add(args.add, args.out), sep="\n")
            return 0
        if args.plan:
            return loan.show(args)
        failed = record(
            args.notebooks,
            args.out,
            earlier=args.earlier,
            budget_minutes=args.budget_minutes,
            again=args.again,
        )
    except KeyboardInterrupt:
        said = "stopped; what was measured is kept, and the same command goes on"
        print(f"\n{said}", file=sys.stderr)
        return 130
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        print(f"course: {error}", file=sys.stderr)
        return 1
    return int(failed > 0)
