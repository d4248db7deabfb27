"""The child's end: connect to the notebook, then answer what it asks until it hangs up.

A thread listens, so that the child notices the end of its notebook in the middle of a step too, and
then ends what it started and itself. All else happens in the main thread, one request at a time.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import pickle
import queue
import runpy
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

import torch

from labkit.arm import LocalArm
from labkit.device import is_out_of_memory
from labkit.remote.children import LINK, dumps
from labkit.restore.switches import Flags, set_torch_flags
from labkit.results import Workload

Functions = Mapping[str, Callable[..., Any]]

# What may be asked of an arm by its name.
_METHODS = {"start", "block", "check", "peak", "timeline", "counters", "close"}


def main() -> None:
    """``python -m labkit.remote``: answer; with a script: become that script, which may `serve`."""
    # The notebook asks a child that hangs where it stands.
    faulthandler.register(signal.SIGUSR1)
    _Link.connect()
    if len(sys.argv) > 1:
        _run_script()
    else:
        answer_requests({}, errors_go_back=True)


def serve(*functions: Callable[..., Any]) -> NoReturn:
    """In a worker's script: answer the notebook. Does not return.

    `Workers.ask` calls these functions by name. One that returns this worker's share as a Workload,
    such as ``make_workload(**settings)``, is what a ``Lab("make_workload", runs_in=workers, ...)``
    times.
    RuntimeError in a process that no notebook has started.
    """
    if _Link.here is None:
        raise RuntimeError("serve() answers a notebook: start this script with labkit.remote")
    known = {}
    for function in functions:
        known[function.__name__] = function
    answer_requests(known, errors_go_back=False)


def answer_requests(functions: Functions, *, errors_go_back: bool) -> NoReturn:
    """Answer requests for ``functions`` and for arms until the notebook hangs up.

    With ``errors_go_back`` the notebook raises what a request raised; else it comes through here.
    """
    link = _Link.here
    assert link is not None, "connect() comes first"
    host = _Host(functions)
    # Else each release of an arm searches all of torch for garbage.
    gc.freeze()
    while True:
        message = link.inbox.get()
        try:
            command, arguments = pickle.loads(message)
            reply = dumps((True, host.call(command, arguments)))
        except Exception as error:
            if not errors_go_back:
                raise
            reply = _portable(error)
        link.connection.send_bytes(reply)


class _Link:
    """The connection to the notebook, and what came in by it."""

    here: _Link | None = None

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.inbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    @classmethod
    def connect(cls) -> None:
        """Take over the end that this process was started with."""
        handle = int(os.environ.pop(LINK))
        os.set_inheritable(handle, False)
        link = cls.here = cls(Connection(handle))
        threading.Thread(target=link._listen, daemon=True).start()

    def _listen(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                self.inbox.put(self.connection.recv_bytes())
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)


class _Host:
    """The arms that live in this process, by number, and the functions that it serves."""

    def __init__(self, functions: Functions) -> None:
        self.functions = functions
        self.arms: dict[int, LocalArm] = {}

    def call(self, command: str, arguments: tuple[Any, ...]) -> Any:
        """Do what is asked for. Names of arms' commands have a dot, which no function's has."""
        if command == "arm.define":
            return self.define(*arguments)
        if command == "arm.about":
            return self.about(*arguments)
        kind, _, method = command.rpartition(".")
        if kind == "arm" and method in _METHODS:
            number, *rest = arguments
            return getattr(self.arms[number], method)(*rest)
        return self.function(command)(*arguments)

    def function(self, name: str) -> Callable[..., Any]:
        """The served function of that name. ValueError for another."""
        if name not in self.functions:
            raise ValueError(f"ask({name!r}): this script serves {sorted(self.functions)}")
        return self.functions[name]

    def define(
        self,
        number: int,
        make: str | Callable[..., Workload],
        label: str,
        settings: dict[str, Any],
        seed: int | None,
        flags: Flags,
    ) -> None:
        """Make an arm, of a function or of the name of a served one."""
        if isinstance(make, str):
            make = partial(self.function(make), **settings)
        set_torch_flags(flags)
        self.arms[number] = LocalArm(make, label, settings, seed)

    def about(self, number: int) -> tuple[float, str, str]:
        """An arm's samples, unit and device, also where its first step failed."""
        arm = self.arms[number]
        return arm.samples, arm.unit, arm.device


def _portable(error: Exception) -> bytes:
    """The reply that makes the notebook raise ``error``.

    Only here can it be judged whether memory ran out, so that is said plainly.
    """
    if is_out_of_memory(error):
        return dumps((False, torch.OutOfMemoryError(str(error))))
    try:
        reply = dumps((False, error))
        pickle.loads(reply)
        return reply
    except Exception:
        # Some exceptions cannot be rebuilt from a pickle: say the same in words.
        return dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))


def _run_script() -> None:
    """Run ``sys.argv[1]`` as Python itself would, with a traceback that begins in the script."""
    sys.argv = sys.argv[1:]
    script = sys.argv[0]
    sys.path[0] = str(Path(script).parent)
    try:
        runpy.run_path(script, run_name="__main__")
    except Exception as error:
        trace = error.__traceback__
        # The way to the script is not the reader's.
        while trace and trace.tb_frame.f_code.co_filename != script:
            trace = trace.tb_next
        # torch's hook for ranks reads it of the exception.
        error.__traceback__ = trace
        sys.excepthook(type(error), error, trace)
        sys.stdout.flush()
        sys.stderr.flush()
        # Python would write more to stderr as it shuts down; the traceback is to be the last.
        os._exit(1)
