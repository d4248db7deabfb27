"""Each notebook runs from top to bottom, also twice, prints the counters it stores, and has the
known anatomy.
"""

import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import nbformat
import pytest

from course import notebooks as tool
from course.notebook_files import long_path, place, read_notebook, tags

PATHS = tool.notebooks()
LONG = "01_timing_and_vectorization"
each_notebook = pytest.mark.parametrize("path", PATHS, ids=place)


def run(*arguments: str) -> None:
    """Run a Python command from the project's root with kernels that know nothing of the user's
    own settings.
    """
    with tool.private_jupyter() as environment:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tool.ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=900,
        )
    print(done.stdout)
    assert done.returncode == 0, (
        f"{' '.join(arguments)}\n{done.stdout[-8000:]}\n{done.stderr[-8000:]}"
    )


@each_notebook
def test_shape(path: Path) -> None:
    assert tool.check(read_notebook(path), path.stem) == []


@pytest.mark.notebook
@each_notebook
def test_runs_and_prints_the_stored_counters(path: Path) -> None:
    # A process of its own: nbval's options would apply to all tests, and ours to it.
    run(
        *("-m", "pytest", "-o", "addopts=", "-p", "no:cacheprovider", "-q", "--durations=3"),
        *("--nbval-lax", "--nbval-current-env", f"--nbval-cell-timeout={tool.CELL_TIMEOUT}"),
        str(path.relative_to(tool.ROOT)),
    )


@pytest.mark.notebook
@each_notebook
def test_runs_twice_without_restart(path: Path) -> None:
    run("course/notebooks.py", "twice", place(path))


# ------------------------------------------------------------------ the tool itself, on small files


@pytest.fixture
def good() -> nbformat.NotebookNode:
    """A long notebook; `test_front.py` holds the form of the front ones."""
    return read_notebook(long_path(LONG))


def cell(notebook: nbformat.NotebookNode, tag: str) -> nbformat.NotebookNode:
    return next(cell for cell in notebook.cells if tag in tags(cell))


def test_all_notebooks_are_found() -> None:
    assert tool.TEMPLATE_FILE in PATHS and place(tool.TEMPLATE_FILE) == "_template"
    assert tool.notebooks(["_template", "_template.ipynb"]) == [tool.TEMPLATE_FILE] * 2
    with pytest.raises(FileNotFoundError, match=r"'no_such'.*_template"):
        tool.notebooks(["no_such"])


@pytest.mark.parametrize("tag", tool.TAGS)
def test_a_missing_part_is_named(good: nbformat.NotebookNode, tag: str) -> None:
    good.cells = [each for each in good.cells if tag not in tags(each)]
    assert any(f"no cell tagged {tag!r}" in problem for problem in tool.check(good, LONG))


def test_an_exercise_in_the_front_notebook_is_enough(good: nbformat.NotebookNode) -> None:
    good.cells = [each for each in good.cells if not {"exercise", "solution"} & set(tags(each))]
    behind_a_front_one = tool.check(good, "06_mixed_precision")
    assert not any("no cell tagged" in problem for problem in behind_a_front_one)
    assert sum("no cell tagged" in problem for problem in tool.check(good, LONG)) == 2


def test_a_copy_of_the_template_is_told_from_a_notebook() -> None:
    good = read_notebook(tool.TEMPLATE_FILE)
    text = "\n".join(tool.check(good, "23_x"))
    assert "has the template's title, 'Template: fewer, larger calls'" in text
    assert "(card) still tells to copy the notebook" in text
    for tag in ("panel", "more-2"):
        assert f"({tag}) names the template: write '23_x' for '_template'" in text
    good.metadata.labkit.title = "Mine"
    for each in good.cells:
        each.source = each.source.replace("_template", "23_x").replace("Template: fewer", "Mine")
    cell(good, "card").source = "# Mine\n"
    assert tool.check_copied(good, "23_x") == []


def test_each_kind_of_damage_is_named(good: nbformat.NotebookNode) -> None:
    def problems(change: object) -> str:
        notebook = deepcopy(good)
        change(notebook)
        return "\n".join(tool.check(notebook, LONG))

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
    long_step = "def make_workload():\n    def step():" + "\n        pass" * 15 + f"  {tool.MARK}"
    assert "step() of 16 lines" in problems(
        lambda nb: cell(nb, "workload").update(source=long_step)
    )
    unmarked = cell(good, "workload").source.replace(tool.MARK, "")
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
        return "\n".join(tool.check_exercises(notebook))

    assert tool.check_exercises(good) == []
    for old, new in (
        ("## Exercise: ", "## Exercise "),
        ("## Exercise: ", "Before.\n\n## Exercise: "),
        ("easy", "simple"),
        ("About 10", "About ten"),
        ("*\n\n", "*\n"),
    ):
        assert "does not follow a text that begins" in problems(-1, old, new)
    assert "no stub" in problems(0, "NotImplementedError", "ValueError")
    assert "does not end in a call" in problems(0, "exercises.check_01_blocked_product", "print")
    assert "no cell tagged 'solution'" in "".join(tool.check_exercises(without(good, place + 2)))
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
            if not tool.is_checked(each):
                each.outputs = [nbformat.v4.new_output("stream", text="noise")]
    dirty.metadata.update(widgets={"state": {}}, vscode={"x": 1})
    tool.clean(dirty)
    assert dirty == good


def test_refresh_executes_and_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "NOTEBOOKS", tmp_path)
    path = tmp_path / "small.ipynb"
    slowly = "import time\nprint('half ', end='', flush=True)\ntime.sleep(0.5)\nprint(value)"
    checked = nbformat.v4.new_code_cell(slowly, metadata={"tags": [tool.CHECKED, "counters"]})
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


def test_state_that_survives_a_second_round_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "NOTEBOOKS", tmp_path)
    path = tmp_path / "stateful.ipynb"
    source = "count = globals().get('count', 0) + 1\nprint(count)"
    nbformat.write(
        nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_code_cell(source, metadata={"tags": [tool.CHECKED]})]
        ),
        path,
    )
    with pytest.raises(ValueError, match="second round"):
        tool.run_twice(path)
