"""Child processes, and the link to each: a pipe of `multiprocessing` that carries pickles.

Nothing is forked, so that all of this is safe after the notebook has used CUDA. A child leads a
session of its own: an interrupt of the kernel is handled here and does not reach it. When the link
breaks, because the run was stopped or the kernel died, the child ends itself and what it started
(`labkit.arms.serve`): no process outlives its notebook.

A child is not told where this process keeps what Triton compiled, if Inductor chose that folder. It
writes its choice into the environment of its process, once; a child that sets a folder of its own
for compiled code would still find this one's kernels.

How a child gets its end of the pipe on Windows follows the documentation; it has not been tried.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from multiprocessing.connection import Pipe
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import cloudpickle

# The child's end of its pipe: the number of a file descriptor, on Windows of a handle.
LINK = "LABKIT_LINK"
# Where Triton keeps what it compiled.
KERNELS = "TRITON_CACHE_DIR"
KILL: signal.Signals = getattr(signal, "SIGKILL", signal.SIGTERM)
# Seconds between two looks at whether a child that says nothing is still alive.
_LOOK = 1.0


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc, no-any-unimported, unused-ignore]
    """Pickles by name the objects that torch puts in a module's place (torch.backends.cudnn)."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, ModuleType) and type(obj) is not ModuleType:
            name = obj.__name__
            if sys.modules.get(name) is obj:
                return import_module, (name,)
        return super().reducer_override(obj)


def dumps(value: object) -> bytes:
    """Pickle ``value``, functions of a notebook included."""
    buffer = io.BytesIO()
    _Pickler(buffer).dump(value)
    return buffer.getvalue()


class LinkBroken(Exception):
    """The child at the other end has ended."""


class Child:
    """A process that runs ``python -m labkit.arms ARGUMENTS``, and the link to it."""

    def __init__(
        self,
        *arguments: str,
        stdout: IO[bytes],
        stderr: IO[bytes],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.link, theirs = Pipe()
        handle = theirs.fileno()
        paths = os.pathsep.join(filter(None, sys.path))
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "labkit.arms", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env={**_inherited(), "PYTHONPATH": paths, **(environment or {}), LINK: str(handle)},
                **_inherits(handle),
            )
        except BaseException:
            self.link.close()
            raise
        finally:
            theirs.close()

    def send(self, command: str, *arguments: object) -> None:
        """Ask for something. `LinkBroken` when the child has ended."""
        message = dumps((command, arguments))
        try:
            self.link.send_bytes(message)
        except OSError:
            raise LinkBroken from None

    def receive(self) -> Any:
        """The answer, once it is there.

        Raises what the child's work raised; `LinkBroken` when the child has ended.
        """
        try:
            while not self.link.poll(_LOOK):
                # What the child started may hold its end open. It may have answered just now.
                if self.process.poll() is not None and not self.link.poll(0):
                    raise LinkBroken
            message = self.link.recv_bytes()
        except (EOFError, OSError):
            raise LinkBroken from None
        done, answer = pickle.loads(message)
        if not done:
            raise answer
        return answer

    def end(self) -> None:
        """End the process and what it started, such as the workers of a loader."""
        self.link.close()
        if hasattr(os, "killpg"):
            # Usually the whole group is gone already.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, KILL)
        self.process.kill()
        self.process.wait()


def _inherited() -> dict[str, str]:
    """This process's environment, without what Inductor has added to it for itself."""
    environment = dict(os.environ)
    kernels = Path(environment.get(KERNELS, ""))
    # Inductor's way to name it: <its own folder>/triton/<number of the device>.
    if kernels.parent.name == "triton" and kernels.name.isdigit():
        del environment[KERNELS]
    return environment


def _inherits(handle: int) -> dict[str, Any]:
    """Options of Popen by which a child inherits one handle, and nothing else."""
    if sys.platform == "win32":
        os.set_handle_inheritable(handle, True)
        return {"startupinfo": subprocess.STARTUPINFO(lpAttributeList={"handle_list": [handle]})}
    return {"pass_fds": [handle], "start_new_session": True}


def how_it_ended(code: int) -> str:
    """An exit status in words."""
    if code >= 0:
        return f"ended with exit status {code}"
    hint = ""
    if code == -KILL:
        hint = " (was the system short of memory?)"
    return f"was ended by {signal.Signals(-code).name}{hint}"
