"""Notebooks as files: the course's own and the submitted ones, and the exercises that stand in them."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from labkit.records.files import notebook_path

LARGEST = 64 * 2**20  # bytes of a submission: pictures in its outputs may make it large, but not this large


class CourseError(ValueError):
    """What is asked for cannot be done; the message says why."""


@dataclass(frozen=True)
class Exercise:
    """One exercise of a course notebook, as its ``exercise`` cell states it."""

    name: str  # of the check, without ``check_``
    call: str  # source of the call that checks it
    cell: str  # source of the cell: stub and check
    identity: str  # the cell's id
    number: int  # its position among the notebook's exercises


def course_notebooks() -> list[Path]:
    """The numbered notebooks of the course."""
    folder = notebook_path("x").parent
    if not (found := sorted(folder.glob("[0-9]*.ipynb"))):
        raise CourseError(f"no notebooks in {folder}: use labkit from a checkout of the course")
    return found


def read_notebook(path: Path) -> dict[str, Any]:
    """A notebook of format 4. CourseError, without the path, if the file holds none."""
    try:
        if (size := path.stat().st_size) > LARGEST:
            raise CourseError(f"has {size} bytes; a notebook has at most {LARGEST}")
        notebook = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CourseError(f"cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, CourseError):
            raise
        raise CourseError(f"is no notebook: {error}") from None
    try:
        for cell in notebook["cells"]:
            cell["source"] = "".join(cell["source"])
            _ = cell["cell_type"], [*cell.setdefault("metadata", {}).get("tags", ())]
        _ = notebook.setdefault("metadata", {}).get("labkit")
    except (LookupError, TypeError, AttributeError):
        raise CourseError(
            "is no notebook: cells, their type, source or metadata are missing or of another kind"
        ) from None
    return notebook


def code_cells(notebook: dict[str, Any], tag: str | None = None) -> list[dict[str, Any]]:
    """The code cells, or those with a tag."""
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return [cell for cell in cells if tag is None or tag in cell["metadata"].get("tags", ())]


def python(source: str) -> str:
    """Source of a cell as Python: IPython's lines, ``%magic``, ``!command`` and ``help?``, become ``pass``."""
    try:
        ast.parse(source)
    except SyntaxError:
        if source.lstrip().startswith("%%"):
            return ""
        return re.sub(r"^([ \t]*)(?:[%!].*|[\w.]+\?\??[ \t]*)$", r"\1pass", source, flags=re.MULTILINE)
    return source


def check_call(source: str) -> ast.Call | None:
    """The last call of ``exercises.check_...`` in a cell."""
    calls = [node for node in ast.walk(ast.parse(python(source))) if isinstance(node, ast.Call) and check_name(node)]
    return max(calls, key=lambda node: (node.lineno, node.col_offset), default=None)


def check_name(call: ast.Call) -> str | None:
    """``check_...`` if this calls one, as ``exercises.check_...`` or by its plain name."""
    name = str(getattr(call.func, "attr", None) or getattr(call.func, "id", ""))
    return name if name.startswith("check_") else None


@cache
def exercises(path: Path) -> tuple[Exercise, ...]:
    """The exercises of a course notebook. CourseError if one has no check."""
    found = []
    for number, cell in enumerate(code_cells(read_notebook(path), "exercise")):
        if (call := check_call(cell["source"])) is None:
            raise CourseError(f"{path.name}: the exercise in the cell {cell.get('id')!r} calls no exercises.check_...")
        name = (check_name(call) or "").removeprefix("check_")
        found.append(Exercise(name, ast.unparse(call), cell["source"], cell.get("id", ""), number))
    return tuple(found)


@cache
def _titles() -> dict[str, Path]:
    return {read_notebook(path)["metadata"].get("labkit", {}).get("title"): path for path in course_notebooks()}


def original(path: Path, notebook: dict[str, Any]) -> Path:
    """The course's notebook that a submission is a copy of, by its title in the metadata or else by its file name."""
    about = notebook["metadata"].get("labkit")
    if isinstance(about, dict) and isinstance(title := about.get("title"), str) and title in _titles():
        return _titles()[title]
    named = [each for each in course_notebooks() if each.stem in path.stem]
    if len(named) != 1:
        raise CourseError("belongs to no notebook of the course, by its title (metadata.labkit) or its file name")
    return named[0]
