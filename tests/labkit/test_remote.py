"""Arms in other processes: the loop in which children answer, an arm's own process, workers."""

import gc
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from labkit import Lab, Workload
from labkit.arm import ArmDied, LocalArm
from labkit.remote import RemoteArm, WorkerFailed, Workers, children, launch, serve, serving
from labkit.remote.children import Child, Children, dumps
from labkit.results import Comparison
from tests.labkit.counting import counting

pytestmark = pytest.mark.usefixtures("forked_python")
# Seconds: far above what any of these takes, far below the limit of the run that they end.
SOON = 40


def gone(pids, within=5.0):
    """Whether all these processes end soon; a zombie that nobody has collected has ended."""

    def running(pid):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        stat = Path(f"/proc/{pid}/stat")
        return not (stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] == "Z")

    end = time.monotonic() + within
    while any(running(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(0.05)
    return not any(running(pid) for pid in pids)


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
    def answers(*requests, functions=()):
        messages = []
        for what, *arguments in requests:
            messages.append(dumps((what, tuple(arguments))))
        return run(*messages, functions=functions)

    def run(*messages, functions=()):
        notebook = Notebook(*messages)
        monkeypatch.setattr(serving, "_link", notebook)
        known = {function.__name__: function for function in functions}
        monkeypatch.setattr(serving, "_served", known)
        with pytest.raises(HangUp):
            serving.answer_requests(errors_go_back=True)
        return notebook.answers

    answers.raw = run
    threads = torch.get_num_threads()
    yield answers
    serving._arms.clear()
    torch.set_num_threads(threads)


def make(size):
    value = torch.ones(size)
    return Workload(lambda: value @ value, size, "numbers")


def test_an_arm_is_defined_started_timed_and_closed(ask, tmp_path):
    closed = tmp_path / "closed"

    def make_closing():
        return Workload(lambda: None, close=closed.touch)

    define = (serving.define, 7, make_closing, "a", {}, 0, {"num_threads": 1})
    asked = [(serving.do, 7, "start"), (serving.about, 7), (serving.do, 7, "block", 2)]
    *answers, last = ask(define, *asked, (serving.do, 7, "close"))
    assert [done for done, _ in answers] == [True] * 4 and last == (True, None)
    (_, nothing), (_, seconds), (_, about), (_, block) = answers
    assert nothing is None and closed.exists() and torch.get_num_threads() == 1
    assert seconds >= 0 and block >= 0 and about == (1, "samples", "cpu")


def test_arms_are_told_apart_and_a_served_name_gets_its_settings(ask):
    one = (serving.define, 1, "make", "a", {"size": 4}, 0, {})
    two = (serving.define, 2, "make", "b", {"size": 9}, 0, {})
    started = (serving.do, 2, "start"), (serving.do, 1, "start")
    *_, two, one = ask(one, two, *started, (serving.about, 2), (serving.about, 1), functions=[make])
    assert two == (True, (9, "numbers", "cpu")) and one == (True, (4, "numbers", "cpu"))


def test_functions_are_called_by_name(ask):
    def add(a, b):
        return a + b

    assert ask(("add", 2, 3), ("add", "x", "y"), functions=[add]) == [(True, 5), (True, "xy")]


def test_what_is_not_served_is_told_with_what_is(ask):
    ((done, error),) = ask(("subtract", 0), functions=[make])
    assert not done and isinstance(error, ValueError)
    assert str(error) == "ask('subtract'): this script serves ['make']"


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
    monkeypatch.setattr(serving, "_link", notebook)
    monkeypatch.setattr(serving, "_served", {})
    with pytest.raises(LookupError, match="odd"):
        serve(fail)
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
    child = SimpleNamespace(process=SimpleNamespace(wait=lambda: code))
    assert Child.how_it_ended(child) == words


@pytest.mark.parametrize("held", [False, True])
def test_a_child_that_ends_is_noticed_though_something_may_hold_its_link_open(held, monkeypatch):
    copies = []

    def pipe():
        ours, theirs = Pipe()
        if held:
            copies.append(os.dup(theirs.fileno()))
        return ours, theirs

    monkeypatch.setattr("sys.executable", "/bin/false")
    monkeypatch.setattr(children, "Pipe", pipe)
    monkeypatch.setattr(Children, "look", 0.05)
    asked, told = Children("a"), []

    def ask():
        with pytest.raises(ArmDied, match="the process of 'a' ended with exit status 1") as died:
            asked.ask("whoami", 0)
        told.append(died)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(30)
    asked.close()
    for copy in copies:
        os.close(copy)
    assert told and asked.pids == []


# ----------------------------------------------------------------------- a process of its own


@pytest.mark.fresh
def test_each_arm_has_a_process_of_its_own():
    def make(on):
        torch.backends.cudnn.benchmark = on
        print("noise on stdout must not disturb the pipe")
        return Workload(lambda: torch.full((), float(os.getpid())), 4)

    result = Lab(make, runs_in="process", on=[False, True]).run(on=True, seconds=0.2)
    assert result.ratios and result.candidate.samples == 4
    assert result.baseline.peak_bytes is not None
    assert not torch.backends.cudnn.benchmark


def test_a_process_ends_with_the_arm():
    arm = RemoteArm(lambda: Workload(lambda: None), "a")
    assert arm.start() >= 0 and arm.block(3) >= 0
    pids = arm._children.pids
    arm.close()
    arm.close()
    assert gone(pids)
    assert arm.start() >= 0
    pids = arm._children.pids
    del arm
    gc.collect()
    assert gone(pids)


def test_an_arm_that_dies_is_a_result():
    def make(die):
        count = 0

        def step():
            nonlocal count
            count += 1
            if die and count > 50:
                os.kill(os.getpid(), signal.SIGKILL)

        return Workload(step)

    result = Lab(make, runs_in="process", memory=False, die=[False, True]).run(
        die=True, seconds=0.2
    )
    assert "was ended by SIGKILL" in result.candidate.error
    assert result.baseline.times and result.verdict == "unclear"


def test_an_exception_in_the_child_is_raised_here():
    def make(kind):
        if kind == "value":
            raise ValueError("no such layer")
        return Workload(lambda: None)

    lab = Lab(make, runs_in="process", kind=["fine", "value"])
    with pytest.raises(ValueError, match="no such layer"):
        lab.run(kind="value", seconds=0.1)
    assert lab.run(seconds=0.1).ratios


def test_out_of_memory_in_the_child():
    def make(size):
        return Workload(lambda: torch.empty(size).fill_(0) if size < 2**40 else torch.empty(size))

    result = Lab(make, runs_in="process", memory=False, size=[8, 2**55]).run(
        size=2**55, seconds=0.1
    )
    assert result.candidate.error == "out of memory"


def test_of_a_child_without_memory_it_is_known_what_it_is():
    arm = RemoteArm(lambda: Workload(lambda: torch.empty(2**55), 4, "images"), "a")
    with pytest.raises(torch.OutOfMemoryError):
        arm.start()
    assert (arm.samples, arm.unit, arm.device) == (4, "images", "cpu")
    arm.close()


def test_a_child_that_cannot_start_says_why(monkeypatch):
    arm = RemoteArm(lambda: Workload(lambda: None), "a")
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(RuntimeError, match="ended with exit status 1"):
        arm.start()
    arm.close()


@pytest.mark.fresh
def test_an_isolated_arm_runs_on_the_lab_s_number_of_threads():
    def make(x):
        if torch.get_num_threads() != 1:
            raise ValueError(f"{torch.get_num_threads()} threads")
        return Workload(lambda: None)

    torch.set_num_threads(2)
    assert Lab(make, runs_in="process", memory=False, threads=1, x=[1]).run(seconds=0.05).ratios


def test_peaks_and_counts_are_taken_in_the_process_that_was_timed(monkeypatch):
    started = []

    class Counted(Child):
        def __init__(self, *arguments):
            started.append(arguments)
            super().__init__(*arguments)

    def make(size):
        weight = torch.ones(size, requires_grad=True)
        return Workload(lambda: (weight * weight).sum().backward())

    monkeypatch.setattr(children, "Child", Counted)
    lab = Lab(make, runs_in="process", size=[1000, 2000])
    with counting():
        result = lab.run(size=2000, seconds=0.05)
    assert len(started) == 2
    found = [(side.peak_bytes, side.counters["launches"]) for side in result.arms]
    arms = [LocalArm(lambda size=size: make(size), "a", seed=0) for size in (1000, 2000)]
    for arm in arms:
        arm.start()
    assert found == [(arm.peak()[0], arm.counters()["launches"]) for arm in arms]


@pytest.mark.fresh
def test_a_process_that_is_gone_has_no_peak():
    arm = RemoteArm(lambda: Workload(lambda: None), "a")
    arm.start()
    os.kill(arm._children.pids[0], signal.SIGKILL)
    arm.release()
    assert arm._children.pids == []
    with pytest.raises(ArmDied, match="the processes that held 'a' have ended"):
        arm.peak()


def test_the_card_is_given_back_before_a_process_starts(monkeypatch):
    order = []

    def no_child(*arguments):
        order.append("process")
        raise OSError("no process in this test")

    monkeypatch.setattr(children, "release_memory", lambda: order.append("release"))
    monkeypatch.setattr(children, "Child", no_child)
    arm = RemoteArm(lambda: Workload(lambda: None), "a")
    with pytest.raises(RuntimeError, match=r"could not start 'a' .*OSError: no process"):
        arm.start()
    arm.close()
    assert order == ["release", "process"]


@pytest.mark.parametrize(
    ("folder", "inherited"),
    [
        ("/cache/inductor/triton/0", False),
        ("/cache/triton/12", False),
        ("/mine/.triton/cache", True),
        ("/mine/triton", True),
        (None, False),
    ],
)
def test_a_process_finds_no_kernels_that_inductor_built_for_this_one(
    folder, inherited, monkeypatch
):
    seen = {}

    def no_process(command, *, env, **options):
        seen.update(env)
        raise OSError("no process in this test")

    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    if folder is not None:
        monkeypatch.setenv("TRITON_CACHE_DIR", folder)
    monkeypatch.setattr(children.subprocess, "Popen", no_process)
    with pytest.raises(OSError, match="no process"):
        Child([], {})
    assert seen.get("TRITON_CACHE_DIR") == (folder if inherited else None)
    assert "PATH" in seen


def test_it_is_said_that_processes_start(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    lab = Lab(lambda x: Workload(lambda: None), runs_in="process", memory=False, x=[1, 2])
    lab.run(x=2, seconds=0.05)
    shown = capsys.readouterr().err
    assert "starting baseline" in shown and "starting x=2" in shown
    # And nothing of it is left.
    assert shown.rsplit("\r", 1)[-1].strip() == ""


def test_an_interrupt_ends_a_process_whose_answer_is_still_to_come(monkeypatch):
    arm = RemoteArm(lambda: Workload(lambda: None), "a")
    arm.start()
    pids = arm._children.pids

    def interrupted(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(arm._children, "_listen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        arm.peak()
    assert arm._children.pids == [] and gone(pids)


NOTEBOOK = """
import os, signal, threading, time
from pathlib import Path
from labkit import Workload
from labkit.remote import RemoteArm

def make():
    def step():
        Path({note!r}).write_text(str(os.getpid()))
        time.sleep(1000)
    return Workload(step)

threading.Thread(target=RemoteArm(make, "endless").start, daemon=True).start()
while not (Path({note!r}).exists() and Path({note!r}).read_text()):
    time.sleep(0.05)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.fresh
def test_a_process_ends_in_the_middle_of_a_step_when_its_notebook_does(tmp_path):
    note = tmp_path / "pid"
    command = [sys.executable, "-c", NOTEBOOK.format(note=str(note))]
    done = subprocess.run(command, timeout=200)
    assert done.returncode == -signal.SIGKILL
    assert gone([int(note.read_text())], within=20)


# ------------------------------------------------------------------------------------ workers


SUM = """
import json, os, sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
value = torch.full((2,), float(sys.argv[1]) + rank)
dist.all_reduce(value)
print("hello from", rank, "of", world, flush=True)
if rank == 0:
    print(json.dumps({"sum": value[0].item()}))
    print('{"not": json')
dist.destroy_process_group()
"""

SERVER = """
import os, time, torch
import torch.distributed as dist
from labkit import Workload
from labkit.remote import serve

dist.init_process_group("gloo")
groups = {n: dist.new_group(list(range(n))) for n in range(1, dist.get_world_size() + 1)}

def make_workload(processes, size):
    value = torch.ones(size)
    def step():
        dist.all_reduce(value, group=groups[processes])
        value.fill_(1.0 if size < 100 else float("nan"))
        return value[0]
    return Workload(step, samples=size)

def whoami(extra):
    print("asked")
    return [dist.get_rank(), extra]

def stuck():
    time.sleep(1000) if dist.get_rank() == 1 else dist.barrier()

serve(make_workload, whoami, stuck)
"""


@pytest.fixture
def script(tmp_path):
    def write(text):
        path = tmp_path / "worker.py"
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.mark.fresh
def test_results_come_back_and_everything_else_is_shown(script):
    shown = []
    assert launch(script(SUM), 1.5, show=shown.append) == [{"sum": 4.0}]
    assert sorted(shown) == ["[0] hello from 0 of 2", '[0] {"not": json', "[1] hello from 1 of 2"]


def test_a_last_line_without_an_end_is_not_lost(script):
    text = """
import sys
sys.stderr.write("almost done")
sys.stdout.write('{"last": 1}')
"""
    shown = []
    assert launch(script(text), processes=1, show=shown.append) == [{"last": 1}]
    assert shown == ["[0] almost done"]


def test_logs_are_shown_while_the_workers_run(script):
    seen = []
    path = script(
        "import sys, time\nprint('first', flush=True)\n"
        "time.sleep(1)\nprint('last', file=sys.stderr)"
    )
    launch(path, processes=1, show=lambda line: seen.append((line, time.monotonic())))
    (first, early), (last, late) = seen
    assert (first, last) == ("[0] first", "[0] last") and late - early > 0.5


RAISES = """
import os, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 1:
    raise ValueError("the loss of rank 1 is odd")
dist.barrier()
"""
KILLED = RAISES.replace('raise ValueError("the loss of rank 1 is odd")', "os.kill(os.getpid(), 9)")
DEAF = RAISES.replace(
    "dist.barrier()", "import signal; signal.signal(15, signal.SIG_IGN); time.sleep(100)"
)
PORT = """
import os, socket, torch.distributed as dist
taken = socket.create_server(("127.0.0.1", 0)) if os.environ["RANK"] == "0" else None
port = taken.getsockname()[1] if taken else 1
rank, meet = int(os.environ["RANK"]), f"tcp://127.0.0.1:{port}"
dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=2)
"""
SYNTAX = "def broken(:\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            RAISES,
            [
                r"worker 1 ended with exit status 1",
                r"line 6, in <module>",
                r"the loss of rank 1 is odd",
            ],
        ),
        (KILLED, [r"worker 1 was ended by SIGKILL"]),
        (DEAF, [r"the loss of rank 1 is odd"]),
        (PORT, [r"worker 0 ended with exit status 1", r"EADDRINUSE|address already in use"]),
        (SYNTAX, [r"SyntaxError"]),
    ],
    ids=["raises", "killed", "deaf", "port", "syntax"],
)
def test_a_worker_that_fails_ends_all_and_shows_its_own_traceback(script, text, words):
    workers = Workers(script(text), seconds=100, show=lambda line: None)
    begin = time.monotonic()
    with pytest.raises(WorkerFailed) as failure:
        workers.wait()
    assert time.monotonic() - begin < SOON
    assert "runpy" not in str(failure.value), "the way to the script is not the reader's"
    for word in words:
        assert re.search(word, str(failure.value)), str(failure.value)
    assert workers.pids == [] and gone([child.process.pid for child in workers._children])


def test_a_worker_that_hangs_ends_all_and_says_where_it_stood(script):
    workers = Workers(script(SERVER), seconds=100, show=lambda line: None)
    # They have started, however slow this machine is.
    workers.ask("whoami", 0)
    pids, workers.seconds = workers.pids, 2
    with pytest.raises(
        WorkerFailed, match="worker 1 had not done it after 2 s; it stood here"
    ) as failure:
        workers.ask("stuck")
    assert "in stuck" in str(failure.value) and "in barrier" in str(failure.value)
    assert workers.pids == [] and gone(pids)


def test_a_run_that_takes_too_long_is_ended(script):
    workers = Workers(
        script("import time; time.sleep(1000)"), processes=1, seconds=0.5, show=lambda line: None
    )
    with pytest.raises(WorkerFailed, match=r"worker 0 had not done it after 0\.5 s"):
        workers.wait()
    assert gone([child.process.pid for child in workers._children])


@pytest.mark.fresh
def test_an_interrupt_ends_the_workers_and_their_children(script, tmp_path):
    path = script(f"""
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
open({str(tmp_path)!r} + "/" + os.environ["RANK"], "w").write(str(child.pid))
print("up", flush=True)
time.sleep(1000)
""")
    shown = []

    def show(line):
        shown.append(line)
        if len(shown) == 2:
            raise KeyboardInterrupt

    workers = Workers(path, show=show)
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        workers.wait()
    assert signal.getsignal(signal.SIGINT) is handler
    children = [int((tmp_path / rank).read_text()) for rank in "01"]
    assert workers.pids == [] and gone(
        [child.process.pid for child in workers._children] + children
    )


def test_a_lab_s_function_goes_to_the_workers_as_it_is_at_each_run(script):
    """Also what it looks up: a reader may define that anew between two runs."""
    size = 4

    def make_workload(processes, rows):
        numbers = torch.ones(rows, size)
        return Workload(lambda: numbers.sum(), samples=size)

    workers = Workers(script("from labkit.remote import serve\nserve(print)\n"), seconds=60)
    lab = Lab(make_workload, runs_in=workers, processes=[1, 2], rows=[2], memory=False)
    assert lab.name == "make_workload"
    result = lab.run(processes=2, seconds=0.1)
    assert (result.baseline.samples, result.candidate.samples) == (4, 8)
    first, size = workers.pids, 5
    assert lab.run(processes=2, seconds=0.1).candidate.samples == 10
    assert workers.pids == first
    workers.close()
    with pytest.raises(TypeError, match="rows"):
        Lab(lambda processes: None, runs_in=workers, processes=[1, 2], rows=[2])
    with pytest.raises(TypeError, match="the name of one that their script serves"):
        Lab(3, runs_in=workers, processes=[1, 2])


def test_a_lab_in_workers(script):
    threads = threading.active_count()
    workers = Workers(script(SERVER), show=lambda line: None, seconds=60)
    lab = Lab("make_workload", runs_in=workers, processes=[1, 2], size=[8, 16], memory=True)
    result = lab.run(processes=2, seconds=0.3)
    assert isinstance(result, Comparison) and result.lab == "make_workload" and result.ratios
    # Those of all workers.
    assert (result.baseline.samples, result.candidate.samples) == (8, 16)
    assert result.candidate.peak_bytes is not None and result.device == "cpu"
    first = workers.pids
    stop = threading.Event()
    assert lab.run(processes=2, stop=stop, on_update=lambda partial: stop.set(), seconds=30).stopped
    assert workers.ask("whoami", {"a": None}) == [[0, {"a": None}], [1, {"a": None}]]
    assert workers.ask("whoami", 0, ranks=[1]) == [[1, 0]]
    assert workers.pids == first, "one start serves all of these"
    with pytest.raises(ValueError, match=r"ranks=\[0, 1, 2\]: there are 2 workers"):
        lab.run(processes=3, seconds=0.1)

    with pytest.raises(WorkerFailed, match="FloatingPointError") as failure:
        lab.run(processes=2, size=100, seconds=0.1)
    assert workers.pids == [] and gone(first)
    assert "training is broken" in str(failure.value)
    assert lab.run(processes=2, seconds=0.1).ratios and workers.pids != first, "they start anew"

    def kill(partial):
        os.kill(workers.pids[1], signal.SIGKILL)

    with pytest.raises(WorkerFailed, match="worker 1 was ended by SIGKILL"):
        lab.run(processes=2, seconds=30, on_update=kill)
    assert workers.pids == [], "no new ones are started for arms that have ended"

    with pytest.raises(ValueError, match="races run in the kernel"):
        lab.race({"processes": 2}, target=1, steps=1)
    workers.close()
    workers.close()
    assert threading.active_count() == threads


def test_a_script_that_answers_nothing(script):
    workers = Workers(script("print('done')"), processes=1, show=lambda line: None)
    with pytest.raises(
        WorkerFailed, match=r"worker\.py ended before it answered: it does not call serve"
    ):
        workers.ask("whoami")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"processes": 0}, "processes=0: use a positive whole number"),
        ({"processes": 1.5}, "processes=1.5"),
        ({"seconds": 0}, "seconds=0: use a positive number"),
        ({"seconds": float("nan")}, "seconds=nan"),
    ],
)
def test_bad_input_is_named(script, options, message):
    with pytest.raises(ValueError, match=message):
        launch(script(SUM), **options)


def test_what_is_missing_is_named(script, tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        launch(tmp_path / "none.py")
    with pytest.raises(TypeError, match="needs a control named 'processes'"):
        Lab("make_workload", runs_in=Workers(script(SUM)), size=[1])
    with pytest.raises(RuntimeError, match="start this script with"):
        serve(lambda: None)
