"""The exercise of the front notebook 10: a device that a thread plays."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from course.exercises.tell import NotYet, attempt, check

# Seconds until a call that does not return counts as hanging, and that a slow call takes.
PATIENCE, SLOW = 3.0, 0.05
# The threads in which the check calls a device; one may hang.
CALLERS = {name: f"check of {name}" for name in ("submit", "read", "close")}


class Planned(Exception):
    """The error that the check puts into the queue."""


@check("calls queue up, a read waits for them, and errors come with the next read", judged="inside")
def check_10_device(answer: Callable[[], Any]) -> None:
    """`answer()` is a device: `submit(function, *arguments)` returns at once, `read()` waits for
    all and returns the value of the last call, `close()` ends its thread.

    An error is raised by the next `read`; what was queued behind it is dropped.
    """
    before = set(threading.enumerate())
    for case in (_one_call, _at_once, _in_order, _error, _goes_on):
        with _planned_errors_unprinted(), _device(answer) as device:
            case(device)
    deadline = time.monotonic() + PATIENCE
    while left := set(threading.enumerate()) - before:
        if time.monotonic() > deadline:
            raise NotYet(f"after close() a thread is left: {left.pop().name}")
        time.sleep(0.01)


@contextmanager
def _planned_errors_unprinted() -> Iterator[None]:
    """A thread of the reader that ends by the check's own error prints no traceback of it."""
    shown = threading.excepthook

    def show(ended: threading.ExceptHookArgs) -> None:
        if not issubclass(ended.exc_type, Planned):
            shown(ended)

    threading.excepthook = show
    try:
        yield
    finally:
        threading.excepthook = shown


@contextmanager
def _device(answer: Callable[[], Any]) -> Iterator[Any]:
    device = attempt(answer)
    for name in ("submit", "read", "close"):
        if not callable(getattr(device, name, None)):
            raise NotYet(f"a device has the method {name}; yours, {device!r}, has none")
    try:
        yield device
    except NotYet:
        # The hint is about the case: its thread may hang, and is not waited for.
        threading.Thread(target=device.close, daemon=True).start()
        raise
    _within("close", device.close)


def _one_call(device: Any) -> None:
    _submit(device, pow, 2, 10)
    _same("after pow(2, 10)", _read(device), 1024)
    # Nothing is new: the value is still the last call's.
    _same("read once more", _read(device), 1024)
    _submit(device, pow, 3, 2)
    _same("after another call, pow(3, 2),", _read(device), 9)


def _at_once(device: Any) -> None:
    gate = threading.Event()
    threads: list[str] = []

    def wait() -> str:
        threads.append(threading.current_thread().name)
        gate.wait(PATIENCE / 2)
        return "opened"

    begin = time.monotonic()
    _submit(device, wait)
    if time.monotonic() - begin > PATIENCE / 4:
        raise NotYet("submit waited for the call: put it into a queue, and return at once")
    threading.Timer(SLOW, gate.set).start()
    got = _read(device)
    if not gate.is_set():
        raise NotYet("read returned while a call was still running: wait until all are done")
    _same("after a slow call", got, "opened")
    if threads == [CALLERS["read"]]:
        raise NotYet("the call ran in the thread that reads: run it in a thread of the device")


def _in_order(device: Any) -> None:
    done: list[int] = []

    def note(number: int) -> int:
        # The first ones take longest.
        time.sleep(SLOW / (1 + number))
        done.append(number)
        return number

    for number in range(6):
        _submit(device, note, number)
    got = _read(device)
    if len(done) < 6:
        raise NotYet(f"6 calls were queued, and read returned after {len(done)}: wait for all")
    if done != list(range(6)):
        raise NotYet(f"the calls ran in the order {done}: one thread, first in, first out")
    _same("after 6 calls", got, 5)


def _error(device: Any) -> None:
    behind: list[int] = []
    _submit(device, _fail)
    time.sleep(SLOW)
    _submit(device, behind.append, 1)
    try:
        got = _read(device, "after a call that raised an error: catch it in the thread, and go on")
    except Planned:
        pass
    else:
        raise NotYet(f"a call raised an error, and read returned {got!r}: let read raise it")
    if behind:
        raise NotYet("a call behind the one that failed was still done: drop it")


def _goes_on(device: Any) -> None:
    _submit(device, _fail)
    with suppress(Planned):
        _read(device)
    _submit(device, pow, 5, 2)
    try:
        got = _read(device)
    except Planned:
        raise NotYet("an error was raised by two reads: once it is told, forget it") from None
    _same("after an error was read, pow(5, 2)", got, 25)


def _fail() -> None:
    raise Planned("planned by the check")


def _submit(device: Any, function: Callable[..., Any], *arguments: Any) -> None:
    try:
        _within("submit", device.submit, function, *arguments)
    except Planned:
        raise NotYet("submit raised a call's error: keep it for the next read") from None


def _read(device: Any, when: str = "") -> Any:
    return _within("read", device.read, when=when)


def _within(name: str, call: Callable[..., Any], *arguments: Any, when: str = "") -> Any:
    """Its value or its error; NotYet where it does not return, with a word on ``when``."""
    outcome: dict[str, Any] = {}

    def run() -> None:
        try:
            outcome["value"] = attempt(call, *arguments)
        except Exception as error:
            outcome["error"] = error

    thread = threading.Thread(target=run, name=CALLERS[name], daemon=True)
    thread.start()
    thread.join(PATIENCE)
    if thread.is_alive():
        raise NotYet(f"{name}() did not return within {PATIENCE:g} s {when}".rstrip())
    if "error" in outcome:
        raise outcome["error"]
    return outcome["value"]


def _same(case: str, got: Any, wanted: Any) -> None:
    if got != wanted:
        raise NotYet(f"{case} read returns {wanted!r}, yours {got!r}")
