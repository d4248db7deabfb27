"""The loop in which every child answers, without a child."""

import gc
import os
import pickle
import threading
from multiprocessing import Pipe

import pytest
import torch

from labkit import Workload
from labkit.arms import serve
from labkit.arms.children import Child, LinkBroken, dumps, how_it_ended


class HangUp(BaseException):
    """The notebook has nothing more to ask."""


class Notebook:
    """Asks one request after the other, and keeps the answers."""

    def __init__(self, *requests: bytes) -> None:
        self.requests, self.answers = list(requests), []
        self.inbox = self.connection = self

    def get(self) -> bytes:
        if not self.requests:
            raise HangUp
        return self.requests.pop(0)

    def send_bytes(self, message: bytes) -> None:
        self.answers.append(pickle.loads(message))


@pytest.fixture
def ask(monkeypatch):
    def answers(*requests, functions=(), errors_go_back=True):
        messages = []
        for command, *arguments in requests:
            messages.append(dumps((command, tuple(arguments))))
        return run(*messages, functions=functions, errors_go_back=errors_go_back)

    def run(*messages, functions=(), errors_go_back=True):
        notebook = Notebook(*messages)
        monkeypatch.setattr(serve._Link, "here", notebook)
        known = {function.__name__: function for function in functions}
        with pytest.raises(HangUp):
            serve.answer_requests(known, errors_go_back=errors_go_back)
        return notebook.answers

    answers.raw = run
    threads = torch.get_num_threads()
    yield answers
    torch.set_num_threads(threads)
    gc.unfreeze()


def make(size):
    value = torch.ones(size)
    return Workload(lambda: value @ value, size, "numbers")


def test_an_arm_is_defined_started_timed_and_closed(ask, tmp_path):
    closed = tmp_path / "closed"

    def make_closing():
        return Workload(lambda: None, close=closed.touch)

    define = ("arm.define", 7, make_closing, "a", {}, 0, {"num_threads": 1})
    *answers, last = ask(define, ("arm.start", 7), ("arm.block", 7, 2), ("arm.close", 7))
    assert [done for done, _ in answers] == [True] * 3 and last == (True, None)
    (_, nothing), (_, (seconds, samples, unit, device)), (_, block) = answers
    assert nothing is None and closed.exists() and torch.get_num_threads() == 1
    assert seconds >= 0 and block >= 0 and (samples, unit, device) == (1, "samples", "cpu")


def test_arms_are_told_apart_and_a_served_name_gets_its_settings(ask):
    one = ("arm.define", 1, "make", "a", {"size": 4}, 0, {})
    two = ("arm.define", 2, "make", "b", {"size": 9}, 0, {})
    answers = ask(one, two, ("arm.start", 2), ("arm.start", 1), functions=[make])
    assert answers[2][1][1:] == (9, "numbers", "cpu") and answers[3][1][1] == 4


def test_functions_are_called_by_name(ask):
    def add(a, b):
        return a + b

    assert ask(("add", 2, 3), ("add", "x", "y"), functions=[add]) == [(True, 5), (True, "xy")]


@pytest.mark.parametrize("command", ["subtract", "arm.evaluate", "arm.__init__", "arm.", "block"])
def test_what_is_not_served_is_told_with_what_is(ask, command):
    ((done, error),) = ask((command, 0), functions=[make])
    assert not done and isinstance(error, ValueError)
    assert str(error) == f"ask({command!r}): this script serves ['make']"


def test_errors_go_back_and_the_loop_goes_on(ask):
    class Odd(Exception):
        def __init__(self, a, b):
            super().__init__(a)

    def fail(kind):
        raise KeyError("no such layer") if kind == "plain" else Odd(1, 2)

    plain, odd, last = ask(("fail", "plain"), ("fail", "odd"), ("len", "ab"), functions=[fail, len])
    assert not plain[0] and isinstance(plain[1], KeyError) and plain[1].__traceback__ is None
    assert not odd[0] and type(odd[1]) is RuntimeError and str(odd[1]) == "Odd: 1"
    assert last == (True, 2)


def test_what_cannot_be_unpickled_goes_back_too(ask):
    missing = b"cno_such_module\nthing\n."
    ((done, error),) = ask.raw(missing)
    assert not done and isinstance(error, ModuleNotFoundError)


def test_an_answer_that_cannot_be_pickled_is_an_error(ask):
    def generate():
        return (number for number in range(3))

    ((done, error),) = ask(("generate",), functions=[generate])
    assert not done and isinstance(error, TypeError)


def test_in_a_script_the_error_comes_through(monkeypatch):
    def fail():
        raise LookupError("the loss of rank 1 is odd")

    notebook = Notebook(dumps(("fail", ())))
    monkeypatch.setattr(serve._Link, "here", notebook)
    with pytest.raises(LookupError, match="odd"):
        serve.answer_requests({"fail": fail}, errors_go_back=False)
    gc.unfreeze()
    assert notebook.answers == []


def test_modules_that_torch_replaced_travel_by_name():
    def flip():
        return torch.backends.cudnn

    assert pickle.loads(dumps(flip))() is torch.backends.cudnn


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (3, "ended with exit status 3"),
        (-15, "was ended by SIGTERM"),
        (-9, "was ended by SIGKILL (was the system short of memory?)"),
    ],
)
def test_how_a_process_ended(code, words):
    assert how_it_ended(code) == words


def test_a_child_that_ends_at_once_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.executable", "/bin/false")
    monkeypatch.setattr("labkit.arms.children._LOOK", 0.05)
    with (tmp_path / "log").open("wb") as log:
        child = Child(stdout=log, stderr=log)
        child.process.wait()
        with pytest.raises(LinkBroken):
            child.receive()
        with pytest.raises(LinkBroken):
            child.send("arm.start", 0)
        child.end()
    assert child.link.closed and child.process.returncode == 1


def test_a_child_that_ends_is_noticed_while_something_holds_its_link_open(tmp_path, monkeypatch):
    held = []

    def pipe():
        ours, theirs = Pipe()
        held.append(os.dup(theirs.fileno()))
        return ours, theirs

    monkeypatch.setattr("sys.executable", "/bin/false")
    monkeypatch.setattr("labkit.arms.children.Pipe", pipe)
    monkeypatch.setattr("labkit.arms.children._LOOK", 0.05)
    with (tmp_path / "log").open("wb") as log:
        child = Child(stdout=log, stderr=log)
        received = []

        def receive():
            with pytest.raises(LinkBroken):
                child.receive()
            received.append(True)

        thread = threading.Thread(target=receive, daemon=True)
        thread.start()
        thread.join(30)
        child.end()
    os.close(held[0])
    assert received
