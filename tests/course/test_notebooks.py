"""Each notebook runs from top to bottom, also twice, prints the counters it stores, and has the
known anatomy.
"""

import ast
import os
import re
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import nbformat
import pytest

from course import anatomy
from course import notebooks as tool
from course.classroom.build import student_copy
from course.notebook_files import (
    ROOT,
    long_path,
    notebook_path,
    notebook_text,
    place,
    read_notebook,
    tags,
)
from tests.forked import Forks

PATHS = tool.notebooks()
LONG = "22_compile_and_cuda_graphs"
# A long notebook without a front one.
ALONE = "25_other"
each_notebook = pytest.mark.parametrize("path", PATHS, ids=place)


@each_notebook
def test_shape(path: Path) -> None:
    assert anatomy.check(read_notebook(path), path.stem) == []


@each_notebook
def test_python_in_the_text_is_python(path: Path) -> None:
    """Readers copy it."""
    for each in read_notebook(path).cells:
        if each.cell_type == "markdown":
            for block in re.findall(
                r"^```python\n(.*?)^```", each.source, re.MULTILINE | re.DOTALL
            ):
                ast.parse(block)


# Deeper notebooks that run twice in CI, too, as all front ones do.
TWICE = (
    "deeper/03_learning_rate_schedules",
    "deeper/15_zeroing_gradients",
    "deeper/20_validation_without_grad",
)
# Runs in a kernel that begins as a reader's does, without torch.
FRESH = "06_mixed_precision"


@pytest.mark.notebook
@each_notebook
def test_runs_and_prints_what_is_stored(
    path: Path, tmp_path: Path, pytestconfig: pytest.Config, forks: Forks
) -> None:
    """By nbval: the student's copy and then the whole, in one kernel; most deeper ones once."""
    twice = pytestconfig.getoption("--twice") == "all" or place(path) in TWICE
    twice = twice or not place(path).startswith("deeper/")
    file = tmp_path / path.name
    notebook = tool.doubled(path) if twice else read_notebook(path)
    file.write_text(notebook_text(notebook), encoding="utf-8")
    with tool.private_jupyter() as environment:
        # two tests run at a time, and the other one has its core
        environment |= {"OMP_NUM_THREADS": "1"}
        passed, said = by_nbval(file, environment, None if place(path) == FRESH else forks)
    assert passed, said


def test_what_nbval_runs_holds_both_rounds_and_all_that_is_stored() -> None:
    for path in PATHS:
        twice, whole = tool.doubled(path), read_notebook(path)
        assert tool.checked(twice)[-len(tool.checked(whole)) :] == tool.checked(whole)
        first = [cell for cell in twice.cells if not cell.id.endswith("-again")]
        assert [cell.id for cell in first] == [cell.id for cell in student_copy(whole).cells]
        assert all(text for text in tool.checked(twice))


@pytest.mark.notebook
def test_nbval_finds_what_differs(tmp_path: Path) -> None:
    path = with_checked(tmp_path / "other.ipynb", "print(6 * 7)", "41\n")
    passed, said = by_nbval(path, dict(os.environ))
    assert not passed and "42" in said


def by_nbval(
    file: Path, environment: dict[str, str], forks: Forks | None = None
) -> tuple[bool, str]:
    """Whether nbval passes a notebook; what it says.

    A process of its own: nbval's options would apply to all tests, and ours to it.
    """
    python = forks.python if forks else [sys.executable]
    command = [*python, "-m", "pytest", "-o", "addopts=", "-p", "no:cacheprovider", "-q"]
    command += ["--nbval-lax", "--nbval-kernel-name=python3"]
    command += [f"--nbval-cell-timeout={tool.CELL_TIMEOUT}"]
    done = subprocess.run(
        [*command, str(file)],
        cwd=ROOT,
        env=environment | (forks.variables if forks else {}),
        capture_output=True,
        text=True,
        timeout=900,
    )
    return done.returncode == 0, done.stdout[-8000:] + done.stderr[-8000:]


# ------------------------------------------------------------------ the tool itself, on small files


@pytest.fixture
def good() -> nbformat.NotebookNode:
    """A long notebook; `test_front.py` holds the form of the front ones."""
    return read_notebook(long_path(LONG))


def cell(notebook: nbformat.NotebookNode, tag: str) -> nbformat.NotebookNode:
    return next(cell for cell in notebook.cells if tag in tags(cell))


def test_all_notebooks_are_found() -> None:
    assert anatomy.TEMPLATE_FILE in PATHS and place(anatomy.TEMPLATE_FILE) == "_template"
    assert tool.notebooks(["_template", "_template.ipynb"]) == [anatomy.TEMPLATE_FILE] * 2
    with pytest.raises(FileNotFoundError, match=r"'no_such'.*_template"):
        tool.notebooks(["no_such"])


def test_an_unknown_name_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main(["check", "no_such"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("no notebook 'no_such'") and said.count("\n") == 1


def test_a_user_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 1234")

    monkeypatch.setattr(tool.getpass, "getuser", nameless)
    with tool.private_jupyter() as environment:
        assert environment["LABKIT_SIZE"] == "test"
    assert tool.user_name() == f"uid_{os.getuid()}"


@pytest.mark.parametrize("name", [LONG, "06_mixed_precision"])
def test_words_that_the_course_does_not_use_are_named(name: str) -> None:
    """In the text and the comments of both forms."""
    notebook = read_notebook(notebook_path(name))
    cell(notebook, "card").source += "\nThis is dearer."
    cell(notebook, "workload").source += "\n# 30 samples a second"
    said = "\n".join(anatomy.check(notebook, name))
    assert "says 'dearer'" in said and "says 'samples a second'" in said


@pytest.mark.parametrize("tag", anatomy.TAGS)
def test_a_missing_part_is_named(good: nbformat.NotebookNode, tag: str) -> None:
    good.cells = [each for each in good.cells if tag not in tags(each)]
    assert any(f"no cell tagged {tag!r}" in problem for problem in anatomy.check(good, ALONE))


def test_an_exercise_in_the_front_notebook_is_enough(good: nbformat.NotebookNode) -> None:
    good.cells = [each for each in good.cells if not {"exercise", "solution"} & set(tags(each))]
    behind_a_front_one = anatomy.check(good, "06_mixed_precision")
    assert not any("no cell tagged" in problem for problem in behind_a_front_one)
    assert sum("no cell tagged" in problem for problem in anatomy.check(good, ALONE)) == 2


def test_a_copy_of_the_template_is_told_from_a_notebook() -> None:
    good = read_notebook(anatomy.TEMPLATE_FILE)
    text = "\n".join(anatomy.check(good, "23_x"))
    assert "has the template's title, 'Template: fewer, larger calls'" in text
    assert "(card) still tells to copy the notebook" in text
    for tag in ("panel", "more-2"):
        assert f"({tag}) names the template: write '23_x' for '_template'" in text
    good.metadata.labkit.title = "Mine"
    for each in good.cells:
        each.source = each.source.replace("_template", "23_x").replace("Template: fewer", "Mine")
    copied = "\n".join(anatomy.check_copied(good, "23_x"))
    assert "(recipe) is still the template's" in copied
    for each in good.cells:
        each.source += "\n# mine"
    good.metadata.labkit.map.cost = "little"
    cell(good, "card").source = "# Mine\n"
    assert anatomy.check_copied(good, "23_x") == []


def test_each_kind_of_damage_is_named(good: nbformat.NotebookNode) -> None:
    def problems(change: object) -> str:
        notebook = deepcopy(good)
        change(notebook)
        return "\n".join(anatomy.check(notebook, LONG))

    stream = nbformat.v4.new_output("stream", text="1.2 ms\n")
    errors = nbformat.v4.new_output("stream", name="stderr", text="warning\n")

    assert "no stored output" in problems(lambda nb: cell(nb, "counters").outputs.clear())
    assert "not tagged" in problems(lambda nb: cell(nb, "baseline").outputs.append(stream))
    assert "no plain result: stderr" in problems(
        lambda nb: cell(nb, "counters").outputs.append(errors)
    )
    assert "widget state" in problems(lambda nb: nb.metadata.update(widgets={}))
    assert "not executed from top to bottom" in problems(
        lambda nb: cell(nb, "setup").update(execution_count=None)
    )
    assert "another kernel" in problems(lambda nb: nb.metadata.kernelspec.update(name="mine"))
    assert "cells with the id" in problems(lambda nb: nb.cells[1].update(id=nb.cells[0].id))
    assert "'baseline' before 'bottleneck'" in problems(
        lambda nb: nb.cells.insert(1, cell(nb, "baseline"))
    )
    assert "at most 10" in problems(
        lambda nb: cell(nb, "setup").update(source="import this\n" * 11)
    )
    assert "at most 15" in problems(lambda nb: cell(nb, "baseline").update(source="pass\n" * 16))
    long_step = (
        "def make_workload():\n    def step():" + "\n        pass" * 15 + f"  {anatomy.MARK}"
    )
    assert "step() of 16 lines" in problems(
        lambda nb: cell(nb, "workload").update(source=long_step)
    )
    unmarked = re.sub(f"{anatomy.MARK}.*", "", cell(good, "workload").source)
    assert "marks no line" in problems(lambda nb: cell(nb, "workload").update(source=unmarked))
    assert "no LabPanel" in problems(lambda nb: cell(nb, "panel").update(source="pass"))
    assert "metadata.labkit.minutes" in problems(
        lambda nb: nb.metadata.labkit.update(minutes="ten")
    )
    assert "none of beginner" in problems(lambda nb: nb.metadata.labkit.update(level="easy"))
    assert "metadata.labkit.needs" in problems(
        lambda nb: nb.metadata.labkit.update(needs={"gpu": "the GPU arm"})
    )
    assert "metadata.labkit.title" in problems(
        lambda nb: nb.metadata.labkit.update(title="Something else")
    )


def test_the_form_of_an_exercise_is_held(good: nbformat.NotebookNode) -> None:
    place = good.cells.index(cell(good, "exercise"))

    def problems(offset: int, old: str, new: str) -> str:
        notebook = deepcopy(good)
        assert old in notebook.cells[place + offset].source
        notebook.cells[place + offset].source = notebook.cells[place + offset].source.replace(
            old, new
        )
        return "\n".join(anatomy.check_exercises(notebook))

    assert anatomy.check_exercises(good) == []
    for old, new in (
        ("## Exercise: ", "## Exercise "),
        ("## Exercise: ", "Before.\n\n## Exercise: "),
        ("medium", "middling"),
        ("About 15", "About fifteen"),
        ("*\n\n", "*\n"),
    ):
        assert "does not follow a text that begins" in problems(-1, old, new)
    assert "no stub" in problems(0, "NotImplementedError", "ValueError")
    assert "does not end in a call" in problems(0, "exercises.check_22_one_graph", "print")
    assert "no cell tagged 'solution'" in "".join(anatomy.check_exercises(without(good, place + 2)))
    assert "is not followed by a hint" in problems(1, "<details>", "")
    assert "is not followed by a hint" in problems(1, "</details>", "")


def without(notebook: nbformat.NotebookNode, position: int) -> nbformat.NotebookNode:
    shorter = deepcopy(notebook)
    del shorter.cells[position]
    return shorter


def test_clean_keeps_sources_counts_and_checked_outputs_only(good: nbformat.NotebookNode) -> None:
    dirty = deepcopy(good)
    for each in dirty.cells:
        each.metadata.update(scrolled=True)
        if each.cell_type == "code":
            each.execution_count = 99
            if not anatomy.is_checked(each):
                each.outputs = [nbformat.v4.new_output("stream", text="noise")]
    dirty.metadata.update(widgets={"state": {}}, vscode={"x": 1})
    tool.clean(dirty)
    assert dirty == good


def test_refresh_executes_and_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "NOTEBOOKS", tmp_path)
    path = tmp_path / "small.ipynb"
    slowly = "import time\nprint('half ', end='', flush=True)\ntime.sleep(0.5)\nprint(value)"
    checked = nbformat.v4.new_code_cell(slowly, metadata={"tags": [anatomy.CHECKED, "counters"]})
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell("value = 6 * 7\nvalue"), checked]
    )
    nbformat.write(notebook, path)

    tool.refresh(path)

    first, second = read_notebook(path).cells
    assert (first.execution_count, first.outputs) == (1, [])
    assert (second.execution_count, tool.text(second), second.id) == (2, "half 42\n", "counters")
    assert len(second.outputs) == 1
    stored = path.read_bytes()
    assert stored.endswith(b"}\n")
    assert stored.startswith(b'{\n "cells"')

    # prints nothing: there is nothing to compare with later
    checked.source = "value = None"
    nbformat.write(notebook, path)
    broken = path.read_bytes()
    with pytest.raises(ValueError, match="left as it was"):
        tool.refresh(path)
    assert path.read_bytes() == broken
    assert list(tmp_path.iterdir()) == [path]


def test_a_cell_that_students_do_not_get_needs_no_later_one(good: nbformat.NotebookNode) -> None:
    assert anatomy.check_order(good) == []
    later = nbformat.v4.new_code_cell("import later_on\n\ndef late():\n    return later_on")
    good.cells.append(later)
    for use in (
        "late()",
        "def g():\n    return [late for _ in range(2)]",
        "class A(late):\n    pass",
    ):
        changed = deepcopy(good)
        cell(changed, "solution").source += f"\n\n{use}\n"
        [problem] = anatomy.check_order(changed)
        assert problem.endswith("(solution) uses 'late', which a later cell binds")
        # Who binds it first may use it, and in a cell that students get it fails as it runs.
        cell(changed, "solution").source = f"late = object\n{use}"
        assert anatomy.check_order(changed) == []
        changed = deepcopy(good)
        cell(changed, "counters").source += f"\n\n{use}\n"
        assert anatomy.check_order(changed) == []


def with_checked(path: Path, source: str, stored: str) -> Path:
    """A notebook of one checked cell, and what is stored of it."""
    tagged = nbformat.v4.new_code_cell(
        source, metadata={"tags": [anatomy.CHECKED]}, execution_count=1
    )
    tagged.outputs = [nbformat.v4.new_output("stream", text=stored)]
    nbformat.write(nbformat.v4.new_notebook(cells=[tagged]), path)
    return path


def test_a_cell_that_prints_something_else_than_what_is_stored_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "NOTEBOOKS", tmp_path)
    count = "count = globals().get('count', 0) + 1\nprint(count)"
    surviving = with_checked(tmp_path / "stateful.ipynb", count, "1\n")
    with pytest.raises(ValueError, match=r"in the second round: '2\\n', stored is '1\\n'"):
        tool.run_twice(surviving)
    other = with_checked(tmp_path / "other.ipynb", "print(6 * 7)", "41\n")
    with pytest.raises(ValueError, match=r"in the first round: '42\\n', stored is '41\\n'"):
        tool.run_twice(other)


def test_what_the_function_of_a_widget_raises_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "NOTEBOOKS", tmp_path)
    source = "import ipywidgets\n\nipywidgets.interact(lambda x=1: 1 / (x - 1));"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    with pytest.raises(ValueError, match=r"^cell 0 .*in a widget: ZeroDivisionError"):
        tool.execute(notebook)
