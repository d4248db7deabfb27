"""The exercise of the front notebook 04: a loader that works ahead."""

import contextlib
import queue
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import pytest

from course.exercises import check_04_prefetch, front_04

END = object()


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(front_04, "PATIENCE", 1.0)


def right(batches, ahead):
    source = iter(batches)
    with ThreadPoolExecutor(max_workers=1) as pool:
        pending = deque(pool.submit(next, source, END) for _ in range(ahead))
        while (batch := pending.popleft().result()) is not END:
            pending.append(pool.submit(next, source, END))
            yield batch


def put(places, item, stopped):
    """Wait for a place, but not after the end."""
    while not stopped.is_set():
        with contextlib.suppress(queue.Full):
            places.put(item, timeout=0.01)
            break


def right_with_a_queue(batches, ahead):
    places, stopped = queue.Queue(ahead), threading.Event()

    def load():
        try:
            for batch in batches:
                put(places, (batch, None), stopped)
                if stopped.is_set():
                    return
            put(places, (END, None), stopped)
        except OSError as error:
            put(places, (END, error), stopped)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        yield from taken(places)
    finally:
        stopped.set()
        thread.join()


def taken(places):
    while True:
        batch, error = places.get()
        if error:
            raise error
        if batch is END:
            return
        yield batch


def empty(batches, ahead): ...


def plain(batches, ahead):
    yield from batches


def all_at_once(batches, ahead):
    yield from list(batches)


def only_the_first(batches, ahead):
    """Fills up once, in the consumer's own time."""
    source, waiting = iter(batches), deque()
    while True:
        while len(waiting) < ahead:
            waiting.append(next(source, END))
        batch = waiting.popleft()
        if batch is END:
            return
        yield batch


def threaded(maxsize, sentinel=END, daemon=True):
    def answer(batches, ahead):
        places = queue.Queue(maxsize and ahead)

        def load():
            for batch in batches:
                places.put(batch)
            places.put(sentinel)

        threading.Thread(target=load, daemon=daemon).start()
        while (batch := places.get()) is not sentinel:
            yield batch

    return answer


def swallows_errors(batches, ahead):
    places, stopped = queue.Queue(ahead), threading.Event()

    def load():
        source = iter(batches)
        while not stopped.is_set():
            try:
                batch = next(source, END)
            except OSError:
                batch = END
            places.put(batch)
            if batch is END:
                return

    threading.Thread(target=load, daemon=True).start()
    try:
        while (batch := places.get()) is not END:
            yield batch
    finally:
        stopped.set()


def many_threads(batches, ahead):
    """Several threads read the batches, and whoever is done first comes first."""
    batches = list(batches)
    with ThreadPoolExecutor(max(1, ahead)) as pool:
        futures = [pool.submit(lambda batch=batch: batch) for batch in batches]
        for future in reversed(futures):
            yield future.result()


def loses_the_last(batches, ahead):
    source = iter(batches)
    with ThreadPoolExecutor(max_workers=1) as pool:
        pending = deque(pool.submit(next, source, END) for _ in range(ahead + 1))
        while pending[1].result() is not END:
            yield pending.popleft().result()
            pending.append(pool.submit(next, source, END))


@pytest.mark.parametrize("answer", [right, right_with_a_queue])
def test_solutions_pass(answer, capsys):
    before = threading.active_count()
    assert check_04_prefetch(answer) is True
    assert capsys.readouterr().out.startswith("✓")
    assert threading.active_count() == before


@pytest.mark.parametrize("answer", [empty])
def test_an_unsolved_stub_is_told_so(answer, capsys):
    assert check_04_prefetch(answer) is False
    assert capsys.readouterr().out == "not yet: yield the batches one after the other\n"


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (plain, "with ahead=1 you took one batch and trained on it, and meanwhile 0 were loaded"),
        (only_the_first, "the loading has to go on by itself, in a thread"),
        (all_at_once, "999 more were loaded: they would fill the memory"),
        (threaded(maxsize=0), "999 more were loaded: they would fill the memory"),
        (threaded(maxsize=1, sentinel=None), "from the batches [None, 0, False] it made []"),
        (threaded(maxsize=1), "more than 1 seconds to hear of a source that fails: it hangs"),
        (swallows_errors, "your loader ended with [0] as if all were well"),
        (many_threads, "from the batches [0, 1, 2, 3, 4] it made [4, 3, 2, 1, 0]"),
        (loses_the_last, "it made [0, 1, 2, 3]"),
    ],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_wrong_answers_fail_and_are_told_why(answer, hint, capsys):
    assert check_04_prefetch(answer) is False
    printed = capsys.readouterr().out
    assert printed.startswith("not yet: ") and hint in printed, printed


def leaves_its_thread(batches, ahead):
    places = queue.Queue(ahead)

    def load():
        try:
            for batch in batches:
                places.put((batch, None))
            places.put((END, None))
        except OSError as error:
            places.put((END, error))

    threading.Thread(target=load, daemon=True).start()
    yield from taken(places)


def test_a_thread_that_is_left_behind(capsys):
    assert check_04_prefetch(leaves_its_thread) is False
    assert "your thread is still there" in capsys.readouterr().out


def test_errors_of_the_reader_s_own_are_raised():
    def answer(batches, ahead):
        yield 1 // 0

    with pytest.raises(ZeroDivisionError):
        check_04_prefetch(answer)
