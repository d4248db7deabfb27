"""Copies of the notebooks that fetch the course themselves, for Colab, which opens one file alone:
``python -m course badges --write``.

Their first cell clones the fork that they belong to; elsewhere it does nothing. Pictures lead to
the fork by their whole address, since Colab has no folder beside the notebook.
"""

from __future__ import annotations

import re
from pathlib import Path

from nbformat import NotebookNode, v4

from course.notebook_files import ROOT, course_notebooks, notebook_text, place, read_notebook
from course.written import write_whole

FOLDER = "colab"
WHERE = "/content/speed-lab"
# What the course needs and Colab does not have. d2l would put back versions of 2022.
MISSING = ("anywidget", "filelock", "msgspec", "pooch", "pytorch-optimizer")
CELL = """\
# In Colab this fetches the course; elsewhere it does nothing.
import sys

if "google.colab" in sys.modules:
    !test -d {where} || git clone -q --depth 1 -b {branch} {address} {where}
    %pip install -q {missing}
    sys.path.insert(0, "{where}")
    from google.colab import output

    output.enable_custom_widget_manager()
"""
PICTURE = re.compile(r"(!\[[^\]]*\]\()(?:\.\./)?(pictures/[\w.-]+\))")


def copies(fork: str, branch: str) -> dict[str, str]:
    """The copies for a fork, ``"owner/name"``: path within the checkout -> text."""
    files = {}
    for path in course_notebooks():
        notebook = with_first_cell(read_notebook(path), f"https://github.com/{fork}.git", branch)
        raw = rf"\1https://raw.githubusercontent.com/{fork}/{branch}/notebooks/\2"
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                cell.source = PICTURE.sub(raw, cell.source)
        files[f"{FOLDER}/{place(path)}.ipynb"] = notebook_text(notebook)
    return files


def with_first_cell(notebook: NotebookNode, address: str, branch: str) -> NotebookNode:
    """The notebook, with a cell behind its title that fetches the course from an address."""
    source = CELL.format(where=WHERE, address=address, branch=branch, missing=" ".join(MISSING))
    cell = v4.new_code_cell(source.rstrip("\n"), metadata={"tags": ["colab"]}, id="colab")
    notebook.cells.insert(1, cell)
    return notebook


def write(fork: str, branch: str, root: Path = ROOT) -> list[Path]:
    """Write the copies into ``colab/`` of a checkout; where they lie."""
    written = []
    for name, text in copies(fork, branch).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
        written.append(path)
    return written
