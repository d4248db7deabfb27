"""Notebooks as files: the course's own and the submitted ones, and the exercises that stand in
them.
"""

from __future__ import annotations

import ast
import re
import shlex
from functools import cache
from pathlib import Path
from typing import NamedTuple

from nbformat import NotebookNode

from course import notebook_files
from course.notebook_files import NOTEBOOKS, NotebookError, code_cells, is_stub, python


class CourseError(ValueError):
    """What is asked for cannot be done; the message says why."""


class ForeignNotebook(CourseError):
    """A notebook that is no copy of one of the course."""


class Exercise(NamedTuple):
    """One exercise of a course notebook, as its ``exercise`` cell states it."""

    # name of the function that checks it
    check: str
    # source of the call
    call: str
    # source of the cell
    stub: str
    # of the cell
    id: str
    # its position among the notebook's exercises
    number: int


def course_notebooks() -> list[Path]:
    """The numbered notebooks of the course."""
    found = notebook_files.course_notebooks()
    if not found:
        raise CourseError(f"no notebooks in {NOTEBOOKS}: use labkit from a checkout of the course")
    return found


def read_notebook(path: Path, *, links: bool = True) -> NotebookNode:
    """A submission or a notebook of the course; without ``links`` no other file that it leads to.

    CourseError, without the path, if the file holds none.
    """
    try:
        return notebook_files.read_notebook(path, links=links)
    except NotebookError as error:
        raise CourseError(error.reason) from None


def escaped(text: str, *, also: str = "") -> str:
    """One line that prints: other characters, and those of ``also``, become Python's escapes."""
    return "".join(
        each if each.isprintable() and each not in also else each.encode("unicode_escape").decode()
        for each in text
    )


def name_of(path: Path) -> str:
    """A path as one line. Two paths are two names: a backslash is escaped, too."""
    return escaped(str(path), also="\\")


def shown(name: str) -> str:
    """A name as `ls` prints it: in quotes where its blanks or signs could be taken for others'."""
    return shlex.quote(name)


def in_a_table(value: object) -> object:
    """A value for a cell: a spreadsheet takes a text that begins like this for a formula."""
    return f"'{value}" if str(value).startswith(tuple("=+-@")) else value


def check_name(node: ast.AST) -> str:
    """``check_...`` if this is a call of one, as ``exercises.check_...`` or by its plain name.

    Else nothing.
    """
    function = node.func if isinstance(node, ast.Call) else None
    name = str(getattr(function, "attr", None) or getattr(function, "id", ""))
    return name if name.startswith("check_") else ""


@cache
def exercises(path: Path) -> tuple[Exercise, ...]:
    """The exercises of a course notebook: the last call of a check in each cell.

    CourseError if one has none, or is no stub any more.
    """
    found = []
    for number, cell in enumerate(code_cells(read_notebook(path), "exercise")):
        source = python(cell["source"])
        if not is_stub(source):
            raise CourseError(
                f"{path}: the exercise {number + 1} has been answered here, in the course's own "
                f"notebook. `git restore {path.name}` there brings its stub back; to keep the "
                "answer, copy the file elsewhere first"
            )
        calls = [
            node
            for statement in ast.parse(source).body
            for node in ast.walk(statement)
            if check_name(node)
        ]
        if not calls:
            raise CourseError(
                f"{path.name}: the exercise {number + 1} calls no exercises.check_..."
            )
        found.append(
            Exercise(
                check_name(calls[-1]), ast.unparse(calls[-1]), source, cell.get("id", ""), number
            )
        )
    return tuple(found)


def original(path: Path, notebook: NotebookNode) -> Path:
    """The course's notebook that a submission is a copy of: by its title in the metadata, else by
    its file name, else by the checks that it calls; of several the one with most of its cells.
    """
    about = notebook["metadata"].get("labkit")
    title = about.get("title") if isinstance(about, dict) else None
    course = course_notebooks()
    found = [each for each in course if _title(each) == title]
    found = found or [each for each in course if each.stem in path.stem]
    if not found:
        text = "\n".join(each["source"] for each in code_cells(notebook))
        called = set(re.findall(r"\bcheck_\w+", text))
        found = [each for each in course if called & {one.check for one in exercises(each)}]
    if not found:
        raise ForeignNotebook(
            "belongs to no notebook of the course, by its title (metadata.labkit), its file name "
            "or a check that it calls"
        )
    own = {each["source"].strip() for each in notebook["cells"]}
    return max(found, key=lambda each: len(own & _sources(each)))


@cache
def _sources(path: Path) -> frozenset[str]:
    return frozenset(each["source"].strip() for each in read_notebook(path)["cells"])


@cache
def _title(path: Path) -> str:
    return str(read_notebook(path)["metadata"]["labkit"]["title"])
