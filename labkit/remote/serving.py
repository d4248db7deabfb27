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
from collections.abc import Callable
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


class Link:
    """A child's connection to its notebook, and what came in by it."""

    def __init__(self) -> None:
        handle = int(os.environ.pop(LINK))
        os.set_inheritable(handle, False)
        self.connection = Connection(handle)
        self.inbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                self.inbox.put(self.connection.recv_bytes())
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)


# Of a child: its link, the functions that it serves by name, the arms that live in it by number.
_link: Link | None = None
_served: dict[str, Callable[..., Any]] = {}
_arms: dict[int, LocalArm] = {}


def main() -> None:
    """``python -m labkit.remote``: answer; with a script: become that script, which may `serve`."""
    global _link
    # The notebook asks a child that hangs where it stands.
    faulthandler.register(signal.SIGUSR1)
    _link = Link()
    if len(sys.argv) > 1:
        _run_script()
    else:
        answer_requests(errors_go_back=True)


def serve(*functions: Callable[..., Any]) -> NoReturn:
    """In a worker's script: answer the notebook. Does not return.

    `Workers.ask` calls these functions by name. One that returns this worker's share as a Workload,
    such as ``make_workload(**settings)``, is what a ``Lab("make_workload", runs_in=workers, ...)``
    times.
    RuntimeError in a process that no notebook has started.
    """
    for function in functions:
        _served[function.__name__] = function
    answer_requests(errors_go_back=False)


def answer_requests(*, errors_go_back: bool) -> NoReturn:
    """Call what is asked for until the notebook hangs up.

    With ``errors_go_back`` the notebook raises what a request raised; else it comes through here.
    """
    if _link is None:
        raise RuntimeError("serve() answers a notebook: start this script with labkit.remote")
    # Else each release of an arm searches all of torch for garbage.
    gc.freeze()
    while True:
        message = _link.inbox.get()
        try:
            what, arguments = pickle.loads(message)
            call = _function(what) if isinstance(what, str) else what
            reply = dumps((True, call(*arguments)))
        except Exception as error:
            if not errors_go_back:
                raise
            reply = _portable(error)
        _link.connection.send_bytes(reply)


def _function(name: str) -> Callable[..., Any]:
    if name not in _served:
        raise ValueError(f"ask({name!r}): this script serves {sorted(_served)}")
    return _served[name]


def define(
    number: int,
    make: str | Callable[..., Workload],
    label: str,
    settings: dict[str, Any],
    seed: int | None,
    flags: Flags,
) -> None:
    """Make an arm, of a function or of the name of a served one."""
    if isinstance(make, str):
        make = partial(_function(make), **settings)
    set_torch_flags(flags)
    _arms[number] = LocalArm(make, label, settings, seed)


def about(number: int) -> tuple[float, str, str]:
    """An arm's samples, unit and device, also where its first step failed."""
    arm = _arms[number]
    return arm.samples, arm.unit, arm.device


def do(number: int, method: str, *arguments: Any) -> Any:
    """Call a method of an arm."""
    return getattr(_arms[number], method)(*arguments)


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
