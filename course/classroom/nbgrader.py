"""Copies of the notebooks in the form of nbgrader: the folder ``source`` of an nbgrader course.

Each exercise is followed by a locked cell of one point, which calls its check. nbgrader runs a
submission as it is and where it is: without the wall that `course check` has.
The form is nbgrader's metadata, version 3
(https://nbgrader.readthedocs.io/en/stable/contributor_guide/metadata.html).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from course.classroom.files import Exercise, course_notebooks, exercises, read_notebook
from course.notebook_files import notebook_text

SCHEMA = 3
# What nbgrader replaces by its own "YOUR CODE HERE": without marks it would replace all of a cell.
STUB = re.compile(r"^( *)(raise NotImplementedError\b.*)$", flags=re.MULTILINE)
MARKED = r"\1### BEGIN SOLUTION\n\1\2\n\1### END SOLUTION"


def nbgrader_copy(notebook: NotebookNode, asked: tuple[Exercise, ...]) -> NotebookNode:
    """A student's copy whose exercises nbgrader grades: one point where the check passes."""
    copy = deepcopy(notebook)
    cells: list[NotebookNode] = []
    left = list(asked)
    for cell in copy["cells"]:
        cells.append(cell)
        if "exercise" in cell["metadata"].get("tags", ()):
            exercise = left.pop(0)
            cell["metadata"]["nbgrader"] = _about(exercise.check, solution=True)
            cell["source"] = STUB.sub(MARKED, cell["source"])
            cells.append(_graded(exercise))
    copy["cells"] = cells
    return copy


def _graded(exercise: Exercise) -> NotebookNode:
    """The cell that a student cannot change; it fails where the check says "not yet"."""
    name = exercise.check.removeprefix("check_")
    source = f"from course import exercises\n\nassert {exercise.call}"
    about = _about(f"point_{name}", points=1)
    return new_code_cell(source, id=f"point-{name}"[:64], metadata={"nbgrader": about})


def _about(grade_id: str, *, solution: bool = False, points: int = 0) -> dict[str, Any]:
    about = {
        "schema_version": SCHEMA,
        "grade_id": grade_id,
        "grade": points > 0,
        "locked": not solution,
        "solution": solution,
        "task": False,
    }
    return about | {"points": points} if points else about


def files(student_copy: Callable[[NotebookNode], NotebookNode]) -> dict[str, str]:
    """Path in the nbgrader course -> text: an assignment for each notebook with an exercise.

    ``student_copy`` makes of a notebook what students get.
    """
    found = {}
    for path in course_notebooks():
        if asked := exercises(path):
            copy = nbgrader_copy(student_copy(read_notebook(path)), asked)
            name = _assignment(path)
            found[f"source/{name}/{name}.ipynb"] = notebook_text(copy)
    return found


def _assignment(path: Path) -> str:
    """A name that nbgrader takes: no plus sign, and one for each notebook."""
    return f"{path.parent.name}-{path.stem}" if path.parent.name == "deeper" else path.stem
