"""The exercise of the front notebook 10: a device that a thread plays."""

import threading
import time
from queue import LifoQueue, Queue

import pytest

from course import stand_in
from course.exercises import check_10_device, front_10


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(front_10, "PATIENCE", 1.0)


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


@pytest.mark.parametrize("answer", [Right, stand_in.SecondCore])
def test_right(answer, capsys):
    before = threading.active_count()
    assert check_10_device(answer) is True
    assert "a read waits for them" in capsys.readouterr().out
    assert threading.active_count() == before


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


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (RunsInSubmit, "submit waited for the call"),
        (RunsInRead, "ran in the thread that reads"),
        (LastInFirstOut, "first in, first out"),
        (AThreadPerCall, "first in, first out"),
        (ReadsEarly, "read return"),
        (ReadsStale, "after another call"),
        (ReadsOnce, "read once more"),
        (Swallows, "let read raise it"),
        (RaisesInSubmit, "submit raised a call's error"),
        (DoesWhatIsBehind, "was still done"),
        (RaisesForEver, "by two reads"),
        (HangsAfterAnError, "catch it in the thread"),
        (LeavesItsThread, "a thread is left"),
        (HangsInClose, "close() did not return"),
        (NoRead, "has the method read"),
    ],
)
def test_wrong(answer, hint, capsys):
    assert check_10_device(answer) is False
    text = capsys.readouterr().out
    assert text.startswith("not yet: ")
    assert hint in text


def test_a_thread_prints_its_own_errors_only(monkeypatch, capsys):
    class Typo(Right):
        def do(self, function, arguments):
            self.value = function(*argument)  # noqa: F821

    printed = []
    monkeypatch.setattr(threading, "excepthook", lambda ended: printed.append(ended.exc_type))
    for answer in (DiesOfAnError, Typo):
        hook = threading.excepthook
        assert check_10_device(answer) is False
        assert threading.excepthook is hook
    assert printed == [NameError]
    assert "catch it in the thread" in capsys.readouterr().out


def test_the_stub_is_not_yet_written(capsys):
    class Stub:
        def submit(self, function, *arguments):
            raise NotImplementedError("your turn")

        def read(self):
            raise NotImplementedError("your turn")

        def close(self):
            pass

    assert check_10_device(Stub) is False
    assert "write the function" in capsys.readouterr().out


def test_a_mistake_of_the_reader_is_told_by_python():
    class Typo(Right):
        def read(self):
            return self.valve

    with pytest.raises(AttributeError, match="valve"):
        check_10_device(Typo)
