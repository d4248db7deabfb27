"""What the labs of a cut-off notebook had measured: kept, and not measured again.

A lent machine takes its time back at any moment, in the middle of a notebook, too. The next call
runs the notebook's cells again, all of them, but a lab that had measured is given what it found.
That is sound, and better than to begin anew:

- A result stands for itself. Both of its sides were built, seeded and timed in turn within one call
  of a lab; no record holds one of its results against another. Two may come from two runs.
- A lab is known by its question: its name, the settings of both sides, budget, seed, threads; of
  a race also target and steps; and how many times it was asked before. A tuned rate that comes out
  differently is another question, and is measured.
- Results are taken over only where all that they depend on is the same: the notebook's code,
  labkit's and sublinear's, torch, the machine.
- Only the seconds of a very first step, `cold`, may tell what ran before in the same kernel; no
  claim is about them.
- Most of a notebook's time is spent in its labs, all of it in 09 and 22, which take longest on a
  GPU. What cells train for themselves (03, 05, 18, 21) is trained again.

A cell might need what a lab's function leaves behind in the kernel. Such a cell fails; then what
was kept is dropped, and the next call measures all of the notebook. A record says of how many runs
its results are.

All is in one file beside the records, a line for each result. The kernel itself writes it, as soon
as there is a result: nothing is lost when the recorder is killed. A line that was cut off, as on a
full disk, is left out.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct

from course.notebook_files import ROOT
from course.records.card import Card, hardware, machine_name
from course.records.format import AnyEntry, Result, encode, entry_of
from course.records.notebook_hash import notebook_hash
from labkit.journal import Key, open_journal
from labkit.racing import RaceResult
from labkit.results import Comparison
from labkit.text import write_whole

LISTEN = "from course.records import unfinished; unfinished.listen({!r}); del unfinished"
# Seconds between two looks whether the recorder still lives.
LOOK = 0.1


class Line(Struct, kw_only=True, forbid_unknown_fields=True):
    """One result, and where it comes from."""

    machine: str
    notebook: str
    # Of all that the result depends on.
    code: str
    # The run of the notebook that this line is of, and the one that measured the result.
    run: str
    measured_in: str
    # None for what is not asked for before it is measured.
    question: Key | None
    # 1 where the question was asked for the first time in this run; 0 without a question.
    number: int
    # What measuring took.
    seconds: float
    result: AnyEntry

    @property
    def key(self) -> tuple[Key | None, int]:
        """What a lab is known by."""
        return self.question, self.number


_lines = msgspec.json.Decoder(Line)


@dataclass(frozen=True)
class Run:
    """One run of a notebook, as its kernel has to know it: ``file`` takes the lines."""

    file: str
    machine: str
    notebook: str
    code: str
    name: str

    @classmethod
    def begin(cls, file: Path, path: Path, card: Card) -> Run:
        """A new run of the notebook at ``path`` on this machine."""
        machine, code = machine_name(card), code_of(path, card)
        return cls(str(file.resolve()), machine, path.stem, code, uuid.uuid4().hex)

    @property
    def first_line(self) -> str:
        """The Python line with which its kernel begins."""
        return LISTEN.format(json.dumps(asdict(self)))


def code_of(path: Path, card: Card) -> str:
    """16 hex digits of all that this notebook's results depend on, on this machine."""
    parts = [notebook_hash(path), str(card["torch"]), str(hardware(card)), _packages()]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


@cache
def _packages() -> str:
    """Of labkit's and sublinear's sources: their version does not change with each mend."""
    found = hashlib.sha256()
    for package in ("labkit", "sublinear"):
        for file in sorted((ROOT / package).rglob("*.py")):
            found.update(file.read_bytes())
    return found.hexdigest()


class Unfinished:
    """The file of kept results, ``NAME.partial`` beside the records' folder or zip."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def beside(cls, out: Path) -> Unfinished:
        """That of a folder or a zip of records."""
        return cls(out.with_name(f"{out.name}.partial"))

    def lines(self) -> list[Line]:
        """What is kept; a line that cannot be read is left out, and said."""
        if not self.path.exists():
            return []
        found = []
        whole = self.path.read_bytes().split(b"\n")[:-1]
        for number, line in enumerate(whole, 1):
            try:
                found.append(_lines.decode(line))
            except msgspec.DecodeError as error:
                print(f"{self.path.name}: line {number} is left out: {error}")
        return found

    def of(self, run: Run) -> list[Line]:
        """The results of one run, in its order: measured in it, or taken over."""
        return [line for line in self.lines() if line.run == run.name]

    def kept(self, notebook: str, code: str) -> list[Line]:
        """What the next run of a notebook need not measure."""
        return list(answers(self.lines(), notebook, code).values())

    def begin(self, run: Run) -> None:
        """Make room for a run: what is of the notebook's other code is dropped."""
        keep = []
        for line in self.lines():
            same = (line.machine, line.notebook) == (run.machine, run.notebook)
            if not same or line.code == run.code:
                keep.append(line)
        self._write(keep)

    def drop(self, machine: str, notebook: str) -> None:
        """Forget what is kept of a notebook: its record is whole, or its cells failed."""
        keep = []
        for line in self.lines():
            if (line.machine, line.notebook) != (machine, notebook):
                keep.append(line)
        self._write(keep)

    def add(self, lines: Iterable[Line]) -> None:
        """Keep lines of another file, too, each once."""
        own = self.lines()
        known = {(line.run, line.key) for line in own if line.question is not None}
        for line in lines:
            if line.question is not None and (line.run, line.key) not in known:
                own.append(line)
        self._write(own)

    def _write(self, lines: list[Line]) -> None:
        if lines:
            write_whole(self.path, b"".join(encode(line) + b"\n" for line in lines))
        else:
            self.path.unlink(missing_ok=True)


def answers(lines: Iterable[Line], notebook: str, code: str) -> dict[object, Line]:
    """What is known by question, of this code."""
    found: dict[object, Line] = {}
    for line in lines:
        if line.question is not None and (line.notebook, line.code) == (notebook, code):
            found[line.key] = line
    return found


# ---------------------------------------------------------------------------------- in the kernel


class Listener:
    """What a kernel's journal does: it appends each result, and answers with what is kept."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.known = answers(Unfinished(Path(run.file)).lines(), run.notebook, run.code)
        self.asked: Counter[Key] = Counter()
        self.question: Key | None = None
        self.begun = 0.0

    def answer(self, question: Key) -> Result | None:
        """What is kept of this question, or None: it has to be measured."""
        self.question = question
        self.asked[question] += 1
        self.begun = time.monotonic()
        line = self.known.get(self._key())
        if line is None:
            return None
        return line.result.result()

    def keep(self, result: Result, about: Mapping[str, int | None]) -> None:
        """Append a result to the file."""
        question, number = None, 0
        seconds, measured_in = 0.0, self.run.name
        # Plans are not asked for, and a lab that failed has no result to take over.
        if isinstance(result, Comparison | RaceResult) and self.question is not None:
            question, number = self._key()
            seconds = round(time.monotonic() - self.begun, 1)
            earlier = self.known.get((question, number))
            if earlier is not None:
                seconds, measured_in = earlier.seconds, earlier.measured_in
        line = Line(
            machine=self.run.machine,
            notebook=self.run.notebook,
            code=self.run.code,
            run=self.run.name,
            measured_in=measured_in,
            question=question,
            number=number,
            seconds=seconds,
            result=entry_of(result, **about),
        )
        with open(self.run.file, "ab") as file:
            file.write(encode(line) + b"\n")

    def _key(self) -> tuple[Key, int]:
        assert self.question is not None
        return self.question, self.asked[self.question]


def listen(about: str) -> None:
    """In the kernel: keep all that its labs measure, and end when the recorder does."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    listener = Listener(Run(**json.loads(about)))
    open_journal(listener.keep, counters=True, answer=listener.answer)


def _end_with(parent: int) -> None:
    """A killed recorder leaves its kernel behind, which would disturb what the next call times."""
    while os.getppid() == parent:
        time.sleep(LOOK)
    os._exit(1)
