"""The course's notebooks as files: where they lie, and the one reader and writer of them.

A notebook is read as nbformat's ``NotebookNode``, a dict whose keys are attributes, too. Nothing is
upgraded or validated, so that reading is cheap and what is written back is what was there.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import nbformat
from nbformat import NotebookNode
from nbformat.v4.rwbase import rejoin_lines

from course.written import write_whole

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ROOT / "notebooks"
# The long notebooks, each behind a front notebook.
DEEPER = "deeper"
# Bytes. Pictures in its outputs may make a notebook large, but not this large.
LARGEST = 64 * 2**20
# IPython's magics whose cell is Python that runs as it would without them
PYTHON_CELLS = ("capture", "prun", "time")


class NotebookError(ValueError):
    """A file that holds no notebook of format 4.

    ``reason`` is the message without the file's name.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path.name} {reason}")
        self.reason = reason


class NoFile(OSError):
    """What is to be read is a link, a pipe or a device."""


def notebook_path(name: str) -> Path:
    """Where a notebook lies: in front, or else deeper; with ``"deeper/..."`` there.

    It need not exist.
    """
    front = NOTEBOOKS / f"{name}.ipynb"
    deeper = NOTEBOOKS / DEEPER / f"{name}.ipynb"
    if deeper.exists() and not front.exists():
        return deeper
    return front


def long_path(name: str) -> Path:
    """Where the notebook lies that the records and claims of this name belong to: deeper, or else
    in front.
    """
    deeper = NOTEBOOKS / DEEPER / f"{name}.ipynb"
    if deeper.exists():
        return deeper
    return NOTEBOOKS / f"{name}.ipynb"


def course_notebooks(folder: Path | None = None) -> list[Path]:
    """The numbered notebooks of the course, by their numbers, front and deeper;
    templates are none.
    """
    folder = folder or NOTEBOOKS
    found = [*folder.glob("[0-9]*.ipynb"), *folder.glob(f"{DEEPER}/[0-9]*.ipynb")]
    return sorted(found, key=lambda path: (path.name, path.parent != folder))


def first_notebooks() -> list[Path]:
    """The notebooks that a reader begins with, one a number: the front one where there is one."""
    return list({path.stem: path for path in reversed(course_notebooks())}.values())[::-1]


def long_notebooks() -> list[Path]:
    """The notebooks with records and claims, one a number: the deeper one where there is one."""
    return list({path.stem: path for path in course_notebooks()}.values())


def place(path: Path) -> str:
    """A notebook's path among the notebooks, without its ending: ``"deeper/06_..."``.

    Of one that lies elsewhere, as the template does, its name.
    """
    if not path.is_relative_to(NOTEBOOKS):
        return path.stem
    return path.relative_to(NOTEBOOKS).with_suffix("").as_posix()


@contextlib.contextmanager
def open_file(path: Path, *, links: bool = True) -> Iterator[BinaryIO]:
    """Open a file to read it. NoFile for a pipe or a device, and without ``links`` for a link."""
    if path.is_symlink() and not links:
        raise NoFile(f"{path.name} is a link: only files are read")
    no_links = 0 if links else getattr(os, "O_NOFOLLOW", 0)
    # to open a pipe would wait for its writer
    more = no_links | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | more)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise NoFile(f"{path.name} is a pipe or a device: only files are read")
        yield file


def read_notebook(path: Path, *, links: bool = True) -> NotebookNode:
    """The notebook in a file, each cell's source as one text; without ``links`` in no other file
    that it leads to.

    Raises NotebookError when the file cannot be read, is too large, or holds no notebook of format
    4.
    """
    try:
        with open_file(path, links=links) as file:
            data = file.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise NotebookError(path, f"is too large; a notebook has at most {LARGEST} bytes")
        notebook = nbformat.from_dict(json.loads(data.decode("utf-8")))
        rejoin_lines(notebook)
        notebook.setdefault("metadata", NotebookNode()).get("labkit")
        for cell in notebook.cells:
            cell.setdefault("metadata", NotebookNode())
            _check_cell(cell)
    except NotebookError:
        raise
    except NoFile as error:
        raise NotebookError(path, str(error).removeprefix(f"{path.name} ")) from None
    except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        reason = f"is no notebook that can be read: {type(error).__name__}: {error}"
        raise NotebookError(path, reason) from None
    return notebook


def _check_cell(cell: NotebookNode) -> None:
    if not (isinstance(cell.cell_type, str) and isinstance(cell.source, str)):
        raise TypeError("a cell's type and source must be texts")
    if not all(isinstance(tag, str) for tag in tags(cell)):
        raise TypeError("a cell's tags must be texts")


def notebook_text(notebook: NotebookNode) -> str:
    """The notebook as the text of its file: one space of indent, and a newline at the end."""
    return nbformat.writes(notebook, indent=1).rstrip("\n") + "\n"


def write_notebook(notebook: NotebookNode, path: Path) -> None:
    """Write a notebook whole or not at all. Raises nbformat's ValidationError for what is none."""
    nbformat.validate(notebook)
    write_whole(path, notebook_text(notebook))


def tags(cell: NotebookNode) -> list[str]:
    """The tags of a cell."""
    return list(cell["metadata"].get("tags", ()))


def code_cells(notebook: NotebookNode, tag: str | None = None) -> list[NotebookNode]:
    """The code cells, all of them or those with a tag."""
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    if tag is None:
        return code
    return [cell for cell in code if tag in tags(cell)]


def about(path: Path) -> NotebookNode:
    """What a course notebook says of itself: title, level, minutes, needs, its place on the map.

    Raises NotebookError when it says nothing (no ``metadata.labkit``).
    """
    said = read_notebook(path).metadata.get("labkit")
    if not isinstance(said, NotebookNode):
        raise NotebookError(path, "says nothing of itself: it has no metadata.labkit")
    return said


def is_stub(source: str) -> bool:
    """Whether a cell, as Python, still raises NotImplementedError where an answer belongs."""
    raised = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Raise))
    return any("NotImplementedError" in ast.unparse(node) for node in raised)


def python(source: str, *, written: bool = False) -> str:
    """Source of a cell as Python: IPython's lines, ``%magic``, ``!command`` and ``help?``,
    become ``pass``, and a cell in another language nothing.

    ``written``: also of a cell that ``%%writefile`` puts into a file of Python.
    """
    if magic := re.match(r"\s*%%(\w*).*", source):
        if magic[1] not in PYTHON_CELLS and not (written and magic[1] == "writefile"):
            return ""
        source = source[magic.end() :]
    try:
        ast.parse(source)
    except SyntaxError:
        return re.sub(
            r"^([ \t]*)(?:[%!].*|[\w.]+\?\??[ \t]*)$", r"\1pass", source, flags=re.MULTILINE
        )
    return source
