"""04, data loading: what shows that the technique acts; answers to its exercise."""

import contextlib
import multiprocessing
import queue
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from course import exercises
from tests.labs import nothing


def alive(names: dict[str, Any]) -> None:
    """Workers are processes, which last as long as they are kept; without them training loads."""
    # Workers and whether they are kept; then who loaded an epoch, and who is there after it.
    for workers, loader, loaded, kept in (
        (0, "DataLoader", 0, 0),
        (2, "DataLoader", 2, 2),
        (2, "new workers", 2, 0),
    ):
        settings = names["lab"].defaults | {"num_workers": workers, "loader": loader}
        workload = names["make_workload"](**settings)
        workload.step()
        assert len(names["epochs"].of(settings).loaders) == loaded
        assert len(multiprocessing.active_children()) == kept
        del workload
        assert not multiprocessing.active_children()


END = object()


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


def divides_by_zero(batches, ahead):
    yield 1 // 0


CHECK = exercises.check_04_prefetch
RIGHT = right
PATIENCE = 1.0
ALSO_RIGHT = [right_with_a_queue]
RAISES = [(divides_by_zero, ZeroDivisionError, "zero")]
WRONG = [
    (nothing, "yield the batches one after the other\n"),
    (plain, "with ahead=1 you took one batch and trained on it, and meanwhile 0 were loaded"),
    (only_the_first, "…the loading has to go on by itself, in a thread"),
    (all_at_once, "…999 more were loaded: they would fill the memory"),
    (threaded(maxsize=0), "…999 more were loaded: they would fill the memory"),
    (threaded(maxsize=1, sentinel=None), "from the batches [None, 0, False] it made []"),
    (threaded(maxsize=1), "…more than 1 seconds to hear of a source that fails: it hangs"),
    (swallows_errors, "…your loader ended with [0] as if all were well"),
    (many_threads, "from the batches [0, 1, 2, 3, 4] it made [4, 3, 2, 1, 0]"),
    (loses_the_last, "…it made [0, 1, 2, 3]"),
    (leaves_its_thread, "…your thread is still there"),
]
