"""The exercise of the front notebook 04: a loader that works ahead."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from course.exercises.tell import NotYet, attempt, check

Prefetch = Callable[[Iterable[Any], int], Any]
# Seconds for what a right answer does at once; only wrong answers use them up.
PATIENCE = 5.0


@check(
    "the same batches in the same order, loaded ahead of you, and no more of them than asked",
    judged="inside",
)
def check_04_prefetch(answer: Prefetch) -> None:
    """`answer(batches, ahead)` yields the batches in order, with at most `ahead` of them loaded
    before they are asked for.

    It is tried on numbers, on a source that notes how far it was read, and on one that fails.
    """
    _same_batches(answer)
    _works_ahead(answer)
    _passes_errors_on(answer)
    _leaves_nothing_behind(answer)


def _same_batches(answer: Prefetch) -> None:
    for batches in ([0, 1, 2, 3, 4], [7], [], [None, 0, False]):
        found = attempt(answer, iter(batches), 2)
        if found is None:
            raise NotYet("yield the batches one after the other")
        got = _within("to go through the batches", partial(list, found))
        if got != batches:
            raise NotYet(f"from the batches {batches} it made {got}")


def _works_ahead(answer: Prefetch) -> None:
    """The source is read ahead while the consumer is busy, but not further than asked."""
    for ahead in (1, 3):
        source = _Source()
        loader = iter(attempt(answer, source, ahead))
        _within("for the first batch", partial(next, loader))
        if not _becomes(partial(source.has_read, 1 + ahead)):
            raise NotYet(
                f"with ahead={ahead} you took one batch and trained on it, and meanwhile "
                f"{source.read - 1} were loaded: the loading has to go on by itself, in a thread"
            )
        # One may be under way: a thread that waits for a place holds it in its hand.
        if _becomes(partial(source.has_read, 1 + ahead + 2), seconds=0.2):
            raise NotYet(
                f"with ahead={ahead} you took one batch, and {source.read - 1} more were loaded: "
                "they would fill the memory"
            )
        _close(loader)


def _passes_errors_on(answer: Prefetch) -> None:
    def broken() -> Iterator[int]:
        yield 0
        raise OSError("a damaged file")

    loader = attempt(answer, broken(), 2)
    try:
        seen = _within("to hear of a source that fails", partial(list, loader))
    except OSError:
        return
    raise NotYet(
        f"the source failed at its second batch, and your loader ended with {seen} as if "
        "all were well"
    )


def _leaves_nothing_behind(answer: Prefetch) -> None:
    before = threading.active_count()
    loader = iter(attempt(answer, _Source(), 2))
    _within("for the first batch", partial(next, loader))
    _close(loader)
    del loader
    if not _becomes(lambda: threading.active_count() <= before):
        raise NotYet(
            "after a loop that ends with `break` your thread is still there, with its batches: "
            "end it when the loader is closed"
        )


class _Source:
    """Many batches, and how many of them were read."""

    def __init__(self) -> None:
        self.read = 0
        self._numbers = itertools.count()

    def __iter__(self) -> Iterator[int]:
        return self

    def has_read(self, number: int) -> bool:
        return self.read >= number

    def __next__(self) -> int:
        if self.read == 1000:
            raise StopIteration
        self.read += 1
        return next(self._numbers)


def _close(loader: object) -> None:
    """As the end of a `for` loop does it, for a generator."""
    close = getattr(loader, "close", None)
    if close is not None:
        _within("to be closed", close)


def _becomes(condition: Callable[[], bool], seconds: float | None = None) -> bool:
    end = time.monotonic() + (seconds or PATIENCE)
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True


def _within(what: str, act: Callable[[], Any]) -> Any:
    """What `act()` returns; its errors are raised here. NotYet when it hangs."""
    result: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            result.append(act())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    if thread.is_alive():
        raise NotYet(f"it took more than {PATIENCE:g} seconds {what}: it hangs")
    if errors:
        raise errors[0]
    return result[0]
