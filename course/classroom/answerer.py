"""The process that runs what a student handed in. Nothing that it says decides a verdict alone.

It is told what to do on stdin, in messages of `values.send`, and answers on what was stdout, in
JSON: first that it is ready, then what each call returned and changed. The clock of the one that
judges starts when it is ready, with everything imported.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pickle
import resource
import shutil
import struct
import sys
from pathlib import Path
from typing import Any, BinaryIO

import torch

from course import exercises
from course.classroom import values
from course.classroom.hook import watch
from course.exercises.tell import NotYet

MB = 2**20


class Answerer:
    """The student's module, and the answers that it holds."""

    def __init__(self) -> None:
        # pickle looks functions up in it
        self.module = sys.modules["__main__"] = type(sys)("__main__")
        # a notebook has it
        self.module.__dict__["display"] = print
        # looked up before the student's code can change it
        self.checks = {name: getattr(exercises, name) for name in exercises.__all__}

    def run(self, cells: list[str], asked: list[str]) -> None:
        """Run the cells; ``asked`` are the expressions of what is judged."""
        space = self.module.__dict__
        for number, source in enumerate(cells):
            exec(compile(source, f"<answer {number}>", "exec", dont_inherit=True), space)
        self.answers = [eval(each, space) for each in asked]

    def call(self, number: int, grad: bool, data: bytes) -> dict[str, Any]:
        """Call an answer: what it returned, and what became of the arguments."""
        arguments = values.receive(data)
        changed = list(values.parts(arguments))
        known = {id(part): number for number, part in enumerate(changed)}
        before = [part.grad if _leaf(part) else None for part in changed]
        try:
            with torch.set_grad_enabled(grad):
                told = {"value": values.encode(self.answers[number](*arguments), known)}
        except Exception as error:
            told = failure(error)
        states = zip(changed, before, strict=True)
        return told | {"parts": [values.state(part, known, grad) for part, grad in states]}

    def judge(self, name: str) -> dict[str, Any]:
        """Run a check here, beside the answer, for what can be seen only here."""
        try:
            self.checks[name].__wrapped__(*self.answers)
        except NotYet as missing:
            return {"hint": str(missing)}
        return {"passed": True}


def _leaf(part: Any) -> bool:
    return isinstance(part, torch.Tensor) and part.is_leaf


def failure(error: BaseException) -> dict[str, Any]:
    """An error as a message: its name, and those of the kinds that it belongs to."""
    kinds = [kind.__name__ for kind in type(error).__mro__]
    return {"error": kinds, "message": str(error)[:2000]}


def limit(memory: int, disk: int) -> None:
    """Let the kernel hold each process to so many MB."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (disk * MB, disk * MB))
    # macOS knows this limit by name only
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (memory * MB, memory * MB))


def settle(given: Path, work: Path, own: list[str]) -> None:
    """Copy what was handed in, and make the program's own folders, outside of it."""
    shutil.copytree(given, work)
    for folder in own:
        Path(folder).mkdir()


def main() -> None:
    # what was imported stays: it is not searched for garbage
    gc.freeze()
    gc.enable()
    commands, channel = os.fdopen(os.dup(0), "rb"), os.dup(1)
    # what an answer prints is nobody's
    for stream in range(3):
        os.dup2(os.open(os.devnull, os.O_RDWR), stream)
    job = read(commands)
    own = [os.environ["HOME"], os.environ["TMPDIR"]]
    work = Path(job["room"], "work")
    try:
        settle(Path(job["given"]), work, own)
    except OSError as error:
        say(channel, failure(error))
        return
    os.chdir(work)
    sys.path.append(str(work))
    limit(job["memory"], job["disk"])
    outside: list[str] = []
    watch([str(work), *own, "/dev/shm", os.devnull], outside.append, programs=job["programs"])
    answerer = Answerer()
    say(channel, {"ready": True})
    while message := read(commands):
        try:
            told = getattr(answerer, message.pop("do"))(**message) or {}
        # also SystemExit and KeyboardInterrupt: whatever ends an answer is its result
        except BaseException as error:
            told = failure(error)
        say(channel, told | {"outside": outside[:1]})
    # and not through the exit handlers and threads of the answer
    os._exit(0)


def read(file: BinaryIO) -> dict[str, Any]:
    """The next message of the one that judges; empty at the end."""
    head = file.read(8)
    return dict(pickle.loads(file.read(*struct.unpack("!Q", head)))) if len(head) == 8 else {}


def say(channel: int, told: dict[str, Any]) -> None:
    data = json.dumps(told).encode()
    data = struct.pack("!Q", len(data)) + data
    while data:
        data = data[os.write(channel, data) :]


if __name__ == "__main__":
    main()
