"""Workers of a notebook: what they print and answer, how they can fail, and what is left."""

import gc
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from labkit import Lab
from labkit.results import Comparison
from labkit.workers import WorkerFailed, Workers, launch, serve

# Seconds: far above what any of these takes, far below the limit of the run that they end.
SOON = 40

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
from labkit.workers import serve

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


@pytest.fixture
def script(tmp_path):
    def write(text):
        path = tmp_path / "worker.py"
        path.write_text(text, encoding="utf-8")
        return path

    return write


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


def test_torchrun_runs_the_same_script(script):
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        script(SUM),
        "1.5",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert '{"sum": 4.0}' in done.stdout


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


def test_workers_end_with_the_object_and_with_the_kernel(script):
    path = script(SERVER)
    workers = Workers(path, processes=1, show=lambda line: None)
    assert workers.ask("whoami", 1) == [[0, 1]]
    (pid,) = workers.pids
    del workers
    gc.collect()
    assert gone([pid])

    kernel = f"""
import os, signal
from labkit.workers import Workers
workers = Workers({str(path)!r}, processes=1)
workers.ask("whoami", 1)
print(workers.pids[0], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    # A killed kernel cannot clean up.
    here = os.environ | {"TMPDIR": str(path.parent)}
    done = subprocess.run(
        [sys.executable, "-c", kernel], capture_output=True, text=True, timeout=60, env=here
    )
    assert done.returncode == -signal.SIGKILL
    assert gone([int(done.stdout.split()[-1])])


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
        ({"processes": True}, "processes=True"),
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
