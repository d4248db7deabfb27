"""An arm in a process of its own, for state that cannot be swapped: cuDNN's plan cache, compiled code, a dead CUDA
context.

The parent sends one command at a time through a pipe and waits, so that only one arm runs. Run as a module, this file
is the child: ``python -m labkit.isolate``.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import cloudpickle

from labkit.arms import ArmDied, LocalArm
from labkit.switches import set_torch_flags, torch_flags


class _Pickler(cloudpickle.Pickler):
    """Pickles by name the objects that torch puts in a module's place, such as ``torch.backends.cudnn``."""

    def reducer_override(self, obj: Any) -> Any:
        if (
            isinstance(obj, ModuleType)
            and type(obj) is not ModuleType
            and sys.modules.get(obj.__name__) is obj
        ):
            return import_module, (obj.__name__,)
        return super().reducer_override(obj)


def _dumps(value: Any) -> bytes:
    buffer = io.BytesIO()
    _Pickler(buffer).dump(value)
    return buffer.getvalue()


class ProcessArm:
    """A `LocalArm` in another process. Its death raises `ArmDied`; exceptions of the step come back as they are."""

    def __init__(
        self,
        make: Callable[[], Any],
        label: str,
        settings: dict[str, Any] | None = None,
        seed: int | None = None,
    ):
        self.label, self.settings = label, settings or {}
        self.samples, self.unit, self.device = 1.0, "samples", "cpu"
        self._task = make, label, settings, seed
        self._child: subprocess.Popen[bytes] | None = None
        self._log: Any = None

    def start(self) -> float:
        """Start the process, build the workload there and run the first step; seconds of that step."""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the arm
        self._child = subprocess.Popen(
            [sys.executable, "-m", "labkit.isolate"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,  # the kernel's interrupt is ours to handle, not the child's
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        try:
            self._send(_dumps((*self._task, torch_flags())))
            self._answer()  # it is up, and could unpickle its task: from here on its death is a result
        except ArmDied as error:
            raise RuntimeError(
                f"could not start {self.label!r} in a process of its own: {error}"
            ) from None
        seconds, self.samples, self.unit, self.device = self._ask("start")
        return seconds

    def block(self, steps: int) -> float:
        """Run ``steps`` steps there; their seconds."""
        return self._ask("block", steps)

    def check(self) -> None:
        """As `LocalArm.check`."""
        self._ask("check")

    def peak(self) -> tuple[int, int | None]:
        """As `LocalArm.peak`, in a fresh process."""
        return self._ask_afresh("peak")

    def counters(self) -> dict[str, int] | str:
        """As `LocalArm.counters`, in a fresh process."""
        return self._ask_afresh("counters")

    def _ask_afresh(self, command: str) -> Any:
        self.close()
        try:
            self.start()
            return self._ask(command)
        finally:
            self.close()

    def close(self) -> None:
        """End the process, and with it whatever it holds."""
        child, self._child = self._child, None
        if child is None:
            return
        if hasattr(os, "killpg"):
            with contextlib.suppress(ProcessLookupError):  # the whole group is gone already
                os.killpg(
                    child.pid, signal.SIGKILL
                )  # with its own children, such as the workers of a loader
        child.kill()
        child.wait()
        streams: tuple[Any, ...] = child.stdin, child.stdout, self._log
        for stream in streams:
            try:
                stream.close()
            except BrokenPipeError:  # closing flushes what a dead child never read
                continue

    def _send(self, message: bytes) -> None:
        assert self._child is not None and self._child.stdin is not None, "start() comes first"
        try:
            self._child.stdin.write(len(message).to_bytes(8, "little") + message)
            self._child.stdin.flush()
        except BrokenPipeError:
            self._died()

    def _ask(self, *command: Any) -> Any:
        self._send(pickle.dumps(command))
        return self._answer()

    def _answer(self) -> Any:
        assert self._child is not None and self._child.stdout is not None
        size = self._child.stdout.read(8)
        message = self._child.stdout.read(int.from_bytes(size, "little")) if len(size) == 8 else b""
        if not message:
            self._died()
        ok, answer = pickle.loads(message)
        if not ok:
            raise answer
        return answer

    def _died(self) -> None:
        assert self._child is not None
        code = self._child.wait()
        self._log.seek(0)
        last = self._log.read().decode(errors="replace").strip().splitlines()[-1:]
        how = f"by signal {signal.Signals(-code).name}" if code < 0 else f"with exit status {code}"
        hint = " (was the system short of memory?)" if code == -9 else ""
        raise ArmDied(
            f"the process of {self.label!r} ended {how}{hint}"
            + "".join(f": {line}" for line in last)
        )


def _serve() -> None:
    """The child: unpickle the arm, then answer commands until the pipe closes."""
    source = sys.stdin.buffer
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever the reader's code prints must not land among the answers

    def receive() -> bytes:
        size = source.read(8)
        return source.read(int.from_bytes(size, "little"))

    def send(message: bytes) -> None:
        sink.write(len(message).to_bytes(8, "little") + message)
        sink.flush()

    make, label, settings, seed, flags = pickle.loads(receive())
    set_torch_flags(flags)
    arm = LocalArm(make, label, settings, seed)
    send(pickle.dumps((True, None)))
    while message := receive():
        command, *arguments = pickle.loads(message)
        try:
            answer: Any = getattr(arm, command)(*arguments)
            if command == "start":
                answer = answer, arm.samples, arm.unit, arm.device
            reply = cloudpickle.dumps((True, answer))
        except Exception as error:  # handed to the parent, which raises it there
            error.__traceback__ = None
            try:
                reply = cloudpickle.dumps((False, error))
                pickle.loads(reply)
            except (
                Exception
            ):  # some exceptions cannot be rebuilt from a pickle: say the same in words
                reply = pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))
        send(reply)


if __name__ == "__main__":
    _serve()
