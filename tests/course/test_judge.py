"""Submissions that attack the judge: each costs its own row, and the next one is judged."""

import ast
import csv
import json
import os
import resource
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing import util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from nbformat import NotebookNode

from course.classroom import check as check_module
from course.classroom import remote, sandbox, slices
from course.classroom.check import Outcome, check_all
from course.classroom.child import Child, wait_for
from course.classroom.files import exercises, read_notebook
from course.classroom.remote import Process
from course.classroom.sandbox import Bubblewrap, Limits, Trust, Wall
from course.classroom.slices import answer
from course.cli import main
from course.notebook_files import NOTEBOOKS, ROOT, code_cells

LINUX = sys.platform.startswith("linux")
WALLS: tuple[Wall, ...] = tuple(
    each for each in (Bubblewrap(), Bubblewrap(nested=True)) if not sandbox.why_no_bubblewrap(each)
)
BEST = (*WALLS, Trust())[0]
TRUST = ["--trust-submissions"] * isinstance(BEST, Trust)
only_linux = pytest.mark.skipif(not LINUX, reason="the limit of memory needs /proc")
SEGMENTS = "deeper/11_activation_checkpointing"
GRAPHS = "deeper/22_compile_and_cuda_graphs"
RIGHT = """
def best_segments(n, a, b):
    return min(range(1, n + 1), key=lambda k: k * a + -(-n // k) * b)
"""
CRASH = "import torch\ndef clip(x, limit):\n    return torch.zeros([1] * 200000)\n"


@pytest.fixture(autouse=True)
def no_folder_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = tmp_path / "temporary"
    folder.mkdir()
    # The server's socket lies elsewhere, or its name is too long.
    util.get_temp_dir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert list(folder.glob("labkit-course-*")) == []


@pytest.fixture
def submit(tmp_path: Path) -> Callable[..., Path]:
    """Writes a submission with this source in the place of the stub."""

    def submit(source: str, place: str = SEGMENTS, name: str = "") -> Path:
        path = NOTEBOOKS / f"{place}.ipynb"
        notebook = read_notebook(path)
        code_cells(notebook, "exercise")[0]["source"] = source
        return write(notebook, tmp_path / "handed in" / f"{name}{path.name}")

    return submit


def write(notebook: dict[str, Any], path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(notebook), encoding="utf-8")
    return path


def judged(path: Path, wall: Wall = BEST, **limits: float) -> Outcome:
    """The one row of a submission."""
    ((row,),) = check_all([path], wall, Limits(**limits), 1)
    return row


def alive(pid: int) -> bool:
    """Whether a process runs; a dead one that nobody has waited for has no command line."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except FileNotFoundError:
        return False


def gone(pid: int) -> bool:
    """Whether a process that was killed ends."""
    for _ in range(500):
        if not alive(pid):
            return True
        time.sleep(0.01)
    return False


@pytest.fixture
def note() -> Iterator[Path]:
    """A file that an answer without a wall may write."""
    path = Path("/dev/shm", secrets.token_hex(8))
    yield path
    path.unlink(missing_ok=True)


# ------------------------------------------------------------------------------ what a judge meets

EATS = "import torch\ndef {}:\n    return torch.empty(10**9, 0)\n"
PADS = "def fold(conv, norm):\n    conv.bias = norm.bias\n    conv.padding = (3000, 3000)\n"
MEMORY = "out of memory, more than 800 MB"
# an answer, its notebook, and what becomes of the judge
VALUES = {
    "a tensor of too many dimensions": (CRASH, GRAPHS, "Segmentation fault"),
    "many empty rows": (EATS.format("clip(x, limit)"), GRAPHS, MEMORY),
    "a layer that pads": (PADS, "19_bias_before_batchnorm", MEMORY),
}


@only_linux
@pytest.mark.parametrize("attack", VALUES)
def test_values_that_end_the_judge_cost_one_row(attack: str, submit: Callable[..., Path]) -> None:
    source, place, why = VALUES[attack]
    path = submit(source, place)
    row = judged(path, seconds=20, memory=800)
    exercise = exercises(NOTEBOOKS / f"{place}.ipynb")[0].check.removeprefix("check_")
    expected = Outcome(str(path), Path(place).name, exercise, "not run")
    assert row == expected._replace(message=f"the check itself was ended: {why}")


def crowded(tmp_path: Path) -> Path:
    """A notebook of a few MB that costs its reader far more."""
    notebook = read_notebook(NOTEBOOKS / f"{SEGMENTS}.ipynb")
    notebook["metadata"]["many"] = [{}] * 10**6
    return write(notebook, tmp_path / "crowded.ipynb")


def test_a_submission_is_found_from_where_the_caller_is(
    submit: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after the caller went elsewhere."""
    path = submit(exercises(NOTEBOOKS / f"{SEGMENTS}.ipynb")[0].stub)
    # The server of the children begins where the first of them did.
    assert judged(path).result == "not attempted"
    monkeypatch.chdir(path.parent)
    assert judged(Path(path.name)).result == "not attempted"


@only_linux
def test_a_notebook_that_takes_all_memory_is_not_run(tmp_path: Path) -> None:
    row = judged(crowded(tmp_path), memory=100)
    assert (row.exercise, row.result) == ("", "not run")
    assert row.message == "the check itself was ended: out of memory, more than 100 MB"


def test_a_notebook_that_takes_too_long_to_read_is_not_run(tmp_path: Path) -> None:
    row = judged(crowded(tmp_path), seconds=0.05)
    assert (row.exercise, row.result) == ("", "not run")
    assert row.message == "the check itself was ended: it went on for more than 0.1 s"


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_next_submission_is_judged(
    jobs: int, submit: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The judge's own limit of memory is not the answer's."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    same = f"import resource\nassert resource.getrlimit(resource.RLIMIT_AS) == {limits}\n"
    paths = [submit(CRASH, GRAPHS, "a "), submit(same + RIGHT, SEGMENTS, "b ")]
    table = tmp_path / "table.csv"
    options = ["--csv", str(table), "--jobs", str(jobs), *TRUST]
    assert main(["check", *map(str, paths), *options]) == 1
    with table.open(encoding="utf-8", newline="") as file:
        rows = {Path(row["submission"]).name[0]: row["result"] for row in csv.DictReader(file)}
    assert rows == {"a": "not run", "b": "passed"}
    assert "1 passed, 1 not run" in capsys.readouterr().out


# ------------------------------------------------------------------------- what is left of a judge


def stays(note: Path) -> str:
    """Source that leaves a process behind, which writes its number into ``note``."""
    return (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n"
        f"    open({str(note)!r}, 'w').write(str(os.getpid()))\n    time.sleep(600)\n"
        f"while not (os.path.exists({str(note)!r}) and open({str(note)!r}).read()):\n"
        "    time.sleep(0.01)\n"
    )


@only_linux
def test_a_judge_that_died_leaves_no_process(submit: Callable[..., Path], note: Path) -> None:
    row = judged(submit(stays(note) + CRASH, GRAPHS), Trust())
    assert row.result == "not run" and "Segmentation fault" in row.message
    assert gone(int(note.read_text()))


@only_linux
def test_an_interrupt_ends_judge_and_answer(submit: Callable[..., Path], note: Path) -> None:
    def interrupt() -> None:
        while not (note.exists() and note.read_text()):
            time.sleep(0.01)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    path = submit(stays(note) + "time.sleep(600)\n" + RIGHT)
    assert main(["check", str(path), "--trust-submissions"]) == 130
    assert gone(int(note.read_text()))


# a parent without torch, which is as quick as it is small
PARENT = """
import os, time
from lasting import last
from course.classroom import child
child.PRELOADED = []
judge = child.Child(last, None, print, dict(os.environ), 1000)
while not judge.said:
    child.wait_for([judge])
    judge.over()
print(*judge.said, flush=True)
time.sleep(600)
"""


@only_linux
def test_a_child_ends_with_its_parent(tmp_path: Path) -> None:
    """However that ends."""
    source = "import os, time\ndef last(say):\n    say(os.getpid())\n    time.sleep(600)\n"
    (tmp_path / "lasting.py").write_text(source, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    # its folder stays: nobody is left to remove it
    environment["TMPDIR"] = str(tmp_path)
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment, cwd=tmp_path
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.kill()
    assert gone(pid)


# --------------------------------------------------------------------------------- its environment


@only_linux
def test_the_judge_has_no_secrets(submit: Callable[..., Path]) -> None:
    """Without a wall an answer can read what its parent was started with."""
    secret = {*os.environ} - {*check_module._environment(), *check_module.JUDGE_S}
    assert secret
    source = "import os\nlines = open(f'/proc/{os.getppid()}/environ').read().split('\\0')\n"
    source += f"found = {{line.partition('=')[0] for line in lines}} & {secret}\n"
    row = judged(submit(source + "assert not found, found\n" + RIGHT), Trust())
    assert (row.result, row.message) == ("passed", "")


@only_linux
def test_the_folder_for_temporary_files_may_have_a_long_name(
    tmp_path: Path, submit: Callable[..., Path]
) -> None:
    folder = tmp_path / ("long" * 20)
    folder.mkdir()
    command = [sys.executable, "-m", "course", "check", str(submit(RIGHT)), *TRUST]
    environment = os.environ | {"TMPDIR": str(folder)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert "1 passed" in done.stdout, done.stderr


def tell_environment(say: Callable[[object], None]) -> None:
    say(dict(os.environ))


def test_a_child_has_its_own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the server that forks it was started with another one."""
    given = {name: os.environ[name] for name in ("PATH", "HOME")} | {"OF_ITS_OWN": "1"}
    monkeypatch.setenv("A_PASSWORD", "hunter2")
    child = Child(tell_environment, None, print, given, 1000)
    while not child.over():
        wait_for([child])
    child.end()
    assert (child.said, child.why) == ([given], "")
    assert os.environ["A_PASSWORD"] == "hunter2"


# --------------------------------------------------------------------------------------- the table


def test_the_table_is_written_as_the_rows_come(
    tmp_path: Path, submit: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its header before the first submission is judged."""
    table, seen = tmp_path / "table.csv", []

    def judge(*_: Any) -> Iterator[list[Outcome]]:
        for _ in range(2):
            seen.append(len(table.read_text(encoding="utf-8").splitlines()))
            yield [Outcome("a.ipynb", "11", "11", "passed")]

    monkeypatch.setattr(check_module, "check_all", judge)
    path = str(submit(RIGHT))
    assert main(["check", path, "--csv", str(table), "--trust-submissions"]) == 0
    assert seen == [1, 2]


# ------------------------------------------------------------------------------ how often it looks


class Cell(NotebookNode):
    """A cell that counts how often it was compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Cell.compared += 1
        return super().__eq__(other)

    __hash__ = None


def cell(source: str, tag: str = "") -> Cell:
    return Cell(cell_type="code", metadata={"tags": [tag]}, source=source)


def test_each_cell_is_read_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many names are looked for; and each is compared with the exercise's alone."""
    path = NOTEBOOKS / f"{SEGMENTS}.ipynb"
    course, many = read_notebook(path), 100
    unknown = " + ".join(f"unknown{number}" for number in range(many))
    cells = [cell(f"other{number} = {number}") for number in range(many)]
    cells += [cell(f"solved{number} = 1", "solution") for number in range(many)]
    cells.append(cell(f"def best_segments(n, a, b):\n    return {unknown}", "exercise"))
    read: Counter[str] = Counter()
    monkeypatch.setattr(slices, "python", lambda source: read.update([source]) or source)
    monkeypatch.setattr(Cell, "compared", 0)
    (exercise,) = exercises(path)
    answer(exercise, NotebookNode(cells=cells, metadata={}), course)
    assert Cell.compared <= 2 * len(cells)
    assert max(read[each["source"]] for each in cells) <= 3


class Names(set[str]):
    """A set that counts how often it was looked at."""

    looks = 0

    def __len__(self) -> int:
        Names.looks += 1
        return super().__len__()

    def __iter__(self) -> Iterator[str]:
        Names.looks += 1
        return super().__iter__()


def test_a_chain_of_names_is_gone_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each statement of the set-up needs the one before it."""
    many = 200
    lines = ["x0 = 1", *(f"x{at} = x{at - 1}" for at in range(1, many)), "unused = x0"]
    setup = [ast.parse(line).body[0] for line in lines]
    real = slices.names
    monkeypatch.setattr(slices, "names", lambda source: tuple(map(Names, real(source))))
    monkeypatch.setattr(Names, "looks", 0)
    assert slices._needed(setup, {f"x{many - 1}"}) == setup[:-1]
    assert Names.looks <= 4 * len(setup)


@only_linux
@pytest.mark.parametrize("listed", [True, False], ids=["children listed", "children looked for"])
def test_a_look_finds_all_descendants(listed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the kernel lists the children of a process, no other process is looked at."""
    if listed and not remote.CHILDREN_LISTED:
        pytest.skip("this kernel does not list them")
    monkeypatch.setattr(remote, "CHILDREN_LISTED", listed)
    program = "import os, time\nos.fork()\nos.fork()\nos.write(1, b'%d\\n' % os.getpid())\n"
    command = [sys.executable, "-S", "-c", program + "time.sleep(60)"]
    read: list[Path] = []
    real = Path.read_text
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        pids = {int(started.stdout.readline()) for _ in range(4)}

        def note(path: Path, *arguments: Any, **more: Any) -> str:
            read.append(path)
            return real(path, *arguments, **more)

        monkeypatch.setattr(Path, "read_text", note)
        process = Process.__new__(Process)
        process._process = SimpleNamespace(pid=started.pid)
        family = process._family()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
    assert set(family) == pids and all(family.values())
    looked_at = {int(path.parts[2]) for path in read}
    assert looked_at >= pids and (looked_at == pids) == listed
