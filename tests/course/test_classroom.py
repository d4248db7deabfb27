"""`python -m course`: the copies of every notebook, every exercise's check, and answers that
misbehave or forge their verdict.
"""

import ast
import contextlib
import csv
import json
import os
import re
import secrets
import select
import signal
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import torch
from markdown_it import MarkdownIt
from nbformat import NotebookNode

from course import exercises as checks
from course import notebook_files
from course.classroom import answerer, sandbox, values
from course.classroom import build as build_module
from course.classroom import check as check_module
from course.classroom.build import build, student_copy
from course.classroom.check import RESULTS, Outcome, check, find
from course.classroom.feedback import SAID, feedback, write_feedback
from course.classroom.files import (
    CourseError,
    course_notebooks,
    exercises,
    original,
    read_notebook,
)
from course.classroom.gradebook import write_gradebook
from course.classroom.remote import Process, Stopped
from course.classroom.sandbox import Bubblewrap, Container, Limits, Trust, Wall, find_wall
from course.classroom.slices import answer, names
from course.cli import main
from course.notebook_files import NOTEBOOKS, ROOT, code_cells, python
from course.notebook_files import place as place_of

LINUX = sys.platform.startswith("linux")
each_notebook = pytest.mark.parametrize("path", course_notebooks(), ids=place_of)
WITH_EXERCISE = [path for path in course_notebooks() if exercises(path)]
# where a kernel allows no namespaces, as in many containers, the refusal is tested all the same
BUBBLEWRAPS = (Bubblewrap(), Bubblewrap(nested=True))
BUBBLEWRAP = next((each for each in BUBBLEWRAPS if not sandbox.why_no_bubblewrap(each)), None)
WHY_NOT = "" if BUBBLEWRAP else sandbox.why_no_bubblewrap(BUBBLEWRAPS[-1])
# set where it has to be there: a sandbox that is missing is then a failure
WALLED = not WHY_NOT or os.environ.get("LABKIT_SANDBOX") == "required"
needs_bubblewrap = pytest.mark.skipif(not WALLED, reason=f"no sandbox here: {WHY_NOT}")
WITH_IMAGE = [name for name in sandbox.ENGINES if not sandbox.why_no_container(name)]
needs_image = pytest.mark.skipif(not WITH_IMAGE, reason="no docker or podman with the image here")
SOLID = [
    pytest.param(BUBBLEWRAP or Bubblewrap(), marks=needs_bubblewrap, id="bubblewrap"),
    pytest.param(Container(*WITH_IMAGE[:1] or ["no engine"]), marks=needs_image, id="container"),
]
each_solid_wall = pytest.mark.parametrize("wall", SOLID)
each_wall = pytest.mark.parametrize("wall", [pytest.param(Trust(), id="trusted"), *SOLID])
BEST: Wall = (BUBBLEWRAP or Bubblewrap()) if WALLED else Trust()


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The course as students and as instructors get it."""
    folder = tmp_path_factory.mktemp("course")
    build(folder / "students", folder / "instructors")
    return folder / "students", folder / "instructors"


def solved(notebook: NotebookNode, path: Path) -> NotebookNode:
    """With the solution in the place of each stub; the imports of the exercise's cell stay."""
    copy = deepcopy(notebook)
    solutions = [cell["source"] for cell in code_cells(read_notebook(path), "solution")]
    for exercise, cell in zip(exercises(path), code_cells(copy, "exercise"), strict=True):
        asked = names(exercise.call)[0] & names(exercise.stub)[1] - {"exercises"}
        body = ast.parse(python(cell["source"])).body
        imports = [
            ast.unparse(node) for node in body if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        solution = next(source for source in solutions if asked & names(source)[1])
        cell["source"] = "\n".join([*imports, solution])
    return copy


def write(notebook: NotebookNode, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(notebook), encoding="utf-8")
    return path


# --------------------------------------------------------------------------- the course's exercises


def test_every_number_has_an_exercise(copies: tuple[Path, Path]) -> None:
    """A deeper notebook may leave it to the one in front, and says so of what is handed in."""
    assert {path.stem for path in WITH_EXERCISE} == {path.stem for path in course_notebooks()}
    for path in course_notebooks():
        if path not in WITH_EXERCISE:
            row = one(copies[0] / "notebooks" / f"{place_of(path)}.ipynb")
            assert (row.result, row.message) == ("no exercise", check_module.NO_EXERCISE)


@pytest.mark.parametrize("path", WITH_EXERCISE[::6], ids=place_of)
def test_a_check_says_what_a_stub_misses(
    path: Path, copies: tuple[Path, Path], tmp_path: Path
) -> None:
    """Of a few: that every check does is asked of the checks themselves."""
    stub = read_notebook(copies[0] / "notebooks" / f"{place_of(path)}.ipynb")
    # the same stub, but no longer as it was
    for cell in code_cells(stub, "exercise"):
        cell["source"] = re.sub(
            r"raise NotImplementedError.*", "raise NotImplementedError('mine')", cell["source"]
        )
    rows = list(check(write(stub, tmp_path / "stub" / path.name), BEST))
    assert [row.result for row in rows] == ["not yet"] * len(exercises(path)), rows
    assert all(row.message and "not yet" not in row.message for row in rows), (
        "each check says what is missing"
    )


@pytest.mark.parametrize("path", WITH_EXERCISE, ids=place_of)
def test_every_check_passes_on_the_solution(
    path: Path, copies: tuple[Path, Path], tmp_path: Path
) -> None:
    students, instructors = (folder / "notebooks" / f"{place_of(path)}.ipynb" for folder in copies)
    assert {row.result for row in check(students, BEST)} == {"not attempted"}
    assert {row.result for row in check(instructors, BEST)} == {"not attempted"}, (
        "a solution in its own cell is no answer"
    )

    good = solved(read_notebook(students), path)
    rows = list(check(write(good, tmp_path / "good" / path.name), BEST))
    assert [row.result for row in rows] == ["passed"] * len(exercises(path)), rows
    # of an instructor's copy the very same code is run
    for exercise in exercises(path):
        same = answer(exercise, solved(read_notebook(instructors), path), read_notebook(path))
        assert same == answer(exercise, good, read_notebook(path))


@each_notebook
def test_student_copies_answer_nothing(path: Path, copies: tuple[Path, Path]) -> None:
    students, instructors = (folder / "notebooks" / f"{place_of(path)}.ipynb" for folder in copies)
    assert instructors.read_bytes() == path.read_bytes()
    whole, copy = read_notebook(path), read_notebook(students)
    assert copy == json.loads(json.dumps(student_copy(whole)))
    assert bool(code_cells(whole, "solution")) == (path in WITH_EXERCISE)
    for answered in ("solution", "claims", "reference"):
        assert not code_cells(copy, answered)
    text = json.dumps(copy["cells"])
    for answered in (
        "RESULTS.md",
        "course.claims",
        "records.reference(",
        "shortlist",
        "techniques()",
        "is a solution",
    ):
        assert answered not in text
    assert [cell["source"] for cell in code_cells(copy, "exercise")] == [
        c["source"] for c in code_cells(whole, "exercise")
    ]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in copy["cells"])
    for cell in copy["cells"]:
        # code and formulas
        text = re.sub(r"```.*?```|`[^`\n]*`|\$[^$]*\$", "", cell["source"], flags=re.DOTALL)
        for target in re.findall(r"\]\((?!https?:|#|mailto:|attachment:)([^)#\s]+)", text):
            found = (students.parent / target).exists()
            assert found or cell["cell_type"] == "code", f"{path.name} links to {target}"


# -------------------------------------------------------------------------------------------- build


def test_copies_are_kept_unless_forced(copies: tuple[Path, Path], tmp_path: Path) -> None:
    written = build(tmp_path)
    pictures = list((NOTEBOOKS / "pictures").glob("*.svg"))
    # And the page for AI helpers.
    assert len(written) == len(course_notebooks()) + len(pictures) + 1
    assert build(tmp_path) == [], "nothing to do"
    mine, missing = written[0], written[1]
    mine.write_text("my work", encoding="utf-8")
    missing.unlink()
    with pytest.raises(CourseError, match=f"nothing was written(.|\n)*{mine.name}"):
        build(tmp_path)
    assert mine.read_text(encoding="utf-8") == "my work" and not missing.exists()
    assert build(tmp_path, force=True) == [mine, missing]


def test_the_results_that_are_copied_link_to_what_is_there(copies: tuple[Path, Path]) -> None:
    students, instructors = copies
    assert not (students / "RESULTS.md").exists(), "it answers what the students are to guess"
    text = (instructors / "RESULTS.md").read_text(encoding="utf-8")
    targets = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", text)
    assert targets and all((instructors / target).exists() for target in targets)


def test_a_teacher_s_own_answer_is_not_handed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = WITH_EXERCISE[0]
    whole = solved(read_notebook(path), path)
    code_cells(whole, "exercise")[0]["source"] += "\n# raise NotImplementedError"
    answered = write(whole, tmp_path / path.name)
    monkeypatch.setattr(build_module, "course_notebooks", lambda: [answered])
    assert main(["build", "--student", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert f"{answered}: the exercise 1 has been answered here" in said
    assert not (tmp_path / "out").exists()
    with pytest.raises(CourseError, match="git restore"):
        exercises(answered)


def test_folders_that_cannot_be_meant_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    course = str(ROOT)
    (tmp_path / "file").write_text("x", encoding="utf-8")
    for arguments, message in (
        ([], "--student OUT"),
        (["--student", course, "--force"], "the course itself"),
        (["--instructor", f"{course}/notebooks"], "the course itself"),
        (["--student", str(tmp_path), "--instructor", f"{tmp_path}/x/.."], "a folder each"),
        (["--student", f"{tmp_path}/file"], "file"),
    ):
        assert main(["build", *arguments]) == 2
        assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


# --------------------------------------------------------------------------- answers that misbehave


RIGHT = """
def best_segments(n, a, b):
    return min(range(1, n + 1), key=lambda k: k * a + -(-n // k) * b)
"""
CHECK = "\nexercises.check_11_best_segments(best_segments)\n"


@pytest.fixture
def submit(copies: tuple[Path, Path], tmp_path: Path) -> Callable[..., Path]:
    """Writes a submission of notebook 11 with this source in the place of the stub."""

    def submit(source: str, name: str = "11_activation_checkpointing", ending: str = CHECK) -> Path:
        notebook = read_notebook(
            copies[0] / "notebooks" / "deeper" / "11_activation_checkpointing.ipynb"
        )
        code_cells(notebook, "exercise")[0]["source"] = (
            f"from course import exercises\n\n{source}{ending}"
        )
        return write(notebook, tmp_path / "handed in" / f"{name}.ipynb")

    return submit


def one(path: Path, wall: Wall = BEST, **limits: float) -> Outcome:
    (row,) = check(path, wall, Limits(**limits))
    return row


def alive(pid: int) -> bool:
    """Whether a process runs; a dead one that nobody has waited for has no command line."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not LINUX, reason="found in /proc")
@pytest.mark.parametrize("ending", ["", "os._exit(0)\n"], ids=["goes on", "ends itself"])
def test_no_process_is_left_behind(submit: Callable[..., Path], ending: str) -> None:
    """One that has left its group, and its parent with it. A sandbox ends with all in it."""
    # without a sandbox the one place outside its folder that an answer may write to
    note = Path("/dev/shm", secrets.token_hex(8))
    forks = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
    forks += f"        open({str(note)!r}, 'w').write(str(os.getpid()))\n"
    forks += "        time.sleep(600)\n    os._exit(0)\n"
    forks += f"while not (os.path.exists({str(note)!r}) and open({str(note)!r}).read()):\n"
    forks += f"    time.sleep(0.01)\n{ending}"
    try:
        row = one(submit(forks + RIGHT), Trust())
        assert row.result == ("error" if ending else "passed"), row
        assert not alive(int(note.read_text()))
    finally:
        note.unlink(missing_ok=True)


def test_bad_submissions_cost_only_themselves(
    submit: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outside = tmp_path / "outside.txt"
    quietly = f"try:\n    open({str(outside)!r}, 'w')\nexcept OSError:\n    pass\n"
    submit("import os\nos.abort()\n" + RIGHT, "a crash")
    submit("import os\nos._exit(0)\n" + RIGHT, "b exit")
    submit(quietly + RIGHT, "d writes")
    submit(RIGHT, "e no check", ending="")
    wrong = "def best_segments(n, a, b):\n    return 1\n"
    submit(wrong + "\nprint('✓ passed')\n", "f says so", ending="")
    submit("exercises.check_11_best_segments = print\n" + wrong, "g own check")
    submit("def best_segments(n, a, b)\n", "h syntax")
    submit(f"exec({RIGHT!r})\n", "k exec")
    last = submit("open('inside.txt', 'w').close()\n%matplotlib inline\n" + RIGHT, "z right")
    (last.parent / "i broken.ipynb").write_text('{"cells": [', encoding="utf-8")
    (last.parent / "j other.ipynb").write_text('{"cells": []}', encoding="utf-8")
    table, told = tmp_path / "table.csv", tmp_path / "feedback"

    options = ["--csv", str(table), "--feedback", str(told), "--jobs", "2"]
    assert main(["check", str(last.parent), *options, "--trust-submissions"]) == 1

    with table.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    fields = (
        "submission",
        "notebook",
        "exercise",
        "result",
        "message",
        "seconds",
        "judged",
        "wall",
    )
    assert tuple(header) == Outcome._fields == fields
    by_name = {Path(row[0]).stem: (row[3], row[4]) for row in rows}
    results = {name[0]: result for name, (result, _) in by_name.items()}
    assert results == {
        **dict.fromkeys("abh", "error"),
        **dict.fromkeys("ekz", "passed"),
        **dict.fromkeys("fg", "not yet"),
        "i": "unreadable",
        "j": "foreign",
        "d": "wrote outside",
    }
    assert "Aborted" in by_name["a crash"][1] and "exit code 0" in by_name["b exit"][1]
    assert "outside.txt" in by_name["d writes"][1] and "SyntaxError" in by_name["h syntax"][1]
    assert not outside.exists() and not (last.parent / "inside.txt").exists()
    out = capsys.readouterr().out
    assert "3 passed, 2 not yet, 3 error, 1 wrote outside, 1 foreign, 1 unreadable" in out
    assert "wall: trusted" in out
    assert {result for result, _ in by_name.values()} <= set(RESULTS) == set(SAID)
    texts = [path.read_text(encoding="utf-8") for path in told.glob("*.feedback.md")]
    assert len(texts) == len(rows)
    assert sum("1 of 1 exercises right" in text for text in texts) == 3
    # of a file that holds no exercise none is counted
    assert sum("of 1 exercises right" in text for text in texts) == len(rows) - 2


@each_wall
def test_a_loop_for_ever_is_stopped(submit: Callable[..., Path], wall: Wall) -> None:
    loop = "def best_segments(n, a, b):\n    while True:\n        pass\n"
    row = one(submit(loop), wall, seconds=1)
    assert (row.result, row.message) == ("time limit", "stopped after 1 s")


def test_the_clock_starts_after_the_imports(
    submit: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    # the program sleeps longer than the limit before it is ready
    slow = "import time; time.sleep(4); import runpy; "
    slow += "runpy.run_module('course.classroom.answerer', run_name='__main__')"
    monkeypatch.setattr(sandbox, "PROGRAM", ["-P", "-c", slow])
    row = one(submit(RIGHT), seconds=3.5)
    assert (row.result, row.message) == ("passed", "")
    assert row.seconds < 3.5


@each_wall
@pytest.mark.skipif(not LINUX, reason="the memory and number of processes are read from /proc")
def test_memory_and_processes_are_limited(submit: Callable[..., Path], wall: Wall) -> None:
    forks = "import os, time\nfor _ in range(40):\n    if os.fork() == 0:\n        time.sleep(60)\n"
    row = one(submit(forks + "time.sleep(60)\n" + RIGHT), wall, seconds=30, processes=20)
    if isinstance(wall, Container):
        # the engine refuses one more
        assert row.result == "error" and row.message.startswith("BlockingIOError"), row
    else:
        assert (row.result, row.message) == ("process limit", "more than 20 processes")
    eats = "import torch, time\nkept = torch.ones(2**28)\ntime.sleep(60)\n"
    row = one(submit(eats + RIGHT), wall, seconds=30, memory=1000)
    assert row.result in ("memory limit", "error"), row
    assert row.result == "memory limit" or "alloc" in row.message


class Played(Trust):
    """No wall: a program in the answerer's place, that says what it likes without a wait."""

    ready = "import os, struct, time\nsaid = b'{}'\nos.write(1, struct.pack('!Q', 2) + said)\n"

    def __init__(self, program: str) -> None:
        self.program = program

    def command(self, box: Path, environment: dict[str, str], limits: Limits) -> list[str]:
        home = f"HOME={environment['HOME']}"
        return ["env", home, sys.executable, "-S", "-c", self.ready + self.program]


def stopped(program: str, box: Path, **limits: float) -> tuple[str, str]:
    """What ends the judge's wait for a program: the result, and why."""
    process = Process(Played(program), box, {}, Limits(**limits))
    with process, pytest.raises(Stopped) as why:
        process.ask({})
    return why.value.result, str(why.value)


# the length of an answer that is never whole, and then a byte now and then
DRIPS = "os.write(1, struct.pack('!Q', 9999))\n"
DRIPS += "for _ in range(300):\n    os.write(1, b'x')\n    time.sleep(0.01)\n"
# what it says from now on nobody hears
CLOSES = "os.close(0), os.close(1), os.close(2)\n"


def test_an_answer_that_is_never_whole_is_stopped(tmp_path: Path) -> None:
    assert stopped(DRIPS, tmp_path, seconds=0.3) == ("time limit", "stopped after 0.3 s")


def test_what_a_process_said_last_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it speaks and ends between a look at the pipe and one at the process."""
    go = tmp_path / "go"
    program = f"while not os.path.exists({str(go)!r}):\n    time.sleep(0.001)\n"
    program += "os.write(1, b'the last')\n"
    with Process(Played(program), tmp_path, {}, Limits()) as process:
        look = select.select

        def too_early(*_: object) -> tuple[list[int], list[int], list[int]]:
            monkeypatch.setattr(select, "select", look)
            go.touch()
            process._process.wait(timeout=60)
            return [], [], []

        monkeypatch.setattr(select, "select", too_early)
        assert process._read(8) == b"the last"


def test_an_answer_that_hung_up_and_goes_on_is_stopped(tmp_path: Path) -> None:
    loop = "end = time.monotonic() + 3\nwhile time.monotonic() < end:\n    pass\n"
    assert stopped(CLOSES + loop, tmp_path, seconds=0.3) == ("time limit", "stopped after 0.3 s")


@pytest.mark.skipif(not LINUX, reason="the memory and number of processes are read from /proc")
@pytest.mark.parametrize("busy", [DRIPS, CLOSES + "time.sleep(3)\n"], ids=["drips", "hung up"])
def test_memory_and_processes_are_looked_at_all_the_same(tmp_path: Path, busy: str) -> None:
    forks = "if os.fork() == 0:\n    time.sleep(60)\n"
    told = stopped(forks + busy, tmp_path, processes=1)
    assert told == ("process limit", "more than 1 processes")
    eats = "kept = bytearray(b'x') * 2**26\n"
    told = stopped(eats + busy, tmp_path, memory=32)
    assert told == ("memory limit", "more than 32 MB")


@pytest.mark.skipif(not LINUX, reason="the memory is read from /proc")
def test_memory_that_processes_share_counts_once(tmp_path: Path) -> None:
    shares = "kept = bytearray(b'x') * 2**26\nfor _ in range(3):\n    if os.fork() == 0:\n"
    shares += "        time.sleep(60)\n        os._exit(0)\ntime.sleep(0.5)\n"
    answers = "os.write(1, struct.pack('!Q', 2) + said)\n"
    with Process(Played(shares + answers), tmp_path, {}, Limits(memory=150)) as process:
        assert process.ask({}) == {}


@pytest.mark.parametrize(
    ("code", "how"), [(137, "Killed"), (193, "exit code 193"), (255, "exit code 255")]
)
def test_how_a_process_ended_is_told(tmp_path: Path, code: int, how: str) -> None:
    """Up to 192 an exit code may stand for a signal, as a shell and bubblewrap tell it."""
    result, why = stopped(f"os._exit({code})\n", tmp_path)
    assert (result, why) == ("error", f"the process ended before its check did: {how}")


@each_wall
def test_the_disk_is_limited(submit: Callable[..., Path], wall: Wall) -> None:
    fills = "with open('big', 'wb') as file:\n    for _ in range(40):\n"
    fills += "        file.write(bytes(2**20))\n"
    row = one(submit(fills + RIGHT), wall, disk=16)
    assert (row.result, row.message[:7]) == ("error", "OSError"), row


# ------------------------------------------------------- submissions that cannot even be run


def test_files_may_have_the_names_of_the_checker_s_own_folders(
    submit: Callable[..., Path],
) -> None:
    path = submit("assert open('tmp').read() == open('home').read() == 'mine'\n" + RIGHT)
    for name in ("tmp", "home", "work", "room", "given"):
        (path.parent / name).write_text("mine", encoding="utf-8")
    row = one(path)
    assert (row.result, row.message) == ("passed", "")


@needs_bubblewrap
def test_a_folder_larger_than_the_disk_costs_only_its_own_submission(
    submit: Callable[..., Path],
) -> None:
    path = submit(RIGHT)
    (path.parent / "big").write_bytes(bytes(3 * 2**20))
    row = one(path, BEST, disk=2)
    assert row.result == "not run" and "No space left on device" in row.message, row


def test_what_cannot_be_copied_or_started_costs_only_its_own_submission(
    submit: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = submit(RIGHT)
    (path.parent / "sealed").touch()
    opened = check_module.open_file

    def refuse(path: Path, *, links: bool) -> BinaryIO:
        if path.name == "sealed":
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, links=links)

    monkeypatch.setattr(check_module, "open_file", refuse)
    row = one(path, Trust())
    assert row.result == "not run" and "sealed" in row.message, row
    (path.parent / "sealed").unlink()
    monkeypatch.setattr(sandbox, "PROGRAM", ["-c", "raise SystemExit('no torch here')"])
    row = one(path, Trust())
    assert row.result == "not run"
    text = write_feedback(tmp_path / "feedback", [row])
    assert "answers cannot be run here: no torch here" in text.read_text(encoding="utf-8")


def test_what_holds_no_exercise_is_told_as_what_it_is(
    copies: tuple[Path, Path], tmp_path: Path
) -> None:
    """A foreign notebook, and one that leaves the exercise to the notebook in front of it."""
    foreign = one(write(notebook(("", "x = 1")), tmp_path / "mine.ipynb"), Trust())
    assert foreign.result == "foreign"
    left = next(path for path in course_notebooks() if path not in WITH_EXERCISE)
    without = one(copies[0] / "notebooks" / f"{place_of(left)}.ipynb", Trust())
    assert without.result == "no exercise"
    for row, said in ((foreign, "the course's notebook"), (without, "the front one")):
        text = feedback([row])
        assert said in text
        assert "exercises right" not in text and "could not be read" not in text


def test_a_feedback_says_what_helps_with_this_error() -> None:
    row = Outcome("a.ipynb", "00", "00_speedup", "error", "SyntaxError: '(' was never closed")
    assert "look at that line" in feedback([row]) and "Restart" not in feedback([row])
    row = row._replace(message="NameError: name 'rows' is not defined")
    assert "Restart the kernel" in feedback([row])
    row = row._replace(message="ValueError: no")
    assert feedback([row]).rstrip().endswith("`ValueError: no`.")


def test_the_name_of_a_feedback_is_short_and_its_own(tmp_path: Path) -> None:
    folder = "/".join(["ä" * 120] * 3)
    paths = [f"{folder}/{'ü' * 120}{number}.ipynb" for number in range(2)]
    for path in paths:
        row = next(check(Path(path), Trust()))
        write_feedback(tmp_path, [row])
    names = [path.name for path in tmp_path.iterdir()]
    assert len(names) == 2
    assert all(name.startswith("ä" * 80) and len(name.encode()) <= 255 for name in names)


# ------------------------------------------------------------- what is no file, and what is a name


def a_link(path: Path, alice: Path) -> None:
    path.symlink_to(alice)


def a_link_to_a_folder(path: Path, alice: Path) -> None:
    path.symlink_to(alice.parent)


def a_link_to_a_device(path: Path, alice: Path) -> None:
    path.symlink_to("/dev/null")


def a_pipe(path: Path, alice: Path) -> None:
    os.mkfifo(path)


def a_socket(path: Path, alice: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made, contextlib.chdir(path.parent):
        made.bind(path.name)


def a_device(path: Path, alice: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root makes a device")


def a_folder(path: Path, alice: Path) -> None:
    path.mkdir()


@pytest.fixture
def alarm() -> Iterator[None]:
    """Ends a test that waits for ever; what is read may be a pipe that nobody writes."""

    def end(*_: object) -> None:
        raise AssertionError("it waits for ever")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


KINDS = {
    a_link: "is a link",
    a_link_to_a_folder: "is a link",
    a_link_to_a_device: "is a link",
    a_pipe: "is a pipe or a device",
    a_socket: "No such device or address",
    a_device: "is a pipe or a device",
    a_folder: "Is a directory",
}


@pytest.mark.skipif(not LINUX, reason="how a socket is refused")
@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_what_is_no_file_is_a_row_and_is_not_read(
    make: Callable[[Path, Path], None],
    submit: Callable[..., Path],
    tmp_path: Path,
    alarm: None,
) -> None:
    path = tmp_path / "class" / "bob" / "x.ipynb"
    path.parent.mkdir(parents=True)
    make(path, submit(RIGHT, "alice"))
    assert find([tmp_path / "class"]) == [path]
    assert make is a_link_to_a_folder or find([path]) == [path]
    row = one(path, Trust())
    assert row.result == "unreadable" and KINDS[make] in row.message, row
    assert "alice" not in row.message


def test_a_folder_inside_that_is_a_link_is_a_row(
    submit: Callable[..., Path], tmp_path: Path
) -> None:
    """Not so one that the caller names: it may be a link of the caller's own."""
    alice = submit(RIGHT, "alice")
    (tmp_path / "class" / "bob").mkdir(parents=True)
    (tmp_path / "class" / "carol").symlink_to(alice.parent)
    (tmp_path / "class" / ".hidden").symlink_to(alice.parent)
    (tmp_path / "class" / "bob" / "work").symlink_to(alice.parent)
    bob, carol = tmp_path / "class" / "bob" / "work", tmp_path / "class" / "carol"
    assert find([tmp_path / "class"]) == [bob, carol]
    row = one(carol, Trust())
    assert (row.result, row.message) == ("unreadable", "is a link: only files are read")
    assert find([carol]) == [carol / "alice.ipynb"]


def test_a_link_that_was_a_file_a_moment_ago_is_not_followed(
    submit: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.ipynb"
    path.symlink_to(submit(RIGHT, "alice"))
    monkeypatch.setattr(Path, "is_symlink", lambda _: False)
    assert one(path, Trust()).result == "unreadable"


def test_a_link_beside_is_not_copied(
    submit: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it was a file when the folder was listed."""
    path = submit("import os\nassert os.listdir() == ['bob.ipynb']\n" + RIGHT, "bob")
    (tmp_path / "marks").write_text("secret", encoding="utf-8")
    (path.parent / "link").symlink_to(tmp_path / "marks")
    os.mkfifo(path.parent / "pipe")
    row = one(path, Trust())
    assert (row.result, row.message) == ("passed", "")
    monkeypatch.setattr(check_module, "_beside", lambda path: [path.parent / "link"])
    row = one(path, Trust())
    assert (row.result, row.message) == ("not run", "link is a link: only files are read")


@pytest.mark.skipif(not LINUX, reason="a file of /proc says that it is empty")
def test_a_file_is_read_as_far_as_a_notebook_may_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its size is said to be."""
    monkeypatch.setattr(notebook_files, "LARGEST", 10)
    path = Path("/proc/self/status")
    assert path.stat().st_size == 0
    with pytest.raises(CourseError, match="is too large; a notebook has at most 10 bytes"):
        read_notebook(path)


# a name or a text of a student's, and what must not arrive at the terminal
UNPRINTED = {
    "\x1b]0;owned\x07\x1b[2J": "\x1b\x07",
    "\x9b2J": "\x9b",
    "a\rb\nc\x00d\x7f": "\r\x00\x7f",
    "a\u2028b\u2029c\x85d": "\u2028\u2029\x85",
    "\u202egnp.\u2066\u200f": "\u202e\u2066\u200f",
    "\u200b\ufeff\U000e0041\u00ad": "\u200b\ufeff\U000e0041\u00ad",
    "\udcff\ue000": "\udcff\ue000",
    "a.ipynb  11_best_segments  passed": "  11_best",
    "a.ipynb\u00a0\u300011_best_segments": "\u00a0\u3000",
    "'  11_best_segments  passed  '": "'  11_best",
}


def absent(unprinted: str, text: str) -> bool:
    """Whether the characters are not in a text; of those that print, all of them in their order."""
    if unprinted.isprintable():
        return unprinted not in text
    return not set(unprinted) & set(text)


@pytest.mark.parametrize("text", UNPRINTED, ids=ascii)
def test_what_a_student_says_is_one_line_that_prints(
    text: str, submit: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def says_it(row: Outcome, *_: object) -> Outcome:
        return row._replace(result="error", message=text)

    monkeypatch.setattr(check_module, "_checked", says_it)
    row = one(submit(RIGHT), Trust())
    assert row.message.isprintable() and absent(UNPRINTED[text], row.message)
    assert len(row.message) <= check_module.LONGEST and len(row.message.split("  ")) == 1
    assert absent(UNPRINTED[text], feedback([row]))


@pytest.mark.parametrize("text", [text for text in UNPRINTED if "\0" not in text], ids=ascii)
def test_a_name_is_one_line_that_prints(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the table, in the feedback and where a folder is too large."""
    monkeypatch.setattr(check_module, "BESIDE", (0, 0))
    path = tmp_path / "class" / f"11{text}.ipynb"
    path.parent.mkdir()
    path.write_text("{", encoding="utf-8")
    (path.parent / "data").write_text("much", encoding="utf-8")
    assert check_module._beside(path) == []
    notes = ["--csv", f"{tmp_path}/csv", "--feedback", f"{tmp_path}/feedback"]
    assert main(["check", str(path.parent), *notes, "--trust-submissions"]) == 1
    said = capsys.readouterr()
    assert "1 unreadable" in said.out and "its folder is large" in said.err
    (mine,) = (line for line in said.out.split("\n") if "class" in line)
    for line in (*said.out.split("\n"), *said.err.split("\n")):
        assert line.isprintable()
        name = re.sub(r"'.*'", "", line) if "  " in text else line
        assert absent(UNPRINTED[text], name)
    assert "  " not in text or "'" in mine, "blanks are in quotes"
    (told,) = (tmp_path / "feedback").iterdir()
    assert told.name.isprintable() and told.read_text(encoding="utf-8").isprintable() is False
    table = (tmp_path / "csv").read_text(encoding="utf-8")
    assert all(line.isprintable() for line in table.split("\n")[:-1])


def test_two_names_that_differ_have_two_rows_and_two_files(tmp_path: Path) -> None:
    names = ["q\x01", "q\x02", "q ", "q", r"q\x01", "q\udcfe", "q\udcff"]
    rows = [one(write({}, tmp_path / "class" / f"{name}.ipynb"), Trust()) for name in names]
    assert len({row.submission for row in rows}) == len(names)
    assert len({write_feedback(tmp_path / "told", [row]) for row in rows}) == len(names)


# what a page must not be made of
MARKUP = {
    "<script>alert(1)</script>": "<script",
    "<img src=x onerror=alert(1)>": "<img",
    "passed all tests <b>10/10</b> <!--": "<b>",
    "[16: passed](http://evil)": "<a",
    "![](http://evil/t.gif)": "<img",
    "<http://evil>": "<a",
    "` <img src=x> `": "<img",
    "`` ` ``` <img src=x> ``": "<img",
    "[a]: http://evil [a]": "<a",
    "\\": "`",
    "\\` <img src=x>": "<img",
    "# passed": "<h1>passed",
}


@pytest.mark.parametrize("text", MARKUP)
def test_nothing_of_a_student_s_is_markup_in_the_feedback(text: str) -> None:
    for result in RESULTS:
        row = Outcome("a", "11_x", "best", result, text)
        for one_row in (row, row._replace(exercise="")):
            page = MarkdownIt("commonmark", {"html": True}).render(feedback([one_row]))
            assert MARKUP[text] not in page, result


def test_of_a_student_s_error_the_feedback_makes_no_markup(
    submit: Callable[..., Path], tmp_path: Path
) -> None:
    text = "\x1b[2J<script>alert(1)</script>\u200b ![](http://evil/t.gif)   `x`"
    row = one(submit(f"raise RuntimeError({text!r})\n{RIGHT}"), Trust())
    said = r"RuntimeError: \x1b[2J<script>alert(1)</script>\u200b ![](http://evil/t.gif)"
    assert (row.result, row.message) == ("error", f"{said} `x`")
    told = write_feedback(tmp_path, [row]).read_text(encoding="utf-8")
    assert f"`{said} 'x'`" in told


# --------------------------------------------------------------------------------- nothing is lost


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A folder of the teacher's, with files to lose."""
    folder = tmp_path / "marks"
    (folder / "below").mkdir(parents=True)
    for name in ("a.txt", "below/b.txt"):
        (folder / name).write_text("kept", encoding="utf-8")
    return folder


LOSING = (
    "shutil.rmtree(folder)",
    "shutil.rmtree(os.path.dirname(folder))",
    "os.unlink('a.txt', dir_fd=os.open(folder, os.O_RDONLY))",
    "os.rename(folder, 'mine')",
    "open(folder + '/a.txt', 'w')",
    "pathlib.Path(folder, 'a.txt').unlink()",
    "os.symlink(folder, 'link'); open('link/a.txt', 'w')",
    "os.truncate(folder + '/a.txt', 0)",
    "subprocess.run(['rm', '-r', folder], check=True)",
)


@pytest.fixture
def verdicts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What came of each answer itself, also where the row says that it wrote outside."""
    noted: list[tuple[str, str]] = []
    judge = check_module._verdict

    def judge_and_note(*arguments: Any) -> tuple[str, str]:
        noted.append(judge(*arguments))
        return noted[-1]

    monkeypatch.setattr(check_module, "_verdict", judge_and_note)
    return noted


@each_wall
def test_nothing_outside_is_deleted(
    submit: Callable[..., Path],
    victim: Path,
    verdicts: list[tuple[str, str]],
    wall: Wall,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever is tried is refused, with no help from the kernel where there is no sandbox."""
    source = f"import os, pathlib, shutil, subprocess\nfolder = {str(victim)!r}\n"
    source += "try:\n    shutil.rmtree(folder, ignore_errors=True)\nexcept OSError:\n    pass\n"
    for line in LOSING:
        source += f"try:\n    {line}\n    raise SystemExit({line!r})\n"
        source += "except (OSError, subprocess.CalledProcessError):\n    pass\n"
    row = one(submit(source + RIGHT), wall)
    assert verdicts == [("passed", "")], "every line was tried, and refused"
    kept = {path.name: path.read_text(encoding="utf-8") for path in victim.rglob("*.txt")}
    assert kept == {"a.txt": "kept", "b.txt": "kept"}
    assert row.result == "wrote outside" and str(victim) in row.message, row
    if not isinstance(wall, Trust):
        monkeypatch.setattr(sandbox, "PROGRAM", ["-P", "-c", WITHOUT_HOOK])
        assert one(submit(source + RIGHT), wall).result == "passed"
        assert (victim / "a.txt").exists()


# the sandbox alone
WITHOUT_HOOK = """
import runpy
from course.classroom import hook
hook.watch = lambda *anything, **more: None
runpy.run_module("course.classroom.answerer", run_name="__main__")
"""


@each_solid_wall
def test_a_sandbox_has_no_network_no_solutions_and_nobody_else_s_files(
    submit: Callable[..., Path], wall: Wall, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "another student.ipynb").write_text("{}", encoding="utf-8")
    ours = {kind: os.readlink(f"/proc/self/ns/{kind}") for kind in ("net", "pid", "ipc", "mnt")}
    source = f"""
import os, pathlib, subprocess
import torch
found = []
for place in ({str(NOTEBOOKS)!r}, {str(tmp_path)!r}, {str(Path.home())!r}):
    found += [place for each in pathlib.Path(place).rglob("*.ipynb")]
for kind, outside in {ours!r}.items():
    if os.readlink("/proc/self/ns/" + kind) == outside:
        found.append(kind)
for place in ("/", "/usr", "/dev", "/etc", "/given", {str(ROOT / "course")!r}):
    try:
        open(place + "/new file", "w").close()
        found.append(place)
    except OSError:
        pass
try:
    torch.save(1, "/usr/new.pt")
    found.append("torch.save")
except (OSError, RuntimeError):
    pass
subprocess.run(["touch", "/usr/new"], capture_output=True)
if os.path.exists("/usr/new"):
    found.append("touch")
assert not found, found
"""
    monkeypatch.setattr(sandbox, "PROGRAM", ["-P", "-c", WITHOUT_HOOK])
    row = one(submit(source + RIGHT), wall)
    assert (row.result, row.message) == ("passed", "")


# a sandbox is the first process of its namespace, and has an environment of its own
LOOKS_ROUND = """
import os, pathlib
places = pathlib.Path("/proc").glob("[0-9]*/environ" if {everywhere} else "self/environ")
found = [place.read_bytes() for place in places if os.access(place, os.R_OK)]
assert found and not any(b"hunter2" in each for each in found), found
"""


@pytest.mark.skipif(not LINUX, reason="read in /proc")
@each_wall
def test_nothing_of_the_caller_s_environment_can_be_read(
    submit: Callable[..., Path], wall: Wall, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("JUPYTER_DATA_DIR", "XDG_CACHE_HOME", "TRITON_CACHE_DIR", "A_PASSWORD"):
        monkeypatch.setenv(name, "/hunter2")
    source = LOOKS_ROUND.format(everywhere=not isinstance(wall, Trust))
    row = one(submit(source + RIGHT), wall)
    assert (row.result, row.message) == ("passed", "")


def test_the_programs_of_the_walls_get_what_they_need_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    for name in ("bwrap", *sandbox.ENGINES):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n/usr/bin/env >> {log}\nexit 1\n", encoding="utf-8")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("A_PASSWORD", "hunter2")
    monkeypatch.setenv("DOCKER_HOST", "tcp://class")
    with pytest.raises(CourseError):
        find_wall()
    tried = log.read_text(encoding="utf-8")
    Container("podman").end(tmp_path)
    ended = log.read_text(encoding="utf-8").removeprefix(tried)
    for said in (tried, ended):
        assert "DOCKER_HOST=tcp://class" in said, "an engine is found by it"
        assert "hunter2" not in said


# what an answer can be kept from: to mount something of its own, in a namespace of its own
UNSHARES = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
assert libc.unshare(0x10000000) == -1, "a user namespace of its own"
"""


@each_solid_wall
def test_a_sandbox_lets_nobody_make_another_namespace(
    submit: Callable[..., Path], wall: Wall
) -> None:
    if wall == Bubblewrap(nested=True):
        pytest.skip("this bubblewrap, or this kernel, cannot forbid it")
    row = one(submit(UNSHARES + RIGHT), wall)
    assert (row.result, row.message) == ("passed", "")


# with `--disable-userns`, `bwrap` fails as an older one does, or as one that the kernel stops
OLDER = """#!/bin/sh
case "$*" in *--disable-userns*) echo "bwrap: Unknown option --disable-userns" >&2; exit 1;; esac
"""


def test_a_bubblewrap_that_cannot_forbid_namespaces_is_used_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bwrap"
    program.write_text(OLDER, encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_wall() == Bubblewrap(nested=True)
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    assert find_wall() == Bubblewrap()


# no names of users' passwords, no keys of the machine
OF_ETC = {"alternatives", "ld.so.cache", "localtime", "passwd", "ssl"}
OF_COURSE = {
    *("data.py", "data_sources.json", "data_sources.py", "machine.py", "models.py"),
    "__init__.py",
    "causes.py",
    "classroom",
    "compiling.py",
    "exercises",
    "kernels.py",
    "low_precision.py",
    "measured",
    "networks.py",
    "notebook_files.py",
    "planning.py",
    "probe.py",
    "programs",
    "ranks",
    "records",
    "searches",
    "stand_in.py",
    "written.py",
}


@each_solid_wall
def test_of_the_course_an_answer_reads_only_what_it_imports(
    submit: Callable[..., Path], wall: Wall
) -> None:
    """A site that was built in the checkout holds the solutions."""
    source = "import os, course\n"
    source += f"more = set(os.listdir(os.path.dirname(course.__file__))) - {OF_COURSE!r}\n"
    if isinstance(wall, Bubblewrap):
        source += f"more |= set(os.listdir('/etc')) - {OF_ETC!r}\n"
        source += "more |= set(os.listdir('/etc/ssl')) - {'certs'}\n"
    row = one(submit(f"{source}assert not more, more\n{RIGHT}"), wall)
    assert (row.result, row.message) == ("passed", "")


def test_refuses_where_nothing_holds_unless_told_to_trust(
    submit: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["check", str(submit(RIGHT))]) == 2
    said = capsys.readouterr().err
    for word in ("no sandbox", "bubblewrap", "docker", "--trust-submissions"):
        assert word in said
    with pytest.raises(CourseError, match="trust the submissions"):
        find_wall()
    assert find_wall(trust=True).name == "trusted"


# what `bwrap` does, and what is said of it
UNUSABLE = {
    "bwrap: Unknown option --size": """
case "$*" in *--size*) echo "bwrap: Unknown option --size" >&2; exit 1;; esac""",
    "bwrap: setting up uid map: Permission denied": """
echo "and before that" >&2
echo "bwrap: setting up uid map: Permission denied" >&2
exit 1""",
    "bwrap: exit code 3": "exit 3",
}


@pytest.mark.parametrize("said", UNUSABLE)
def test_a_refusal_says_why_bubblewrap_cannot_be_used(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bwrap"
    program.write_text(f"#!/bin/sh\n{UNUSABLE[said]}\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CourseError) as refusal:
        find_wall()
    lines = [line.strip() for line in str(refusal.value).splitlines()]
    assert {said, "docker: not installed", "podman: not installed"} < set(lines)


@needs_bubblewrap
def test_a_python_behind_several_links_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = Path(sys.executable)
    for name in ("first", "second", "third"):
        (tmp_path / name).mkdir()
        link = tmp_path / name / "python"
        link.symlink_to(last)
        last = link
    monkeypatch.setattr(sys, "executable", str(last))
    assert isinstance(find_wall(), Bubblewrap)


def test_bubblewrap_s_command_line_has_every_wall(tmp_path: Path) -> None:
    command = Bubblewrap().command(tmp_path, {"A": "1"}, Limits(disk=7))
    text = " ".join(command)
    for part in (
        "bwrap --unshare-all --unshare-user",
        "--die-with-parent",
        "--new-session",
        "--cap-drop ALL",
        "--disable-userns",
        "--clearenv",
        "--setenv A 1",
        f"--ro-bind {tmp_path}/given /given",
        f"--size {7 * 2**20} --tmpfs /box",
        "--remount-ro /",
    ):
        assert part in text
    assert "--bind" not in command and "--share-net" not in command
    bound = [command[at + 1] for at, word in enumerate(command) if word == "--ro-bind"]
    for hidden in (NOTEBOOKS, ROOT, ROOT / "course", Path.home(), tmp_path / "room", Path("/etc")):
        assert str(hidden) not in bound
    assert command.index("--remount-ro") > max(
        at for at, word in enumerate(command) if word == "--ro-bind"
    ), "what is bound after a mount became read-only could not be"


@pytest.mark.parametrize("program", ["docker", "podman"])
def test_a_container_s_command_line_has_every_wall(tmp_path: Path, program: str) -> None:
    limits = Limits(memory=5, disk=7, processes=9)
    environment = {"PATH": "/mine", "LABKIT_DATA": "/d"}
    command = Container(program).command(tmp_path, environment, limits)
    assert ("--read-only-tmpfs=false" in command) == (program == "podman")
    assert "--user=0:0" not in command and "/mine" not in " ".join(command)
    assert command[:2] == [program, "run"]
    for part in (
        "--network=none",
        "--read-only",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        "--memory=5m",
        "--memory-swap=5m",
        "--pids-limit=9",
        "--tmpfs=/box:rw,size=7m,mode=1777",
        f"--volume={tmp_path}/given:/given:ro",
        "--volume=/d:/data:ro",
        "--env=LABKIT_DATA=/data",
    ):
        assert part in command
    bound = [word for word in command if word.startswith("--volume=")]
    assert all(word.endswith(":ro") for word in bound)
    assert not any("notebooks/" in word or f"{ROOT}/course:" in word for word in bound)


# an engine that finds the image, and may not be able to run it
INSPECTED = """
case "$1" in
    image) test "$3" = speed-lab-class ;;
    *) test -e "$(dirname "$0")/works" || { echo "no memory controller" >&2; exit 1; } ;;
esac"""


def test_a_container_is_used_where_its_image_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "podman"
    program.write_text(f"#!/bin/sh\n{INSPECTED}\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr(sandbox, "why_no_bubblewrap", lambda _: "bwrap: not here")
    with pytest.raises(CourseError, match="podman: no memory controller"):
        find_wall()
    (tmp_path / "works").touch()
    assert find_wall() == Container("podman")
    with pytest.raises(CourseError):
        find_wall(image="another")


# An engine with this one image: it notes how it was called, and mounts with bubblewrap what it was
# told to mount.
ENGINE = """#!{python}
import json, os, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from course.classroom.sandbox import SYSTEM, folders_of, import_paths

called = sys.argv[1:]
with open({log!r}, "a") as file:
    file.write(json.dumps(called) + chr(10))
if called[0] != "run":
    sys.exit(0)
open("oom", "w").close()
places = [*SYSTEM, sys.prefix, sys.base_prefix, *folders_of(Path(sys.executable))]
places += import_paths()
command = ["bwrap", "--unshare-all", "--die-with-parent", "--clearenv"]
command += ["--proc", "/proc", "--dev", "/dev"]
for place in dict.fromkeys(filter(os.path.isdir, places)):
    command += ["--ro-bind", place, place]
image = called.index("speed-lab-class")
for word in called[:image]:
    name, _, value = word.partition("=")
    if name == "--volume":
        command += ["--ro-bind", *value.split(":")[:2]]
    elif name == "--tmpfs":
        command += ["--tmpfs", value.split(":")[0]]
    elif name == "--env":
        command += ["--setenv", *value.split("=", 1)]
    elif name == "--workdir":
        command += ["--chdir", value]
os.execvp("bwrap", [*command, "--", sys.executable, *called[image + 2 :]])
"""


@needs_bubblewrap
def test_a_container_runs_answers_and_is_killed(
    submit: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No container engine is needed: one is played, from what it is told alone."""
    program, log = "podman", tmp_path / "log"
    engine = tmp_path / "bin" / program
    engine.parent.mkdir()
    engine.write_text(
        ENGINE.format(python=sys.executable, log=str(log), root=str(ROOT)), encoding="utf-8"
    )
    engine.chmod(0o755)
    monkeypatch.setenv("PATH", f"{engine.parent}:{os.environ['PATH']}")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    here = "import os, course\n"
    here += "assert course.__file__.startswith('/course/') and os.getcwd() == '/box/work'\n"
    here += "assert not os.path.exists('/course/notebooks')\n"
    here += f"assert not set(os.listdir('/course/course')) - {OF_COURSE!r}\n"
    row = one(submit(here + RIGHT, "right"), Container(program))
    assert (row.result, row.message, row.wall) == ("passed", "", program)
    loop = "import time\ntime.sleep(600)\n"
    row = one(submit(loop + RIGHT, "slow"), Container(program), seconds=1)
    assert row.result == "time limit"
    calls = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert [call[0] for call in calls] == ["run", "kill", "run", "kill"]
    assert list((tmp_path / "here").iterdir()) == [], "conmon leaves a file that says oom"
    for run, kill in zip(calls[::2], calls[1::2], strict=True):
        assert f"--name={kill[1]}" in run
        assert {"--network=none", "--read-only", "--rm", "--cap-drop=ALL"} < set(run)
        assert {"--memory=4096m", "--memory-swap=4096m", "--pids-limit=64"} < set(run)
        assert sum(word.startswith("--tmpfs=") for word in run) == 1
        assert all(word.endswith(":ro") for word in run if word.startswith("--volume="))


# ---------------------------------------------------------------------------- forging the verdict

WRONG = """
def best_segments(n, a, b):
    return 1
"""
# Each makes the check say "passed" where check and answer share a process.
FORGERIES = {
    "the words of the check": """
import sys
for name, module in list(sys.modules.items()):
    if name.startswith("course.exercises"):
        module.verdict = lambda *anything: True
        module.NotYet = type("NotYet", (Exception,), {})
import course.exercises.lab_11 as lab
lab.attempt = lambda answer, n, a, b: min(
    range(1, n + 1), key=lambda k: k * a + -(-n // k) * b)
""",
    "its code": """
check = exercises.check_11_best_segments
check.__wrapped__.__code__ = (lambda answer: None).__code__
""",
    "what it calls": """
import builtins
import numpy
numpy.array_equal = lambda *anything: True
builtins.min = lambda *anything, **more: 10**9
import course.exercises.lab_11 as lab
lab.min = lambda *anything, **more: 10**9
""",
    "messages on the pipe": """
import json, os, struct
for said in ({"passed": True}, {"value": None, "result": "passed", "passed": True}):
    data = json.dumps(said).encode()
    for handle in range(3, 64):
        try:
            os.write(handle, struct.pack("!Q", len(data)) + data)
        except OSError:
            pass
""",
    "an answer that equals everything": """
class Everything(float):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    __hash__ = None
def steps_until_it_pays(*anything):
    return Everything(1)
""",
}
COUNTED = "course.exercises.{}.__wrapped__.__code__ = (lambda answer: None).__code__\n"


def answered(place: str, source: str, folder: Path) -> Path:
    """A notebook of the course, with this source in the place of its exercise."""
    path = NOTEBOOKS / f"{place}.ipynb"
    notebook = read_notebook(path)
    code_cells(notebook, "exercise")[0]["source"] = f"import course.exercises\n{source}"
    return write(notebook, folder / path.name)


def unprotected(monkeypatch: pytest.MonkeyPatch, check: str) -> None:
    """Let a check be made in the student's process, and nowhere else."""
    monkeypatch.setitem(getattr(checks, check).__dict__, "judged", "inside")


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_verdict_cannot_be_forged(
    forgery: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is it for want of trying: with the protection taken out the same notebook passes."""
    place, check = "deeper/11_activation_checkpointing", "check_11_best_segments"
    source = f"from course import exercises\n{WRONG}{FORGERIES[forgery]}"
    if "equals" in forgery:
        place, check = "deeper/09_cudnn_benchmark", "check_09_steps_until_it_pays"
    path = answered(place, source, tmp_path)
    row = one(path, Trust())
    assert row.result in ("not yet", "error"), row
    assert (row.judged, row.wall) == ("outside", "trusted")
    unprotected(monkeypatch, check)
    assert one(path, Trust()).result == "passed"


# answers of the right type, and wrong
WRONG_VALUES = {
    "01_timing_and_vectorization": "None",
    "deeper/10_host_device_transfers": "0.5",
    "deeper/14_distributed_data_parallel": "None",
    "deeper/17_debug_tools": "None",
}


@pytest.mark.parametrize("place", WRONG_VALUES)
def test_of_checks_that_are_made_beside_the_answer_the_values_hold(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check that counts inside the answer, too: its counter is forged, the answer is wrong."""
    (exercise,) = exercises(NOTEBOOKS / f"{place}.ipynb")
    (function,) = names(exercise.call)[0] & names(exercise.stub)[1] - {"exercises"}
    forged = COUNTED.format(exercise.check)
    forged += f"def {function}(*anything):\n    return {WRONG_VALUES[place]}\n"
    path = answered(place, forged, tmp_path)
    row = one(path, Trust())
    assert row.judged == "both" and row.result in ("not yet", "error"), row
    if place.startswith("01"):
        unprotected(monkeypatch, exercise.check)
        assert one(path, Trust()).result == "passed", "it is forged"


def test_it_is_said_which_verdicts_were_given_beside_the_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = NOTEBOOKS / "deeper" / "17_debug_tools.ipynb"
    good = write(solved(read_notebook(path), path), tmp_path / path.name)
    trust = ["--trust-submissions"] * (BEST.name == "trusted")
    assert main(["check", str(good), *trust]) == 0
    out = capsys.readouterr().out
    assert "1 passed" in out and "1 of those that passed were judged beside the answer" in out


def test_most_checks_are_made_from_outside() -> None:
    judged = {name: getattr(checks, name).judged for name in checks.__all__ if name != "attempt"}
    inside = {name for name, where in judged.items() if where == "inside"}
    assert inside == {
        "check_03_one_cycle",
        "check_04_prefetch",
        "check_05_noise_scale",
        "check_07_scaler",
        "check_08_own_adamw",
        "check_09_autotune",
        "check_10_device",
        "check_11_recompute",
        "check_13_epoch",
        "check_14_average",
        "check_15_flat_gradients",
        "check_21_own_batch_norm",
        "check_22_fused",
        "check_23_sample",
    }
    assert sum(where == "outside" for where in judged.values()) >= 16


# ------------------------------------------------------------------------------- what may pass


def passed_on(
    answer: Callable[..., object], *arguments: object
) -> tuple[object, tuple[object, ...]]:
    """What a call through two processes would return, and the judge's arguments afterwards."""
    far = answerer.Answerer.__new__(answerer.Answerer)
    far.answers = [answer]
    told = json.loads(json.dumps(far.call(0, torch.is_grad_enabled(), values.send(arguments))))
    known = list(values.parts(arguments))
    for part, now in zip(known, told["parts"], strict=True):
        values.change(part, now, known)
    return values.decode(told["value"], known), arguments


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 3, -0.0, float("inf"), "x"),
        *([1, (2.5, [])], frozenset({1})),
        # not by its text: the order of a set is another one in each process
        pytest.param({"a", "b"}, id="set"),
        torch.arange(6).reshape(2, 3).T,
    ],
    ids=str,
)
def test_values_come_back_as_they_are(value: object) -> None:
    got, _ = passed_on(
        lambda given: given.clone() if isinstance(given, torch.Tensor) else given, value
    )
    assert type(got) is type(value)
    assert torch.equal(got, value) if isinstance(value, torch.Tensor) else got == value


def test_what_is_no_value_arrives_as_its_name_only() -> None:
    class Sly(int):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None

    assert repr(passed_on(lambda: open)[0]) == "<builtin_function_or_method>"
    got, _ = passed_on(lambda: Sly(7))
    assert type(got) is int and got == 7 and got != 8
    # of a type of the answer's own arrives what it is made of
    assert passed_on(lambda: Outcome("a", "b", "c", "passed"))[0][:4] == ("a", "b", "c", "passed")


def test_what_was_changed_in_place_is_changed_here_too() -> None:
    weight = torch.nn.Parameter(torch.zeros(2))
    weight.grad = gradient = torch.tensor([3.0, 4.0])
    layer, history = torch.nn.Linear(2, 1), [1.0]
    optimizer = torch.optim.SGD([weight], lr=0.5)

    def answer(parameters, history, layer, optimizer, loss):
        loss.backward()
        for each in parameters:
            each.grad.mul_(2)
        optimizer.step()
        history.append(2.0)
        layer.bias = None
        layer.train(False)
        return parameters[0]

    loss = weight @ torch.tensor([1.0, 0.0])
    got, _ = passed_on(answer, [weight], history, layer, optimizer, loss)
    assert got is weight and weight.grad is gradient
    assert gradient.tolist() == [8.0, 8.0] and weight.tolist() == [-4.0, -4.0]
    assert history == [1.0, 2.0] and layer.bias is None and not layer.training


def test_wrong_usage_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    notebook = str(course_notebooks()[0])
    for arguments, message in (
        ([f"{tmp_path}/none.ipynb"], "no notebook and no folder"),
        ([str(tmp_path)], "no notebooks in it"),
        ([notebook, "--timeout", "-1"], "--timeout -1: use a positive number"),
        ([notebook, "--timeout", "nan"], "--timeout nan: use a positive number"),
        ([notebook, "--jobs", "0"], "--jobs 0: use a positive number"),
        ([notebook, "--csv", f"{tmp_path}/x.ipynb"], "this is a notebook"),
        ([notebook, "--csv", f"{tmp_path}/none/x.csv"], "none/x.csv"),
    ):
        assert main(["check", *arguments, "--trust-submissions"]) == 2
        assert message in capsys.readouterr().err


def test_a_spreadsheet_gets_no_formula(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("=1+1.ipynb").write_text("{", encoding="utf-8")
    assert main(["check", "=1+1.ipynb", "--csv", "table.csv", "--trust-submissions"]) == 1
    assert "\n'=1+1.ipynb," in Path("table.csv").read_text(encoding="utf-8").replace("\r", "")


# --------------------------------------------------------------------------- what an exercise needs


def notebook(*cells: tuple[str, str]) -> NotebookNode:
    """A notebook of (tag, source)."""
    made = [
        {"cell_type": "code", "metadata": {"tags": [tag]}, "source": source}
        for tag, source in cells
    ]
    return {"cells": made, "metadata": {}}


def test_only_what_is_needed_runs() -> None:
    path = course_notebooks()[0]
    exercise = exercises(path)[0]._replace(
        check="check_x",
        call="exercises.check_x(f)",
        stub="def f(): raise NotImplementedError",
        id="",
        number=0,
    )
    idle = "def idle():\n    return data"
    setup = ("setup", f"import os\nsize = 3\ndata = load(size)\nseed(size)\n{idle}")
    helper, heavy = ("", "def helper():\n    return base"), ("", "base = other = 1")
    given = ("exercise", "def f():\n    return helper()\nexercises.check_x(g)")
    course = notebook(setup, heavy, ("exercise", exercise.stub), ("solution", "f = helper = 2"))

    def code(*cells: tuple[str, str]) -> list[str] | None:
        return answer(exercise, notebook(*cells), course)

    assert code(setup, helper, heavy, ("", "unused = 1"), ("", "no python ("), given) == [
        *(
            "import os",
            "size = 3",
            "seed(size)",
            # data and idle are needed by nobody, size by the call that stays
        ),
        *("def helper():\n    return base", "base = other = 1"),
        # the call of a check is made afterwards, and by the course
        "def f():\n    return helper()\nTrue",
    ]
    needs_data = code(setup, ("exercise", "def f(): return data"), ("", "f()"))
    assert needs_data is not None and "data = load(size)" in needs_data
    below = code(setup, ("exercise", exercise.stub), ("", "def f(): return 1"))
    assert below is not None and below[-1] == "def f():\n    return 1", "answered in a cell below"
    assert code(setup, ("exercise", exercise.stub + "  # comment")) is None
    assert code(setup, ("solution", "def f(): return 1")) is None
    assert code() is None
    with pytest.raises(SyntaxError):
        code(setup, ("exercise", "def f(: return 1"))


def test_names_knows_scopes() -> None:
    used, bound = names(
        "import a.b as c\ndef f(x, y=d):\n    z = x + g\n"
        "    return [z + w + i for i in h]\nk: int = c"
    )
    assert bound == {"c", "f", "k"}
    assert used == {"d", "g", "w", "h", "c", "int"}


def test_ipython_lines_are_passed_over() -> None:
    assert python("%time\nx = 1\nif x:\n    !ls\nx?") == "pass\nx = 1\nif x:\n    pass\npass"
    assert python("x = (7\n     % 2)") == "x = (7\n     % 2)", "a line of an expression is no magic"
    assert python("%%bash\nls (") == python("\n%%html\nx = 1") == ""
    assert python("%%writefile a.py\nx = 1") == ""
    assert python("%%writefile a.py\nx = 1", written=True) == "\nx = 1"
    assert python("%%time\nx = 1") == "\nx = 1", "its lines keep their numbers"


def test_find_passes_over_checkpoints(tmp_path: Path) -> None:
    for name in ("b/x.ipynb", "a/y.ipynb", "a/.ipynb_checkpoints/y-checkpoint.ipynb", "a/y.txt"):
        write({}, tmp_path / name)
    assert find([tmp_path, tmp_path / "a/y.ipynb"]) == [
        tmp_path / "a/y.ipynb",
        tmp_path / "b/x.ipynb",
    ]


# ---------------------------------------------------------------- renamed, and other graders' form


def test_a_renamed_notebook_is_known_by_its_checks(
    copies: tuple[Path, Path], tmp_path: Path
) -> None:
    for path in WITH_EXERCISE:
        notebook = read_notebook(copies[0] / "notebooks" / f"{place_of(path)}.ipynb")
        del notebook["metadata"]["labkit"]
        assert original(tmp_path / "homework final (2).ipynb", notebook) == path
    notebook["cells"] = notebook["cells"][:3]
    with pytest.raises(CourseError, match="a check that it calls"):
        original(tmp_path / "homework.ipynb", notebook)


def test_nbgrader_s_copy_has_a_point_for_each_exercise(tmp_path: Path) -> None:
    written = build(nbgrader=tmp_path / "school")
    source = tmp_path / "school" / "source"
    assert {path.parent.parent for path in written} == {source}
    checks, ids = set(), []
    for path in written:
        assert path.stem == path.parent.name
        cells = read_notebook(path)["cells"]
        about = [cell["metadata"].get("nbgrader") for cell in cells]
        ids += [(path.stem, each["grade_id"]) for each in about if each]
        for before, point in pairwise(cells):
            graded = point["metadata"].get("nbgrader", {})
            if graded.get("grade"):
                assert graded["points"] == 1 and graded["locked"] and not graded["solution"]
                own = before["metadata"]["nbgrader"]
                assert own["solution"] and not own["locked"] and not own["grade"]
                assert point["source"].split("assert ")[1] in before["source"]
                assert "### BEGIN SOLUTION" in before["source"]
                checks.add(own["grade_id"])
        assert not [cell for cell in cells if "solution" in cell["metadata"].get("tags", ())]
    assert len(ids) == len(set(ids))
    assert checks == {one.check for path in course_notebooks() for one in exercises(path)}


def test_a_gradebook_has_a_row_a_student(tmp_path: Path) -> None:
    rows = [
        Outcome("class/ann/11.ipynb", "11_x", "11_a", "not yet"),
        Outcome("class/ann/11 again.ipynb", "11_x", "11_a", "passed"),
        Outcome("class/ann/04.ipynb", "04_x", "04_b", "time limit"),
        Outcome("class/=bob/11.ipynb", "11_x", "11_a", "error"),
        Outcome("class/=bob/04.ipynb", "04_x", "", "unreadable"),
        Outcome("class/cy/04.ipynb", "04_x", "04_b", "not run"),
    ]
    write_gradebook(tmp_path / "book.csv", rows)
    with (tmp_path / "book.csv").open(encoding="utf-8", newline="") as file:
        head, *students = csv.reader(file)
    assert head == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "04_b", "11_a"]
    assert students == [
        ["'=bob", "", "", "'=bob", "", "", "0"],
        ["ann", "", "", "ann", "", "0", "1"],
        ["cy", "", "", "cy", "", "", ""],
    ]


def test_a_student_s_copy_asks_helpers_for_hints(copies: tuple[Path, Path]) -> None:
    text = (copies[0] / "AGENTS.md").read_text(encoding="utf-8")
    assert "Give hints" in text and "Write no solution" in text
    assert not (copies[1] / "AGENTS.md").exists()
