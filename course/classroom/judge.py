"""Runs one answer and its check in a process that can be stopped and cannot write elsewhere.

Started by path, not as a module: until the guards are up nothing but the standard library is
loaded. The job comes as JSON on stdin, the result goes as JSON to stdout.

A judge is two processes. One runs the answer in a session of its own. The other waits, kills that
process group, and, as a "subreaper", on Linux also whoever left the group: orphans become its
children, and it ends when it has none left.

Landlock binds the thread that asks for it and whatever that one starts, not threads that run
already: it is set before torch is loaded. It says nothing of what it refused. The audit hook
sees what Python does, and so names the path, also where the answer swallowed the error; C++
(`torch.save`) and other programs are seen by Landlock alone. Landlock knows nothing of modes,
owners and times of files; for these there is only the hook. Without Landlock no program may be
started at all.

It holds up accidents, not attacks. The check's function is looked up before the answer runs and
called under a name that no code can bind; but answer and check share a process, the answer may read
what you may read, and who wants to cheat can.
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
from typing import Any

LINUX = sys.platform.startswith("linux")
# prctl
_SUBREAPER, _DEATH_SIGNAL, _NO_NEW_PRIVILEGES = 36, 1, 38
# Landlock's system calls, the same on all processors
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = (
    444,
    445,
    446,
)
# Landlock's rights to write a file and, since version 3, to truncate it
_ON_FILES = 1 << 1 | 1 << 14
# to write, remove, make
_CHANGES = 1 << 1 | sum(1 << bit for bit in range(4, 13))


def landlock(places: list[str]) -> int:
    """Forbid this process and all it starts to write outside ``places``.

    Landlock's version, 0 where there is none.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def call(function: Any, *arguments: Any) -> int:
        if (status := function(*arguments)) < 0:
            raise OSError(ctypes.get_errno(), f"Landlock: {os.strerror(ctypes.get_errno())}")
        return int(status)

    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1) if LINUX else 0
    if version < 1:
        # another system, an old kernel, or one that was built or started without it
        return 0
    rights = _CHANGES | (1 << 13 if version >= 2 else 0) | (1 << 14 if version >= 3 else 0)
    # Rights on files; on the network (none); from version 6 on: no signals to processes other
    # than its own.
    attributes = struct.pack("QQQ", rights, 0, 2)[: 24 if version >= 6 else 8]
    rules = call(libc.syscall, _CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    for place in places:
        handle = os.open(place, os.O_PATH)
        allowed = struct.pack("=Qi", rights if os.path.isdir(place) else rights & _ON_FILES, handle)
        call(libc.syscall, _ADD_RULE, rules, 1, allowed, 0)
        os.close(handle)
    call(libc.prctl, _NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    call(libc.syscall, _RESTRICT_SELF, rules, 0)
    os.close(rules)
    return int(version)


# events of Python that change files: how many of their arguments are paths
_CHANGED = {
    **dict.fromkeys(
        ("os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod", "os.chown", "os.utime"), 1
    ),
    **dict.fromkeys(("os.rename", "os.link", "os.symlink"), 2),
}
_PROGRAMS = ("os.system", "os.exec", "os.posix_spawn", "subprocess.Popen")
_TO_WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def watch(places: list[str], report: Any, *, programs: bool) -> None:
    """Refuse and report what Python does to files outside ``places``.

    And other programs, unless ``programs``.
    """
    inside, real, name = (
        tuple(os.path.realpath(place) + os.sep for place in places),
        os.path.realpath,
        os.fsdecode,
    )

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _PROGRAMS and not programs:
            raise PermissionError(
                "no other program may be started: nothing would keep it from writing"
            )
        opened = event == "open" and isinstance(arguments[2], int) and arguments[2] & _TO_WRITE
        for path in arguments[: 1 if opened else _CHANGED.get(event, 0)]:
            # int: a file that is open
            place = inside[0] if isinstance(path, int) else real(name(path)) + os.sep
            if not place.startswith(inside):
                report(place.rstrip(os.sep))
                raise PermissionError(f"writes outside its folder: {place.rstrip(os.sep)}")

    sys.addaudithook(hook)


def run(job: dict[str, Any], channel: int) -> None:
    """Run the cells and the check; what comes out goes to ``channel``, a line of JSON each."""
    said = set()

    def send(**message: str) -> None:
        os.write(
            channel,
            json.dumps({key: value[:1000] for key, value in message.items()}).encode() + b"\n",
        )

    def outside(path: str) -> None:
        # once a process: nobody may fill the pipe
        if os.getpid() not in said:
            said.add(os.getpid())
            send(outside=f"tried to change {path}")

    for stream in range(3):
        os.dup2(os.open(os.devnull, os.O_RDWR), stream)
    os.chdir(job["work"])
    sys.path.append(job["work"])
    try:
        version = landlock(job["places"]) if job["landlock"] else 0
        # brings torch
        check = getattr(importlib.import_module("course.exercises"), job["check"])
    except (OSError, ImportError, AttributeError) as error:
        return send(broken=f"{type(error).__name__}: {error}")
    send(guard=f"Landlock {version} and audit hook" if version else "audit hook")
    watch(job["places"], outside, programs=version > 0)
    try:
        send(**_judge(job["cells"], job["call"], check))
    # also SystemExit and KeyboardInterrupt: whatever ends an answer is its result
    except BaseException as error:
        text = ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])
        # torch's C++ was
        refused = version and isinstance(error, RuntimeError) and "Permission denied" in text
        send(result="wrote outside" if refused else "error", message=text)


def _judge(cells: list[str], call: str, check: Any) -> dict[str, str]:
    # pickle looks functions up in it
    module = sys.modules["__main__"] = type(sys)("__main__")
    # a notebook has it
    module.__dict__["display"] = print
    for number, source in enumerate(cells):
        exec(compile(source, f"<answer {number}>", "exec", dont_inherit=True), module.__dict__)
    tree: Any = ast.parse(call, mode="eval")
    # a name that no answer can bind
    tree.body.func = ast.copy_location(ast.Name("the course's check", ast.Load()), tree.body)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        passed = eval(
            compile(tree, "<check>", "eval"), module.__dict__ | {"the course's check": check}
        )
    if passed is True:
        return {"result": "passed", "message": ""}
    hints = [line for line in printed.getvalue().splitlines() if line.startswith("not yet: ")]
    return {"result": "not yet", "message": "".join(hints[-1:]).removeprefix("not yet: ")}


def main() -> None:
    job, begin = json.load(sys.stdin), time.monotonic()
    # whom an answer leaves behind becomes a child of this process
    if LINUX:
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    if (child := os.fork()) == 0:
        os.setsid()
        # should this process be killed, so is the answer
        if LINUX:
            ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        run(job, write)
        # and not through the exit handlers and threads of the answer
        os._exit(0)
    ended = status = 0
    try:
        while not ended and time.monotonic() - begin < job["timeout"]:
            time.sleep(0.02)
            ended, status = os.waitpid(child, os.WNOHANG)
    finally:
        _end(child)
    lines: dict[str, Any] = {}
    # nothing was sent
    with contextlib.suppress(BlockingIOError):
        for line in os.read(read, 2**16).splitlines():
            lines |= json.loads(line)
    if "outside" in lines:
        lines |= {"result": "wrote outside", "message": lines["outside"]}
    elif not ended:
        lines |= {"result": "time limit", "message": f"stopped after {job['timeout']:g} s"}
    elif not lines.keys() & {"result", "broken"}:
        code = os.waitstatus_to_exitcode(status)
        how = signal.strsignal(-code) if code < 0 else f"exit code {code}"
        lines |= {"result": "error", "message": f"the process ended before its check did: {how}"}
    print(json.dumps(lines | {"seconds": round(time.monotonic() - begin, 1)}))


def _end(child: int) -> None:
    """Kill the answer's process group, and on Linux also those of its descendants that left the
    group.
    """
    # nobody is left in it
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    # when no child is left, not even a dead one
    with contextlib.suppress(ChildProcessError):
        while True:
            for path in os.listdir("/proc") if LINUX else ():
                with (
                    contextlib.suppress(OSError),
                    open(f"/proc/{int(path) if path.isdecimal() else 0}/stat") as file,
                ):
                    if int(file.read().rpartition(")")[2].split()[1]) == os.getpid():
                        os.kill(int(path), signal.SIGKILL)
            os.waitpid(-1, 0)


if __name__ == "__main__":
    main()
