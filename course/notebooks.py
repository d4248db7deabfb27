"""Keep the notebooks in one shape: execute, store what is checked, strip the rest.

    uv run python -m course.notebooks refresh [NAME ...]
        execute in the test size, store checked outputs, clean up
    uv run python -m course.notebooks check [NAME ...]
        say what is wrong with the file; nothing is executed
    uv run python -m course.notebooks twice [NAME ...]
        execute the student's copy, then all cells, in one kernel; both print what is stored
    uv run python -m course.notebooks index
        bring up to date what the README and the teacher's guide say of each notebook

NAME is a notebook's file name in notebooks/, with or without `.ipynb`, such as
deeper/06_mixed_precision; none means all of them.
`course.anatomy` says what is checked, `course/authoring/AUTHORING.md` explains the tags.

Facts about nbval, which compares stored outputs, explain the rules:

- A checked cell without a stored output is skipped silently: each must have one.
- A cell without an execution count counts as never run, and with an output it is an error: all code
  cells keep their counts.
- A live display updates at will and cannot be compared: checked cells print plain text to stdout.
"""

from __future__ import annotations

import argparse
import getpass
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbclient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbformat import NotebookNode

from course import index
from course.anatomy import NAMES, TEMPLATE, TEMPLATE_FILE, check, is_checked, label
from course.classroom.build import student_copy
from course.headless import errors_of, without_widgets
from course.notebook_files import (
    NOTEBOOKS,
    code_cells,
    course_notebooks,
    notebook_path,
    place,
    read_notebook,
    tags,
    write_notebook,
)

# `jupyter` holds source_hidden: the folded cells
CELL_METADATA = ("tags", "jupyter")
# Seconds that a cell may take, and that may pass from its reply to its end on the display channel.
CELL_TIMEOUT = 120
DISPLAY_TIMEOUT = 20


# ------------------------------------------------------------------------------ reading and writing


def notebooks(names: list[str] | None = None) -> list[Path]:
    """The notebooks called `names`, or all of them.

    Raises FileNotFoundError for a name that is none.
    """
    if not names:
        return [*course_notebooks(), TEMPLATE_FILE]
    asked = [name.removesuffix(".ipynb") for name in names]
    paths = [TEMPLATE_FILE if name == TEMPLATE else notebook_path(name) for name in asked]
    for path in paths:
        if not path.is_file():
            known = ", ".join(map(place, notebooks()))
            raise FileNotFoundError(f"no notebook {place(path)!r}; there are: {known}")
    return paths


# ---------------------------------------------------------------------------------------- executing


def user_name() -> str:
    """The user's name as torch has it: the number where it has none, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid_{os.getuid()}"


@contextmanager
def private_jupyter() -> Iterator[dict[str, str]]:
    """An environment for kernels in the test size that neither reads nor writes the user's own
    Jupyter settings. What they leave behind in temporary files goes with it.
    """
    compiled = os.path.join(tempfile.gettempdir(), f"torchinductor_{user_name()}")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith("JUPYTER")
        }
        for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
            environment[name] = str(Path(folder) / name.lower())
        environment["TMPDIR"] = folder
        # torch's own choice, with what was compiled before
        environment.setdefault("TORCHINDUCTOR_CACHE_DIR", compiled)
        yield environment | {"LABKIT_SIZE": "test"}


@contextmanager
def as_own(environment: dict[str, str]) -> Iterator[None]:
    """This process has that environment: nbclient finds kernels by it, and they inherit it."""
    former = dict(os.environ)
    os.environ.clear()
    os.environ.update(environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(former)


def execute(*rounds: NotebookNode) -> list[list[str]]:
    """Run all cells of each notebook in order, in place, in one kernel.

    Return what the checked cells of each printed.

    Raises CellExecutionError, CellTimeoutError or DeadKernelError; ValueError for what the function
    of a widget raised.
    """
    client = nbclient.NotebookClient(
        rounds[0],
        timeout=CELL_TIMEOUT,
        kernel_name="python3",
        resources={"metadata": {"path": str(NOTEBOOKS)}},
        # one output however slowly it came
        coalesce_streams=True,
        # taking torch apart takes seconds, and shows nothing
        shutdown_kernel="immediate",
        iopub_timeout=DISPLAY_TIMEOUT,
        raise_on_iopub_timeout=True,
    )
    printed = []
    with without_widgets(client).setup_kernel():
        for notebook in rounds:
            client.nb = notebook
            for index, cell in enumerate(notebook.cells):
                client.execute_cell(cell, index)
                if errors := errors_of(cell):
                    raise ValueError(f"{label(notebook, cell)}, in a widget: {errors[0]}")
            printed.append(checked(notebook))
    return printed


def checked(notebook: NotebookNode) -> list[str]:
    """What the checked cells of `notebook` have as their outputs, as text."""
    return [text(cell) for cell in notebook.cells if is_checked(cell)]


def text(cell: NotebookNode) -> str:
    """What `cell` printed and returned, as text."""
    return "".join(
        output.get("text", "") or output.get("data", {}).get("text/plain", "")
        for output in cell.outputs
    )


def run_twice(path: Path) -> float:
    """Execute the notebook at `path` twice without a restart; return the seconds.

    ValueError where a round prints something else than what is stored.

    The first round is the student's copy, without solutions: no other cell may need them.
    """
    begin = time.monotonic()
    notebook = read_notebook(path)
    stored = checked(notebook)
    rounds = execute(student_copy(notebook), notebook)
    for which, printed in zip(("first", "second"), rounds, strict=True):
        if printed != stored:
            raise ValueError(
                f"a checked cell prints something else in the {which} round: "
                + "; ".join(differences(stored, printed))
            )
    return time.monotonic() - begin


def doubled(path: Path) -> NotebookNode:
    """The student's copy and then the whole as one notebook, with all that is stored.

    What runs it, as nbval does, runs both without a restart.
    """
    whole = read_notebook(path)
    twice = student_copy(whole)
    stored = {cell.id: cell for cell in code_cells(whole)}
    for cell in code_cells(twice):
        cell.outputs = stored[cell.id].outputs
        cell.execution_count = stored[cell.id].execution_count
    for cell in whole.cells:
        cell.id += "-again"
    twice.cells += whole.cells
    return twice


def differences(stored: list[str], printed: list[str]) -> list[str]:
    """What checked cells print instead of what is stored; all of it where their number differs."""
    if len(stored) != len(printed):
        return [f"{printed}, stored is {stored}"]
    pairs = zip(stored, printed, strict=True)
    return [f"{new!r}, stored is {old!r}" for old, new in pairs if old != new]


# ----------------------------------------------------------------------------------------- cleaning


def clean(notebook: NotebookNode) -> None:
    """Leave in `notebook` what belongs into git: sources, tags, execution counts, and the
    outputs that are checked.

    Counts stay because nbval takes a cell without one for a cell that never ran, and compares
    nothing.
    """
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    count = 0
    taken: set[str] = set()
    for position, cell in enumerate(notebook.cells):
        cell.metadata = NotebookNode(
            {key: cell.metadata[key] for key in CELL_METADATA if key in cell.metadata}
        )
        cell.pop("attachments", None)
        if cell.cell_type == "code":
            count += 1
            cell.execution_count = count
            cell.outputs = (
                [plain(output, count) for output in cell.outputs] if is_checked(cell) else []
            )
            if {"solution", "claims"} & set(tags(cell)):
                cell.metadata.jupyter = {"source_hidden": True}
        part = next((tag for tag in NAMES if tag in tags(cell)), None)
        cell.id = unused(part or cell.get("id") or f"cell-{position:02d}", taken)
    notebook.metadata = NotebookNode(
        {
            "kernelspec": {
                "display_name": "Python 3 (ipykernel)",
                "language": "python",
                "name": "python3",
            },
            "labkit": notebook.metadata.get("labkit", {}),
            "language_info": {"name": "python"},
        }
    )


def plain(output: NotebookNode, count: int) -> NotebookNode:
    """`output` with the cell's execution count and without metadata."""
    if "execution_count" in output:
        output.execution_count = count
    if "metadata" in output:
        output.metadata = NotebookNode()
    return output


def unused(name: str, taken: set[str]) -> str:
    """`name`, numbered when an earlier cell has it, and noted in `taken`."""
    candidate, number = name, 2
    while candidate in taken:
        candidate, number = f"{name}-{number}", number + 1
    taken.add(candidate)
    return candidate


def refresh(path: Path) -> float:
    """Execute and clean the notebook at `path`; return the seconds it ran.

    The file changes only when all went well.
    """
    notebook = read_notebook(path)
    begin = time.monotonic()
    execute(notebook)
    seconds = time.monotonic() - begin
    clean(notebook)
    if problems := [
        problem for problem in check(notebook, path.stem) if "stored output" in problem
    ]:
        raise ValueError(f"{path.name} is left as it was: " + "; ".join(problems))
    write_notebook(notebook, path)
    return seconds


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("action", choices=["refresh", "check", "twice", "index"])
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args(arguments)
    if options.action == "index":
        index.write()
        return 0
    act = {"refresh": refresh, "twice": run_twice}.get(options.action)
    failed = False
    with private_jupyter() as environment, as_own(environment):
        try:
            paths = notebooks(options.names)
        except FileNotFoundError as error:
            print(error, file=sys.stderr)
            return 2
        for path in paths:
            try:
                if act:
                    print(f"{place(path)}: {act(path):.1f} s", flush=True)
                problems = (
                    check(read_notebook(path), path.stem) if options.action != "twice" else []
                )
            except (
                CellExecutionError,
                DeadKernelError,
                TimeoutError,
                SyntaxError,
                ValueError,
            ) as error:
                # tracebacks come in colour
                problems = [re.sub(r"\x1b\[[\d;]*m", "", str(error))]
            for problem in problems:
                print(f"{place(path)}: {problem}", file=sys.stderr)
            failed = failed or bool(problems)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
