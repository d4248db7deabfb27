"""What the course's five source texts state, one by one, and the cells that teach it.

`statements.csv` has a row for each: its number (source and place in it), the statement in our
words, the cells, and a note where there is none or where one is needed. A cell is written
``04:c12`` (notebook and cell id) for the long notebook of that number and ``04f:recipe`` for its
front one. Which figure was measured, the claims say: theirs are the numbers (`Claim.statements`).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode

from course.notebook_files import NOTEBOOKS, course_notebooks, read_notebook

FILE = Path(__file__).with_name("statements.csv")
COLUMNS = ["number", "statement", "cells", "note"]
SOURCES = {
    "000": "L. Kuhn, 17 ways to speed up PyTorch training (2021)",
    "001": "MegEngine, sublinear memory optimisation",
    "002": "The 17 ways in a second rendering",
    "003": "FP16 and automatic mixed precision in PyTorch",
    "004": "Dive into Deep Learning 12.5, minibatch SGD",
}
CELL = re.compile(r"(\d\d)(f?):([\w-]+)")


@dataclass(frozen=True)
class Cell:
    """A cell that teaches: its notebook, the heading that it stands under, and the line's text."""

    notebook: Path
    heading: str

    @property
    def label(self) -> str:
        """Its notebook's number and its heading: ``04, The technique``."""
        return f"{self.notebook.name[:2]}, {self.heading}"


@dataclass(frozen=True)
class Statement:
    """One statement of a source: ``cells`` as written in the table."""

    number: str
    text: str
    cells: tuple[str, ...]
    note: str

    @property
    def source(self) -> str:
        """The number of its source."""
        return self.number.partition(".")[0]


def statements(file: Path = FILE) -> list[Statement]:
    """All statements. ValueError names the row that is not as the table wants it."""
    with file.open(encoding="utf-8", newline="") as lines:
        rows = csv.DictReader(lines)
        if rows.fieldnames != COLUMNS:
            raise ValueError(f"{file.name} has the columns {rows.fieldnames}; use {COLUMNS}")
        return [_statement(row) for row in rows]


def _statement(row: dict[str, str]) -> Statement:
    number = row["number"]
    if not re.fullmatch(r"\d{3}\.\d+", number) or number[:3] not in SOURCES:
        raise ValueError(f"number={number!r}: use a source's, such as 003.12")
    cells = tuple(row["cells"].split())
    for cell in cells:
        if not CELL.fullmatch(cell):
            raise ValueError(f"{number}: {cell!r}: use 04:cell-id, or 04f:cell-id")
    return Statement(number, row["statement"], cells, row["note"])


class Places:
    """Where cells are, by what the table writes: `find` one."""

    def __init__(self) -> None:
        self._cells = dict(_every_cell())

    def find(self, cell: str) -> Cell:
        """KeyError where the notebook has no such cell."""
        if cell not in self._cells:
            raise KeyError(f"{cell}: no notebook has this cell")
        return self._cells[cell]


def _every_cell() -> Iterator[tuple[str, Cell]]:
    paths = course_notebooks()
    # A front notebook that lies beside a longer one of the same number.
    double = {path.name for path in paths if path.parent != NOTEBOOKS}
    for path in paths:
        front = "f" if path.parent == NOTEBOOKS and path.name in double else ""
        for cell, heading in _headings(read_notebook(path)):
            yield f"{path.name[:2]}{front}:{cell['id']}", Cell(path, heading)


def _headings(notebook: NotebookNode) -> Iterator[tuple[NotebookNode, str]]:
    """Each cell with the heading that it stands under."""
    heading = ""
    for cell in notebook.cells:
        found = re.search(r"^#+ (.+)$", cell.source, flags=re.MULTILINE)
        if cell.cell_type == "markdown" and found:
            heading = found[1].strip()
        yield cell, heading
