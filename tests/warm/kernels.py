"""Kernels that begin at once: one process imports torch, and forks for each of them.

To import torch and its compiler takes seven seconds of work, which a kernel for each notebook does
anew. A kernel from here differs from another in nothing else: it has the environment, the folder
and the generators of its own. Where it is started, a small process stands for it, which passes on
signals; once that ends, so does the kernel with all that it has started.

    python tests/warm/kernels.py serve SOCKET
    python tests/warm/kernels.py kernel SOCKET -f CONNECTION_FILE
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

IMPORTED = """
    torch torch._dynamo torchvision numpy matplotlib.figure ipykernel.kernelapp ipywidgets anywidget
    matplotlib_inline.backend_inline matplotlib.backends.backend_agg cloudpickle msgspec nbformat
"""


# ----------------------------------------------------------------------------- by whom it is wanted


@contextlib.contextmanager
def warm_kernels() -> Iterator[dict[str, str]]:
    """The variables by which Jupyter finds such kernels; none where a process cannot fork."""
    if not hasattr(os, "fork"):
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="warm-") as folder:
        path = str(Path(folder, "socket"))
        argv = [sys.executable, "-S", __file__, "kernel", path, "-f", "{connection_file}"]
        spec = {"argv": argv, "display_name": "Python 3 (ipykernel)", "language": "python"}
        kernel = Path(folder, "kernels", "python3", "kernel.json")
        kernel.parent.mkdir(parents=True)
        kernel.write_text(json.dumps(spec | {"metadata": {"debugger": True}}), encoding="utf-8")
        server = subprocess.Popen(
            [sys.executable, __file__, "serve", path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        assert server.stdin is not None and server.stdout is not None
        try:
            if server.stdout.readline() != b"ready\n":
                raise RuntimeError(f"no warm kernels: the server ended with {server.wait()}")
            yield {"JUPYTER_PATH": folder}
        finally:
            server.stdin.close()
            server.wait(30)
            server.stdout.close()


# --------------------------------------------------------------------------------------- the server


def serve(path: str) -> None:
    """Fork for each that asks, until the input ends."""
    # Its own folder is on no kernel's path.
    del sys.path[0]
    for name in IMPORTED.split():
        __import__(name)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    print("ready", flush=True)
    kernels: dict[int, socket.socket] = {}
    while True:
        links = {link: pid for pid, link in kernels.items()}
        ready, _, _ = select.select([sys.stdin, listener, *links], [], [], 0.05)
        for link in ready:
            if link is listener:
                asks, _ = listener.accept()
                pid = _forked(asks, [listener, *links])
                kernels[pid] = asks
            elif link is not sys.stdin:
                # Nothing is ever said after the question: it has ended.
                _kill(links[link])
        if sys.stdin in ready:
            for pid in kernels:
                _kill(pid)
            return
        _reap(kernels)


def _reap(kernels: dict[int, socket.socket]) -> None:
    for pid in list(kernels):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            with contextlib.suppress(OSError), kernels.pop(pid) as link:
                link.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _kill(pid: int) -> None:
    """The kernel and what it has started: it leads a group of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _forked(asks: socket.socket, others: list[socket.socket]) -> int:
    with asks.makefile("r", encoding="utf-8") as lines:
        wanted = json.loads(lines.readline())
    pid = os.fork()
    if not pid:
        for each in [asks, *others]:
            each.close()
        _be_a_kernel(**wanted)
    # The group is there before anybody kills it.
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)
    asks.sendall(f"{pid}\n".encode())
    return pid


def _be_a_kernel(arguments: list[str], variables: dict[str, str], folder: str) -> None:
    import random

    import numpy as np

    os.setpgid(0, 0)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.environ.clear()
    os.environ.update(variables)
    # It would look for the parent that it has not.
    os.environ.pop("JPY_PARENT_PID", None)
    os.chdir(folder)
    paths = variables.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [each for each in paths if each and each not in sys.path]
    sys.argv = ["ipykernel_launcher", *arguments]
    random.seed()
    np.random.seed()
    from ipykernel.kernelapp import launch_new_instance

    try:
        launch_new_instance()
    finally:
        os._exit(0)


# -------------------------------------------------------------------------- who stands for a kernel


def stand_for(path: str, arguments: list[str]) -> int:
    """Ask for a kernel, pass on signals, and end with it."""
    link = socket.socket(socket.AF_UNIX)
    link.connect(path)
    wanted = {"arguments": arguments, "variables": dict(os.environ), "folder": os.getcwd()}
    link.sendall(json.dumps(wanted).encode() + b"\n")
    with link.makefile("r", encoding="utf-8") as lines:
        pid = int(lines.readline())

        def passed_on(number: int, frame: Any) -> None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, passed_on)
        return int(lines.readline() or 1)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        sys.exit(stand_for(sys.argv[2], sys.argv[3:]))
