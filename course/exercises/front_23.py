"""The exercise of notebook 23: a sampler, which says the seconds of each line of a file."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from course.exercises.tell import NotYet, attempt, check

Sample = Callable[..., Any]
# Seconds until a sampler that does not return counts as hanging, and of two lines of the program.
PATIENCE, LONG, SHORT = 5.0, 0.24, 0.06
# Seconds until a thread that was told to end has ended.
ENDS = 1.0
PROGRAM, LIBRARY = "program.py", "library.py"
TEXT = """
def step(wait):
    wait(LONG)
    wait(SHORT)

def train(wait):
    step(wait)
"""
LONG_LINE, SHORT_LINE, OUTER_LINE, FIRST_OF_LIBRARY = 3, 4, 7, 50
WAITS = """
def wait(seconds):
    time.sleep(seconds)

def work(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass
"""
# Seconds for which a program that waits for nothing keeps the interpreter from a thread that looks.
HELD = 0.05
# A right answer, too, has few looks then, and beside other programs at times too few.
TRIES = 3
# The thread in which the check calls a sampler.
CALLER = "check of sample"


class Planned(Exception):
    """The error that the check lets a program raise."""


@check("your looks tell where a program spends its time, and end with it", judged="inside")
def check_23_sample(answer: Sample) -> None:
    """`answer(work, file, every)` runs `work()` and looks every so many seconds which line of the
    file its thread is in: the innermost one. It returns the seconds by line.

    A look counts for the time since the last one. The thread that looks ends with the work.
    """
    before = set(threading.enumerate())
    found, looks, took = _sampled(answer, _program(), 0.005)
    _no_thread(before)
    _lines(found)
    _seconds(found, took)
    _pauses(looks, took, 0.005)
    for _ in range(TRIES):
        with _held():
            found, _, took = _sampled(answer, _program("work"), 0.005)
        if _is_whole(found, took):
            break
    _whole(found, took, ", in which a look often had to wait for its turn")
    with _caught() as late:
        _error(answer)
        _no_thread(before, " after an error of the program: end it in `finally`")
    if late:
        raise NotYet(
            "after an error of the program your thread goes on, until it fails itself with "
            f"{late[0]!r}: end it in `finally`"
        )


def _program(spends: str = "wait") -> Callable[[], None]:
    """A program that is a file's, and that spends its time in a library's: it waits, or works."""
    library: dict[str, Any] = {"time": time}
    lines = "\n" * (FIRST_OF_LIBRARY - 1) + WAITS
    exec(compile(lines, LIBRARY, "exec"), library)
    names: dict[str, Any] = {"LONG": LONG, "SHORT": SHORT}
    exec(compile(TEXT, PROGRAM, "exec"), names)
    return lambda: names["train"](library[spends])


def _sampled(answer: Sample, work: Callable[[], object], every: float) -> tuple[Any, int, float]:
    """What a sampler returns in a thread of its own, its looks, and the seconds of the work."""
    outcome: dict[str, Any] = {}
    spans: list[float] = []

    def timed() -> None:
        begin = time.perf_counter()
        try:
            work()
        finally:
            spans.append(time.perf_counter() - begin)

    def run() -> None:
        try:
            outcome["value"] = attempt(answer, timed, PROGRAM, every)
        except Exception as error:
            outcome["error"] = error

    with _counted() as looks, _caught() as errors:
        caller = threading.Thread(target=run, name=CALLER, daemon=True)
        caller.start()
        caller.join(PATIENCE)
    if errors:
        raise errors[0]
    if caller.is_alive():
        raise NotYet(
            f"sample did not return within {PATIENCE:g} s, and the program takes "
            f"{LONG + SHORT:g} s: tell the thread that the work is done, then wait for it"
        )
    if "error" in outcome:
        raise outcome["error"]
    if len(spans) != 1:
        raise NotYet(f"the program ran {len(spans)} times: call work() once, while a thread looks")
    return outcome["value"], len(looks), spans[0]


@contextmanager
def _held() -> Iterator[None]:
    """The thread that works gives the interpreter away rarely."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(HELD)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


@contextmanager
def _counted() -> Iterator[list[None]]:
    """The looks that are taken meanwhile, but by threads that an earlier answer has left."""
    looks: list[None] = []
    frames, left = sys._current_frames, set(threading.enumerate())

    def counting() -> Any:
        if threading.current_thread() not in left:
            looks.append(None)
        return frames()

    sys._current_frames = counting
    try:
        yield looks
    finally:
        sys._current_frames = frames


@contextmanager
def _caught() -> Iterator[list[BaseException]]:
    """Errors of threads, which nobody else would see."""
    errors: list[BaseException] = []
    shown = threading.excepthook

    def keep(ended: threading.ExceptHookArgs) -> None:
        if ended.exc_value is not None:
            errors.append(ended.exc_value)

    threading.excepthook = keep
    try:
        yield errors
    finally:
        threading.excepthook = shown


def _no_thread(before: set[threading.Thread], when: str = " when sample has returned") -> None:
    deadline = time.monotonic() + ENDS
    while left := set(threading.enumerate()) - before:
        if time.monotonic() > deadline:
            raise NotYet(f"a thread still looks{when} ({left.pop().name})")
        time.sleep(0.01)


def _lines(found: Any) -> None:
    if not isinstance(found, Mapping):
        raise NotYet(f"return the seconds of each line, such as {{12: 0.5}}; yours is {found!r}")
    if not any(found.values()):
        raise NotYet(
            f"no look saw a line of {PROGRAM}: look at the thread that calls sample; its number is "
            "threading.get_ident(), taken before your own thread begins; and go outwards by "
            "frame.f_back, since what waits is a library's"
        )
    if others := [line for line in found if line > FIRST_OF_LIBRARY]:
        raise NotYet(
            f"line {others[0]} is one of {LIBRARY}: go outwards by frame.f_back until "
            "frame.f_code.co_filename is the file"
        )
    if OUTER_LINE in found:
        raise NotYet(
            f"line {OUTER_LINE} only calls the function in which the time goes by: stop at the "
            "first frame of the file, which is the innermost"
        )
    if unknown := set(found) - {LONG_LINE, SHORT_LINE}:
        raise NotYet(f"{sorted(unknown, key=str)} are no lines in which {PROGRAM} spends its time")


def _is_whole(found: Mapping[int, float], took: float) -> bool:
    return 0.5 * took < sum(found.values()) < 1.5 * took


def _whole(found: Mapping[int, float], took: float, which: str = "") -> None:
    if not _is_whole(found, took):
        whole = sum(found.values())
        raise NotYet(
            f"your lines add up to {whole:.3g}, and the program took {took:.3g} s{which}: a look "
            "counts for the seconds since the last one"
        )


def _seconds(found: Mapping[int, float], took: float) -> None:
    _whole(found, took)
    if not found.get(LONG_LINE, 0) > found.get(SHORT_LINE, 0):
        raise NotYet(
            f"line {LONG_LINE} takes {LONG:g} s and line {SHORT_LINE} {SHORT:g} s; "
            f"yours are {dict(found)}"
        )


def _pauses(looks: int, took: float, every: float) -> None:
    if looks > 2 * took / every + 10:
        raise NotYet(
            f"too many looks, {looks} in {took:.2g} s with every={every}: wait so long between two"
        )


def _error(answer: Sample) -> None:
    def fails() -> None:
        raise Planned("planned by the check")

    try:
        _sampled(answer, fails, 0.005)
    except Planned:
        return
    raise NotYet("the program raised an error, and sample kept it for itself: let it through")
