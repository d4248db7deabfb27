"""10, host and device: what shows that the technique acts; answers to its exercise."""

import threading
import time
from queue import LifoQueue, Queue
from typing import Any

from course import exercises, stand_in
from tests.labs import counters


def alive(names: dict[str, Any]) -> None:
    every, once = (counters(names, read_every=number).host_reads for number in (1, 16))
    assert (every, once) == (16, 1)


class Right:
    kind = Queue

    def __init__(self):
        self.queue, self.value, self.error = self.kind(), None, None
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        while (call := self.queue.get()) is not None:
            self.do(*call)
            self.queue.task_done()

    def do(self, function, arguments):
        if self.error is None:
            try:
                self.value = function(*arguments)
            except Exception as error:
                self.error = error

    def submit(self, function, *arguments):
        self.queue.put((function, arguments))

    def read(self):
        self.queue.join()
        error, self.error = self.error, None
        if error is not None:
            raise error
        return self.value

    def close(self):
        self.queue.put(None)
        self.thread.join()


class RunsInSubmit(Right):
    def submit(self, function, *arguments):
        self.do(function, arguments)


class RunsInRead(Right):
    def __init__(self):
        super().__init__()
        self.calls = []

    def submit(self, function, *arguments):
        self.calls.append((function, arguments))

    def read(self):
        while self.calls:
            self.do(*self.calls.pop(0))
        return super().read()


class LastInFirstOut(Right):
    kind = LifoQueue


class AThreadPerCall(Right):
    def __init__(self):
        super().__init__()
        self.threads = []

    def submit(self, function, *arguments):
        self.threads.append(threading.Thread(target=self.do, args=(function, arguments)))
        self.threads[-1].start()

    def read(self):
        for thread in self.threads:
            thread.join()
        return super().read()


class ReadsEarly(Right):
    def read(self):
        time.sleep(0.01)
        return self.value


class ReadsStale(Right):
    """The value of the first call."""

    def do(self, function, arguments):
        if self.value is None:
            super().do(function, arguments)
        else:
            first = self.value
            super().do(function, arguments)
            self.value = first


class ReadsOnce(Right):
    def read(self):
        value, self.value = super().read(), None
        return value


class Swallows(Right):
    def read(self):
        try:
            return super().read()
        except Exception:
            return self.value


class RaisesInSubmit(Right):
    def submit(self, function, *arguments):
        error, self.error = self.error, None
        if error is not None:
            raise error
        super().submit(function, *arguments)


class DoesWhatIsBehind(Right):
    def do(self, function, arguments):
        try:
            self.value = function(*arguments)
        except Exception as error:
            self.error = error


class RaisesForEver(Right):
    def read(self):
        self.queue.join()
        if self.error is not None:
            raise self.error
        return self.value


class HangsAfterAnError(Right):
    def work(self):
        while self.error is None and (call := self.queue.get()) is not None:
            self.do(*call)
            if self.error is None:
                self.queue.task_done()


class DiesOfAnError(Right):
    """The thread ends by the error, which nobody catches."""

    def do(self, function, arguments):
        self.value = function(*arguments)


class LeavesItsThread(Right):
    def close(self):
        pass


class HangsInClose(Right):
    def close(self):
        self.thread.join()


class NoRead:
    def submit(self, function, *arguments):
        function(*arguments)

    def close(self):
        pass


class Stub(NoRead):
    def submit(self, function, *arguments):
        raise NotImplementedError("your turn")

    def read(self):
        raise NotImplementedError("your turn")


class Typo(Right):
    def read(self):
        return self.valve


CHECK = exercises.check_10_device
RIGHT = Right
ALSO_RIGHT = [stand_in.SecondCore]
PATIENCE = 1.0
RAISES = [(Typo, AttributeError, "valve")]
WRONG = [
    (Stub, "write it"),
    (RunsInSubmit, "submit waited for the call"),
    (RunsInRead, "…ran in the thread that reads"),
    (LastInFirstOut, "…first in, first out"),
    (AThreadPerCall, "…first in, first out"),
    (ReadsEarly, "read return"),
    (ReadsStale, "after another call"),
    (ReadsOnce, "read once more"),
    (Swallows, "…let read raise it"),
    (RaisesInSubmit, "submit raised a call's error"),
    (DoesWhatIsBehind, "…was still done"),
    (RaisesForEver, "…by two reads"),
    (HangsAfterAnError, "…catch it in the thread"),
    (DiesOfAnError, "…catch it in the thread"),
    (LeavesItsThread, "…a thread is left"),
    (HangsInClose, "close() did not return"),
    (NoRead, "…has the method read"),
]
