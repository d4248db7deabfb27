"""The plan of a loan, without recording anything: ``python -m course record --plan``.

A machine with a GPU is lent for half an hour, in commands of ten minutes. Each ends with SIGKILL,
and 64 MiB may be carried in. The plan says which notebooks come in which command, and what to
carry.
"""

from __future__ import annotations

import argparse
import math
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from course.data_sources import copies
from course.machine import machine_card
from course.notebook_files import ROOT
from course.records.card import Card
from course.records.estimate import only_on_a_gpu
from course.records.jobs import Job, find, fits, jobs, left_in_words
from course.records.store import read, reference_folder
from course.records.travel import unpacked
from labkit.text import aligned, format_bytes

# Seconds of a command before the first notebook: wheels, Python, the machine's card.
START = 40
# Seconds before SIGKILL in which nothing runs any more.
SPARE = 30
# Bytes that may be carried in.
CARRIED = 64 * 2**20
# An assumed card, in GB, where this machine has none.
GPU_MEMORY = 80
# Of a command's table; the claims are those that only a GPU can answer, and others it would judge.
HEAD = ["notebook", "takes", "known", "claims for a GPU", "more that it judges"]
# The sets that notebooks read; without CIFAR-10 they fall back to digits.
DATA = ("airfoil", "time_machine", "cifar10")


@dataclass(frozen=True)
class Loan:
    """So many commands of so many minutes."""

    commands: int = 3
    minutes: float = 10

    def __post_init__(self) -> None:
        if self.commands < 1:
            raise ValueError(f"commands={self.commands!r}: use a number of commands, 1 or more")
        if not self.seconds > 0 or math.isinf(self.minutes):
            least = (START + SPARE) / 60
            raise ValueError(f"minutes={self.minutes!r}: use more than {least:.1f}, and a number")

    @property
    def budget_minutes(self) -> float:
        """What to give to ``--budget-minutes``."""
        return self.minutes - SPARE / 60

    @property
    def seconds(self) -> float:
        """For notebooks, in one command."""
        return 60 * self.minutes - START - SPARE

    def fill(self, waiting: Sequence[Job]) -> tuple[list[list[Job]], list[Job]]:
        """The notebooks of each command, as `record` would take them, and those left over."""
        left, filled = list(waiting), []
        for _ in range(self.commands):
            seconds = self.seconds
            taken: list[Job] = []
            for job in list(left):
                if fits(job, seconds, self.seconds, first=not taken):
                    taken.append(job)
                    left.remove(job)
                    seconds -= job.expected.seconds
            filled.append(taken)
        return filled, left


def plan_text(loan: Loan, waiting: Sequence[Job]) -> str:
    """Which notebooks in which command, with what they are expected to take."""
    filled, left = loan.fill(waiting)
    lines = []
    for number, taken in enumerate(filled, 1):
        seconds = sum(job.expected.seconds for job in taken)
        whole = f"{seconds:.0f} of {loan.seconds:.0f} s for notebooks"
        lines.append(f"command {number}: {whole}, {START} s to start, {SPARE} s to spare")
        rows = [HEAD, *map(_row, taken)]
        lines += [f"  {line}" for line in aligned(rows).splitlines()]
    lines.append(left_in_words(left))
    return "\n".join(lines)


def _row(job: Job) -> list[str]:
    alone, judged = only_on_a_gpu(job.name)
    return [job.name, f"{job.expected.seconds:.0f} s", job.expected.source, str(alone), str(judged)]


# ------------------------------------------------------------------------------------ what to carry


class Load(NamedTuple):
    """Something to carry. Without ``bytes``, ``what`` says why there is nothing."""

    what: str
    bytes: int | None


def loads(wheels: Path) -> Iterator[Load]:
    """What recording needs on a machine that has torch and no internet, in order of need."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    tracked = [ROOT / name for name in listed.stdout.split("\0") if name]
    if listed.returncode == 0:
        yield Load(f"{len(tracked)} tracked files", _bytes(tracked))
    else:
        yield Load("the checkout: no git here that could list its files", None)
    packed = sorted(wheels.glob("*.whl"))
    if packed:
        yield Load(f"{len(packed)} wheels, {wheels}", _bytes(packed))
    else:
        missing = f"wheels: none in {wheels}; `.ci/wheels {wheels}` packs them"
        yield Load(f"{missing}, numpy and others that are there may be left out", None)
    for name in DATA:
        forms = []
        for copy in copies(name):
            if copy.complete:
                forms.append(list(copy.files))
        if forms:
            smallest = min(forms, key=_bytes)
            names = ", ".join(path.name for path in smallest)
            yield Load(f"{name}: {names}, into data/cache", _bytes(smallest))
        else:
            yield Load(f"{name}: no copy here; `python -m course data fetch` has one", None)


def _bytes(paths: Sequence[Path]) -> int:
    return sum(path.stat().st_size for path in paths if path.is_file())


def carried_text(found: Sequence[Load]) -> str:
    """What is carried, its size, and what does not fit."""
    rows, whole = [], 0
    for load in found:
        if load.bytes is None:
            rows.append(["-", load.what])
        elif whole + load.bytes > CARRIED:
            rows.append([format_bytes(load.bytes), f"DOES NOT FIT: {load.what}"])
        else:
            whole += load.bytes
            rows.append([format_bytes(load.bytes), load.what])
    rows.append([format_bytes(whole), f"in all, of {format_bytes(CARRIED)}"])
    lines = [f"  {line}" for line in aligned(rows).splitlines()]
    return "\n".join(["carried in:", *lines])


# -------------------------------------------------------------------------------------- the command


def assumed(memory: float, machine: str | None, folder: Path) -> Card:
    """The card of a GPU that is not here; ``machine`` is a folder of records, whose card it has."""
    if not 0 < memory < math.inf:
        raise ValueError(f"gpu_memory={memory!r}: use gigabytes, a positive number")
    card = machine_card()
    if machine is None:
        return card | {"gpu": {"name": "assumed GPU", "count": 1, "memory_bytes": memory * 1e9}}
    for path in sorted(folder.glob(f"{machine}/*.json")):
        old = read(path).card
        return card | {"gpu": old["gpu"], "cpu": old["cpu"], "torch": old["torch"]}
    known = sorted({path.parent.name for path in folder.glob("*/*.json")})
    raise ValueError(f"machine={machine!r}: no records of it; there are {', '.join(known)}")


def show(args: argparse.Namespace) -> int:
    """Print the plan; nothing is recorded, and nothing written."""
    loan = Loan(args.commands, args.minutes)
    out = args.out or reference_folder()
    with unpacked(out) as place:
        if args.earlier:
            raise ValueError("--from: a plan writes nothing; give the zip as --out")
        card = machine_card()
        told = "this machine's GPU"
        if card["gpu"] is None or args.gpu_memory or args.machine:
            memory = args.gpu_memory or GPU_MEMORY
            card = assumed(memory, args.machine, place.folder)
            told = f"an assumed GPU of {memory:g} GB"
            if args.machine:
                told = f"{args.machine}, by its records"
        minutes = f"{loan.commands} commands of {loan.minutes:g} minutes"
        print(f"A loan of {minutes} on {told}. Nothing is recorded now.")
        paths = find(args.notebooks)
        waiting = jobs(paths, place, card, named=bool(args.notebooks), again=args.again)
        print(plan_text(loan, waiting))
    print(carried_text(list(loads(args.wheels))))
    print(f"each command: {_command(loan, args.notebooks)}")
    return 0


def _command(loan: Loan, notebooks: Sequence[Path]) -> str:
    named = "".join(f" {path.stem}" for path in notebooks)
    budget = f"--budget-minutes {loan.budget_minutes:g}"
    return (
        f"python3 -m course record{named} {budget} --out records.zip\n"
        "  and from the second on: --from EARLIER/records.zip, with what came back beside it"
    )
