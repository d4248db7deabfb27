"""Runs one answer and its check in a process that can be stopped and that cannot write outside its folder.

Started by path, not as a module, by `check`: until the guards are up nothing but the standard library is loaded. The
job comes as JSON on stdin, the result goes as JSON to stdout. Two processes: this one waits, and ends whatever the
other, which runs the answer, leaves behind.

This holds up accidents, not attacks: the answer runs beside its check in one process, and may read what you may read.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import importlib
import io
import json
import os
import signal
import struct
import sys
import time
from typing import Any, NoReturn

_SUBREAPER, _DEATH_SIGNAL, _NO_NEW_PRIVILEGES = 36, 1, 38  # prctl
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # Landlock's system calls, the same on all processors
_WRITE_FILE, _TRUNCATE = 1 << 1, 1 << 14
_CHANGE = _WRITE_FILE | sum(1 << bit for bit in range(4, 13))  # write, remove, make
_LARGEST_FILE = 2**30  # bytes


# ------------------------------------------------------------------------------------------------------------- guards


def landlock(folders: list[str]) -> int:
    """Forbid this process and all it starts to write outside ``folders``; Landlock's version, 0 where there is none."""
    if not sys.platform.startswith("linux"):
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    if version < 1:
        return 0  # an old kernel, or one that was built or started without it
    rights = _CHANGE | (1 << 13 if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    # Rights on files, on the network (none), and from version 6 on: no signals to processes that are not its own.
    attributes = struct.pack("QQQ", rights, 0, 2)[: 24 if version >= 6 else 8]
    rules = libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    _succeed(rules)
    for path in [*folders, os.devnull]:
        handle = os.open(path, os.O_PATH)
        allowed = rights if os.path.isdir(path) else rights & (_WRITE_FILE | _TRUNCATE)
        _succeed(libc.syscall(_ADD_RULE, rules, 1, struct.pack("=Qi", allowed, handle), 0))
        os.close(handle)
    _succeed(libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    _succeed(libc.syscall(_RESTRICT_SELF, rules, 0))
    os.close(rules)
    return int(version)


def _succeed(status: int) -> None:
    if status < 0:
        raise OSError(ctypes.get_errno(), f"Landlock: {os.strerror(ctypes.get_errno())}")


_PATHS = {  # events of Python that change files: which of their arguments are paths
    **dict.fromkeys(("os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod", "os.chown", "os.utime"), (0,)),
    **dict.fromkeys(("os.rename", "os.link"), (0, 1)),
    "os.symlink": (1,),
}
_PROGRAMS = ("os.system", "os.exec", "os.posix_spawn", "subprocess.Popen")
_OPEN_TO_WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def watch(folders: list[str], report: Any, *, programs: bool) -> None:
    """Refuse and report what Python does to files outside ``folders``; and other programs, unless ``programs``."""
    inside = tuple(os.path.realpath(folder) + os.sep for folder in folders)
    real, fsdecode, devnull = os.path.realpath, os.fsdecode, os.devnull  # an answer may bind the names anew

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            if not (isinstance(arguments[2], int) and arguments[2] & _OPEN_TO_WRITE):
                return
            paths = arguments[:1]
        elif event in _PATHS:
            paths = tuple(arguments[at] for at in _PATHS[event])
        elif event in _PROGRAMS and not programs:
            raise PermissionError("no other program may be started: nothing would keep it from writing")
        else:
            return
        for path in paths:
            if isinstance(path, (str, bytes, os.PathLike)):  # and no open file's number
                place = real(fsdecode(path))
                if place != devnull and not (place + os.sep).startswith(inside):
                    report(f"tried to change {place}")
                    raise PermissionError(f"writes outside its folder: {place}")

    sys.addaudithook(hook)


# ------------------------------------------------------------------------------------------------- the answer's process


def run(job: dict[str, Any], channel: int) -> NoReturn:
    """Run the cells and the check; what comes out goes to ``channel``, a line of JSON each."""
    said: set[int] = set()

    def send(**message: str) -> None:
        os.write(channel, json.dumps({key: value[:1500] for key, value in message.items()}).encode() + b"\n")

    def outside(text: str) -> None:
        if os.getpid() not in said:  # once a process: nobody may fill the pipe
            said.add(os.getpid())
            send(outside=text)

    try:
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(null, stream)
        os.chdir(job["work"])
        sys.path.append(job["work"])
        _limit()
        version = landlock(job["folders"]) if job["landlock"] else 0
        checks = importlib.import_module("labkit.exercises")  # and torch
        send(guard=f"Landlock {version} and audit hook" if version else "audit hook")
        watch(job["folders"], outside, programs=version > 0)
    except (OSError, ImportError, AttributeError) as error:
        send(broken=f"{type(error).__name__}: {error}")
        os._exit(0)
    try:
        send(**_judge(job, getattr(checks, job["check"])))
    except BaseException as error:  # also SystemExit and KeyboardInterrupt: whatever ends an answer is its result
        send(result="error", message=_last_line(error))
    os._exit(0)  # and not through the exit handlers and threads of the answer


def _judge(job: dict[str, Any], check: Any) -> dict[str, str]:
    module = type(sys)("__main__")
    sys.modules["__main__"] = module  # pickle looks functions up in it
    space = module.__dict__
    space["display"] = lambda *values, **options: None
    for label, source in job["cells"]:
        exec(compile(source, f"<{label}>", "exec", dont_inherit=True), space)
    call = ast.parse(job["call"], mode="eval")
    assert isinstance(call.body, ast.Call)
    call.body.func = ast.copy_location(ast.Name("the course's own check", ast.Load()), call.body)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        passed = eval(compile(call, "<check>", "eval"), {**space, "the course's own check": check})
    if passed is True:
        return {"result": "passed", "message": ""}
    lines = [line for line in printed.getvalue().splitlines() if line.startswith("not yet: ")]
    return {"result": "not yet", "message": lines[-1].removeprefix("not yet: ") if lines else ""}


def _last_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def _limit() -> None:
    """No file fills the disk; and where memory runs out, this process goes first."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST_FILE, _LARGEST_FILE))
    if sys.platform.startswith("linux"):
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")


# ------------------------------------------------------------------------------------------------- the waiting process


def main() -> None:
    job = json.load(sys.stdin)
    linux = sys.platform.startswith("linux")
    if linux:  # whom an answer leaves behind becomes a child of this process
        _succeed(ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0))
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    begin = time.monotonic()
    if (child := os.fork()) == 0:
        os.setsid()
        if linux:  # should the waiting process be killed
            ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        os.close(read)
        run(job, write)
    os.close(write)
    status = None
    try:
        while status is None and time.monotonic() - begin < job["timeout"]:
            time.sleep(0.02)
            pid, code = os.waitpid(child, os.WNOHANG)
            status = code if pid else None
    finally:
        _end(child, status is None)
    lines: dict[str, str] = {}
    with contextlib.suppress(BlockingIOError):  # nothing was sent
        for line in os.read(read, 2**16).splitlines():
            lines |= json.loads(line)
    seconds = time.monotonic() - begin
    if "outside" in lines:
        lines |= {"result": "wrote outside", "message": lines["outside"]}
    elif status is None:
        lines |= {"result": "time limit", "message": f"stopped after {job['timeout']:g} s"}
    elif "result" not in lines and "broken" not in lines:
        how = os.waitstatus_to_exitcode(status)
        what = signal.strsignal(-how) if how < 0 else f"exit code {how}"
        lines |= {"result": "error", "message": f"the process ended before the check was done: {what}"}
    print(json.dumps(lines | {"seconds": round(seconds, 1)}))


def _end(child: int, alive: bool) -> None:
    """Kill the answer's process group, and on Linux also those of its descendants that left the group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody is left in it
        os.killpg(child, signal.SIGKILL)
    if alive and not sys.platform.startswith("linux"):
        os.waitpid(child, 0)
    while sys.platform.startswith("linux"):
        for pid in _children():
            os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _children() -> list[int]:
    """Processes whose parent this one is, dead ones that nobody waited for among them."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat") as file:  # it may be gone
                if int(file.read().rpartition(")")[2].split()[1]) == os.getpid():
                    found.append(int(name))
    return found


if __name__ == "__main__":
    main()
