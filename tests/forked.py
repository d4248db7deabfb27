"""Kernels as forks of one process that has imported torch and whatever else a kernel needs.

A short notebook would spend half of its time in the same imports. Jupyter starts ``ask``, by the
kernelspec of `forking`; that asks the process which does ``serve`` for a fork, hands it its
own files and environment, passes signals on, and ends as the fork ends. Labkit and the course are
not among what is imported: a fork reads its environment by them as a fresh process does.

Where something else is set of what Python and torch read as they begin, ``ask`` becomes a fresh
process.

Children of a fork, and those of a test that has the fixture ``forked_python``, are forks as well.
"""

from __future__ import annotations

# No more than this: each kernel waits for it.
import contextlib
import json
import os
import signal
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

NUMBER = 8
# Not what looks for its kernel or for variables when it is imported: ipykernel.kernelapp, pyplot.
IMPORTED = (
    "torch._dynamo torch.distributed torch.profiler matplotlib.figure"
    " matplotlib.backends.backend_agg ipykernel.ipkernel ipykernel.zmqshell PIL.Image cloudpickle"
    " requests pooch pytest jupyter_client.manager nbformat"
)
# These look for their kernel, too, and torch imports them: each fork does so itself.
WIDGETS = ("ipywidgets", "tqdm")
# Variables that are read as Python and torch begin; those of LATER when they are asked for.
AT_START = (
    *("ATEN", "CUDA", "DNNL", "GOMP", "KINETO", "LANG", "LC_", "LD_", "MALLOC", "MKL", "MPL"),
    *("OMP", "ONEDNN", "OPENBLAS", "PYTHON", "TORCH", "TZ"),
)
LATER = (
    *("KINETO_LOG_LEVEL", "MPLBACKEND", "PYTHONPATH", "PYTHONUNBUFFERED"),
    *("TORCHELASTIC", "TORCHINDUCTOR_CACHE_DIR"),
    *("TORCHINDUCTOR_COMPILE_THREADS", "TORCHINDUCTOR_VEC_ISA_OK"),
)
# Most kernels in tests have one thread: another one has its core.
ONE = {"OMP_NUM_THREADS": "1"}
# By it a child of `labkit.remote` finds its end of the link.
LINK = "LABKIT_LINK"


# ------------------------------------------------------------------------------------- who asks


def ask(address: str, arguments: list[str]) -> None:
    """Have ``python *arguments`` run in a fork, as if it was this process."""
    wanted = {"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}
    message = json.dumps(wanted | {"cores": sorted(os.sched_getaffinity(0))}).encode()
    files = [0, 1, 2, *map(int, filter(None, [os.environ.get(LINK)]))]
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(address)
        socket.send_fds(link, [len(message).to_bytes(NUMBER, "big")], files)
        link.sendall(message)
        group = number(link)
        if not group:
            os.execv(sys.executable, [sys.executable, *arguments])
        for each in ("HUP", "INT", "QUIT", "TERM", "USR1"):
            signal.signal(signal.Signals[f"SIG{each}"], lambda which, _: os.killpg(group, which))
        status = number(link)
    if os.WIFSIGNALED(status):
        # SIGKILL has no handler to take away.
        with contextlib.suppress(OSError):
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status))


def number(link: socket.socket) -> int:
    return int.from_bytes(exactly(link, NUMBER), "big")


def exactly(link: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        more = link.recv(size - len(got))
        if not more:
            raise ConnectionError("the other end is gone")
        got += more
    return got


# ------------------------------------------------------------------------------------- who forks


def serve(listener: socket.socket) -> list[str]:
    """Import all, and fork for whoever asks until standard input ends.

    Returns in each fork, with the arguments of its Python.
    """
    import gc
    import importlib
    import select

    gc.disable()
    for name in IMPORTED.split():
        importlib.import_module(name)
    gc.enable()
    for name in [name for name in sys.modules if name.partition(".")[0] in WIDGETS]:
        del sys.modules[name]
    # A fork would inherit the locks that other threads hold.
    assert len(os.listdir("/proc/self/task")) == 1
    gc.collect()
    forks: dict[int, socket.socket] = {}
    ended, ends = socket.socketpair()
    ends.setblocking(False)
    signal.set_wakeup_fd(ends.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([0, listener, ended, *forks.values()], [], [])
        if ended in ready:
            ended.recv(4096)
            reap(forks)
        for child, link in forks.items():
            # Nobody sends any more: who asked is gone, as after SIGKILL.
            if 0 in ready or link in ready:
                end(child)
        if 0 in ready:
            sys.exit()
        if listener in ready and (wanted := answer(listener, forks)):
            ended.close()
            ends.close()
            return wanted["arguments"]


def answer(listener: socket.socket, forks: dict[int, socket.socket]) -> dict | None:
    """Fork for one who asks, where a fork would do; in the fork, what was wanted."""
    link, _ = listener.accept()
    try:
        wanted, files = receive(link)
    except ConnectionError:
        link.close()
        return None
    child = os.fork() if like_fresh(wanted) else None
    if child == 0:
        for each in (listener, link, *forks.values()):
            each.close()
        become(wanted, files)
        return wanted
    for file in files:
        os.close(file)
    # Who asked may have been killed meanwhile: the link's end then ends the fork.
    with contextlib.suppress(OSError):
        link.sendall((child or 0).to_bytes(NUMBER, "big"))
    if child:
        forks[child] = link
    else:
        link.close()
    return None


def receive(link: socket.socket) -> tuple[dict, list[int]]:
    size, files, _, _ = socket.recv_fds(link, NUMBER, 4)
    size += exactly(link, NUMBER - len(size))
    return json.loads(exactly(link, int.from_bytes(size, "big"))), files


def like_fresh(wanted: dict) -> bool:
    """Whether a fork would be what a fresh process is."""
    alike = at_start(wanted["environment"]) == at_start(dict(os.environ))
    return alike and wanted["cores"] == sorted(os.sched_getaffinity(0))


def at_start(environment: dict[str, str]) -> dict[str, str]:
    return {
        name: text
        for name, text in environment.items()
        if name.startswith(AT_START) and not name.startswith(LATER)
    }


def become(wanted: dict, files: list[int]) -> None:
    """Make this fork what who asked for it wants."""
    import importlib
    import tempfile

    import matplotlib
    import numpy
    from torch._inductor import config

    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    for place, file in enumerate(files[:3]):
        os.dup2(file, place)
        os.close(file)
    os.chdir(wanted["folder"])
    os.environ.clear()
    os.environ.update(wanted["environment"])
    if LINK in os.environ:
        os.environ[LINK] = str(files[3])
    if "PYTHONUNBUFFERED" in os.environ:
        sys.stdout.reconfigure(line_buffering=True, write_through=True)
    if backend := os.environ.get("MPLBACKEND"):
        matplotlib.rcParams["backend"] = backend
    config.compile_threads = config.decide_compile_threads()
    config.cpp.vec_isa_ok = config.get_tristate_env("TORCHINDUCTOR_VEC_ISA_OK")
    sys.path[:1] = [os.getcwd(), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    importlib.invalidate_caches()
    tempfile.tempdir = None
    numpy.random.seed()
    # A rehearsed card, for one.
    sys.modules.pop("sitecustomize", None)
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module("sitecustomize")


def end(group: int) -> None:
    """It may not have its group yet: it is tried again."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def reap(forks: dict[int, socket.socket]) -> None:
    """Tell those who asked how their forks have ended."""
    while forks:
        child, status = os.waitpid(-1, os.WNOHANG)
        if not child:
            return
        with forks.pop(child) as link, contextlib.suppress(OSError):
            link.sendall(status.to_bytes(NUMBER, "big"))


# ------------------------------------------------------------------------------------- who tests


class Forks:
    """How to get forks: ``python -m`` and ``-c`` begin with ``python``, and with ``variables``
    Jupyter's ``python3`` is one.
    """

    def __init__(self, python: list[str], variables: dict[str, str]) -> None:
        self.python = python
        self.variables = variables

    def popen(self) -> type[subprocess.Popen]:
        """In place of `subprocess.Popen`: each Python that it starts is a fork."""
        import subprocess

        python, fresh = self.python, sys.executable

        class Popen(subprocess.Popen):
            def __init__(self, args: Any, *others: Any, **options: Any) -> None:
                if isinstance(args, list) and args[:2] in ([fresh, "-c"], [fresh, "-m"]):
                    args = [*python, *args[1:]]
                super().__init__(args, *others, **options)

        return Popen


def asking(address: str) -> list[str]:
    return [sys.executable, "-I", "-S", __file__, "ask", address]


@contextlib.contextmanager
def forking(folder: Path, variables: dict[str, str] | None = None) -> Iterator[Forks]:
    """Forks until the end, fresh processes where forking is not sure to work.

    Jupyter's files of them lie in ``folder``. They are for those who have these ``variables``.
    """
    import subprocess
    import tempfile

    from ipykernel.kernelspec import get_kernel_dict

    if sys.platform != "linux":
        yield Forks([sys.executable], {})
        return
    environment = os.environ | ONE | (variables or {})
    environment.pop("PYTHONPATH", None)
    # A socket's path has to be short.
    with tempfile.TemporaryDirectory() as short:
        address = os.path.join(short, "forks")
        python = asking(address)
        spec = get_kernel_dict()
        spec["argv"][:1] = python
        (folder / "kernels" / "python3").mkdir(parents=True)
        (folder / "kernels" / "python3" / "kernel.json").write_text(json.dumps(spec))
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            listener.listen()
            server = subprocess.Popen(
                [sys.executable, __file__, "serve", str(listener.fileno())],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[listener.fileno()],
            )
        with server:
            yield Forks(python, {"JUPYTER_PATH": str(folder)})


def main(what: str, where: str, *arguments: str) -> None:
    if what == "ask":
        ask(where, list(arguments))
        return
    listener = socket.socket(fileno=int(where))
    address = listener.getsockname()
    run(address, *serve(listener))


def run(address: str, kind: str, what: str, *arguments: str) -> None:
    """Run it as Python does, and end without taking torch apart, which takes a second."""
    import atexit
    import gc
    import runpy
    import subprocess
    import threading
    import types

    code = 0
    sys.argv = [kind, *arguments]
    if what == "pytest":
        # It searches for garbage again and again. A kernel leaves that to labkit.
        gc.freeze()
    subprocess.Popen = Forks(asking(address), {}).popen()  # type: ignore[misc]
    try:
        if kind == "-m":
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            assert kind == "-c"
            sys.modules["__main__"] = types.ModuleType("__main__")
            exec(compile(what, "<string>", "exec"), vars(sys.modules["__main__"]))
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        code = end.code or 0
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
