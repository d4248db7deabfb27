"""The forks that tests use are like fresh processes, but for what they have imported."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tests.forked import Forks

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="nothing is forked")
MINE = "import os, sys; print('torch' in sys.modules, os.environ['MINE'], os.getcwd())"


def started(forks: Forks, code: str, folder: Path, **variables: str) -> subprocess.Popen[str]:
    """A process of the code; like the server, it has one thread, unless told otherwise."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MINE": "7"} | variables
    command = [*forks.python, "-m", "timeit", "-n1", "-r1", code]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=pipe, text=True)


@pytest.mark.parametrize("threads", ["1", "2"])
def test_only_what_begins_alike_is_forked(forks: Forks, tmp_path: Path, threads: str) -> None:
    said, _ = started(forks, MINE, tmp_path, OMP_NUM_THREADS=threads).communicate(timeout=120)
    assert said.splitlines()[0] == f"{threads == '1'} 7 {tmp_path}"


CARDS = "import sys; print('torch' in sys.modules); import torch; print(torch.cuda.device_count())"


def test_a_fork_has_the_cards_that_are_rehearsed_in_it(forks: Forks, tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[1]
    paths = os.pathsep.join([str(root / "tests" / "rehearsal" / "site"), str(root)])
    for cards, count in (("16x2", "2"), ("", "0")):
        begun = started(forks, CARDS, tmp_path, PYTHONPATH=paths, LABKIT_REHEARSE=cards)
        said, _ = begun.communicate(timeout=120)
        assert said.splitlines()[0] == "True"
        assert said.splitlines()[1] == count or torch.cuda.is_available()


HAS = "print('torch' in sys.modules, sys.stdout.write_through, sys.argv[1:])"
CHILD = f"import subprocess, sys; {HAS}; subprocess.run([sys.executable, '-c', sys.argv[1], 'x'])"


@pytest.mark.usefixtures("forked_python")
@pytest.mark.parametrize("forked", [pytest.param(False, marks=pytest.mark.fresh), True])
def test_what_a_test_starts_and_what_that_starts_are_forks(forked: bool) -> None:
    grandchild = f"import sys; {HAS}"
    done = subprocess.run(
        [sys.executable, "-c", CHILD, grandchild],
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        capture_output=True,
        text=True,
    )
    said = [f"{forked} True {[grandchild]}", f"{forked} True ['x']"]
    assert done.stdout.splitlines() == said, done.stderr


@pytest.mark.parametrize(
    ("ending", "status"), [("os._exit(3)", 3), ("os.kill(os.getpid(), 9)", -signal.SIGKILL)]
)
def test_who_asked_ends_as_the_fork(forks: Forks, tmp_path: Path, ending: str, status: int) -> None:
    with started(forks, f"import os; {ending}", tmp_path) as process:
        assert process.wait(120) == status


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_fork_ends_with_who_asked(forks: Forks, tmp_path: Path, number: int) -> None:
    endless = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    with started(forks, endless, tmp_path) as process:
        assert process.stdout is not None
        fork = Path("/proc", process.stdout.readline().strip())
        assert fork.exists()
        process.send_signal(number)
        assert process.wait(60) == -number
    deadline = time.monotonic() + 60
    while fork.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
