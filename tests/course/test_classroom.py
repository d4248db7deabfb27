"""`python -m course`: the copies of every notebook, every exercise's check, and answers that
misbehave.
"""

import ast
import csv
import json
import re
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import pytest
from nbformat import NotebookNode

from course.classroom import check as check_module
from course.classroom.build import build, student_copy
from course.classroom.check import RESULTS, Outcome, check, find
from course.classroom.files import (
    CourseError,
    course_notebooks,
    exercises,
    python,
    read_notebook,
)
from course.classroom.slices import answer, names
from course.cli import main
from course.notebook_files import NOTEBOOKS, ROOT, code_cells
from course.notebook_files import place as place_of

LINUX = sys.platform.startswith("linux")
each_notebook = pytest.mark.parametrize("path", course_notebooks(), ids=place_of)


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


@each_notebook
def test_every_check_fails_on_the_stub_and_passes_on_the_solution(
    path: Path, copies: tuple[Path, Path], tmp_path: Path
) -> None:
    students, instructors = (folder / "notebooks" / f"{place_of(path)}.ipynb" for folder in copies)
    assert {row.result for row in check(students)} == {"not attempted"}
    assert {row.result for row in check(instructors)} == {"not attempted"}, (
        "a solution in its own cell is no answer"
    )

    stub = read_notebook(students)
    # the same stub, but no longer as it was
    for cell in code_cells(stub, "exercise"):
        cell["source"] = re.sub(
            r"raise NotImplementedError.*", "raise NotImplementedError('mine')", cell["source"]
        )
    rows = list(check(write(stub, tmp_path / "stub" / path.name)))
    assert [row.result for row in rows] == ["not yet"] * len(exercises(path)), rows
    assert all(row.message and "not yet" not in row.message for row in rows), (
        "each check says what is missing"
    )

    good = solved(read_notebook(students), path)
    rows = list(check(write(good, tmp_path / "good" / path.name)))
    assert [row.result for row in rows] == ["passed"] * len(exercises(path)), rows
    # of an instructor's copy the very same code is run
    for exercise in exercises(path):
        same = answer(exercise, solved(read_notebook(instructors), path), read_notebook(path))
        assert same == answer(exercise, good, read_notebook(path))


@each_notebook
def test_student_copies_hold_no_solutions(path: Path, copies: tuple[Path, Path]) -> None:
    students, instructors = (folder / "notebooks" / f"{place_of(path)}.ipynb" for folder in copies)
    assert instructors.read_bytes() == path.read_bytes()
    whole, copy = read_notebook(path), read_notebook(students)
    assert copy == json.loads(json.dumps(student_copy(whole)))
    assert code_cells(whole, "solution") and not code_cells(copy, "solution")
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
    for folder in copies:
        text = (folder / "RESULTS.md").read_text(encoding="utf-8")
        targets = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", text)
        assert targets and all((folder / target).exists() for target in targets)


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


def one(path: Path, **options: object) -> Outcome:
    (row,) = check(path, **options)
    return row


def alive(marker: str) -> list[str]:
    """Command lines of the processes that hold a marker; a zombie has none."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().decode(errors="replace"))
        # it has just ended
        except OSError:
            continue
    return [line for line in found if marker in line]


def test_bad_submissions_cost_only_themselves(
    submit: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outside, marker = tmp_path / "outside.txt", "86400.0625"
    leave = f"import subprocess\nsubprocess.Popen(['sleep', '{marker}'], start_new_session=True)\n"
    fork = "import os\nif os.fork() == 0:\n    os.setsid()\n"
    fork += f"    os.execvp('sleep', ['sleep', '{marker}'])\n"
    quietly = f"try:\n    open({str(outside)!r}, 'w')\nexcept OSError:\n    pass\n"
    submit("import os\nos.abort()\n" + RIGHT, "a crash")
    submit("import os\nos._exit(0)\n" + RIGHT, "b exit")
    submit((leave if LINUX else "") + fork * LINUX + RIGHT, "c processes")
    submit(quietly + RIGHT, "d writes")
    submit(RIGHT, "e no check", ending="")
    submit(
        "def best_segments(n, a, b):\n    return 1\n\nprint('✓ passed')\n", "f says so", ending=""
    )
    submit(
        "exercises.check_11_best_segments = print\ndef best_segments(n, a, b):\n    return 1\n",
        "g own check",
    )
    submit("def best_segments(n, a, b)\n", "h syntax")
    last = submit("open('inside.txt', 'w').close()\n%matplotlib inline\n" + RIGHT, "z right")
    (last.parent / "i broken.ipynb").write_text('{"cells": [', encoding="utf-8")
    (last.parent / "j other.ipynb").write_text('{"cells": []}', encoding="utf-8")
    table = tmp_path / "table.csv"

    assert main(["check", str(last.parent), "--csv", str(table)]) == 1

    with table.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    assert (
        tuple(header)
        == Outcome._fields
        == ("submission", "notebook", "exercise", "result", "message", "seconds", "guard")
    )
    by_name = {Path(row[0]).stem: (row[3], row[4]) for row in rows}
    results = {name[0]: result for name, (result, _) in by_name.items()}
    assert results == {
        **dict.fromkeys("abh", "error"),
        **dict.fromkeys("ce", "passed"),
        **dict.fromkeys("fg", "not yet"),
        **dict.fromkeys("ij", "unreadable"),
        "d": "wrote outside",
        "z": "passed",
    }
    assert "Aborted" in by_name["a crash"][1] and "exit code 0" in by_name["b exit"][1]
    assert "outside.txt" in by_name["d writes"][1] and "SyntaxError" in by_name["h syntax"][1]
    assert not outside.exists() and not (last.parent / "inside.txt").exists()
    assert alive(marker) == []
    out = capsys.readouterr().out
    assert (
        "3 passed, 2 not yet, 3 error, 1 wrote outside, 2 unreadable" in out
        and "was stopped by: " in out
    )
    assert {result for result, _ in by_name.values()} <= set(RESULTS)


def test_a_loop_for_ever_is_stopped(submit: Callable[..., Path]) -> None:
    row = one(submit("def best_segments(n, a, b):\n    while True:\n        pass\n"), timeout=8)
    assert (row.result, row.message) == ("time limit", "stopped after 8 s")


@pytest.mark.parametrize("program", [True, False], ids=["program", "python"])
def test_without_landlock_the_audit_hook_holds(
    submit: Callable[..., Path], tmp_path: Path, program: bool
) -> None:
    place = str(tmp_path / "outside.txt")
    write = (
        f"import subprocess\nsubprocess.run(['touch', {place!r}])"
        if program
        else f"open({place!r}, 'a')"
    )
    row = one(submit(write + "\n" + RIGHT), landlock=False)
    assert (row.result, row.guard) == ("error" if program else "wrote outside", "audit hook")
    assert "may be started" in row.message if program else place in row.message
    assert not Path(place).exists()


@pytest.mark.skipif(not LINUX, reason="Landlock is Linux's")
def test_with_landlock_programs_and_native_code_cannot_write_either(
    submit: Callable[..., Path], tmp_path: Path
) -> None:
    place = str(tmp_path / "outside.pt")
    source = f"import subprocess\nsubprocess.run(['touch', {place!r}])\n"
    source += f"import torch\ntorch.save(1, {place!r})\n"
    row = one(submit(source + RIGHT))
    # this kernel has no Landlock: no program is started
    if row.guard == "audit hook":
        assert "may be started" in row.message
    else:
        assert (row.result, "Permission denied" in row.message) == ("wrote outside", True)
    assert not Path(place).exists()


def test_wrong_usage_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    notebook = str(course_notebooks()[0])
    for arguments, message in (
        ([f"{tmp_path}/none.ipynb"], "no notebook and no folder"),
        ([str(tmp_path)], "no notebooks in it"),
        ([notebook, "--timeout", "-1"], "positive number of seconds"),
        ([notebook, "--timeout", "nan"], "positive number of seconds"),
        ([notebook, "--csv", f"{tmp_path}/x.ipynb"], "this is a notebook"),
        ([notebook, "--csv", f"{tmp_path}/none/x.csv"], "none/x.csv"),
    ):
        assert main(["check", *arguments]) == 2
        assert message in capsys.readouterr().err


def test_the_caller_s_own_folders_are_not_handed_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # torch sets the third
    names = (
        "JUPYTER_DATA_DIR",
        "XDG_CACHE_HOME",
        "TORCHINDUCTOR_CACHE_DIR",
        "TRITON_CACHE_DIR",
    )
    for name in names:
        monkeypatch.setenv(name, "/elsewhere")
    environment = check_module._environment(tmp_path / "home", tmp_path / "scratch")
    assert "/elsewhere" not in environment.values()
    assert environment["TMPDIR"] == str(tmp_path / "scratch")


def test_a_spreadsheet_gets_no_formula(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("=1+1.ipynb").write_text("{", encoding="utf-8")
    assert main(["check", "=1+1.ipynb", "--csv", "table.csv"]) == 1
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
    assert python("%%bash\nls (") == ""


def test_find_passes_over_checkpoints(tmp_path: Path) -> None:
    for name in ("b/x.ipynb", "a/y.ipynb", "a/.ipynb_checkpoints/y-checkpoint.ipynb", "a/y.txt"):
        write({}, tmp_path / name)
    assert find([tmp_path, tmp_path / "a/y.ipynb"]) == [
        tmp_path / "a/y.ipynb",
        tmp_path / "b/x.ipynb",
    ]
