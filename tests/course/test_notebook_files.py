"""The one reader and writer of notebooks."""

import json
from pathlib import Path

import nbformat
import pytest

from course import notebook_files
from course.notebook_files import (
    NOTEBOOKS,
    NotebookError,
    about,
    code_cells,
    course_notebooks,
    first_notebooks,
    long_notebooks,
    long_path,
    notebook_path,
    notebook_text,
    place,
    read_notebook,
    tags,
    write_notebook,
)


def put(path: Path, *cells: dict, **metadata: object) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"cells": cells, "metadata": metadata}), encoding="utf-8")
    return path


def code(*lines: str, tag: str = "setup") -> dict:
    return {"cell_type": "code", "source": list(lines), "metadata": {"tags": [tag]}}


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("**/*.ipynb")), ids=place)
def test_a_notebook_of_the_course_is_written_back_as_it_was(path: Path) -> None:
    notebook = read_notebook(path)
    assert notebook_text(notebook) == path.read_text(encoding="utf-8")
    assert notebook == nbformat.read(path, as_version=nbformat.NO_CONVERT)


def test_cells_are_found_by_their_tags(tmp_path: Path) -> None:
    text = {"cell_type": "markdown", "source": "text"}
    path = put(tmp_path / "01_a.ipynb", text, code("a\n", "b"), code("c", tag="claims"))
    notebook = read_notebook(path)
    assert [cell.source for cell in code_cells(notebook)] == ["a\nb", "c"]
    assert [cell.source for cell in code_cells(notebook, "claims")] == ["c"]
    assert [tags(cell) for cell in notebook.cells] == [[], ["setup"], ["claims"]]


def test_front_and_deeper_notebooks_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notebook_files, "NOTEBOOKS", tmp_path)
    for name in ("_template", "02_b", "01_a", "deeper/01_a_proof", "deeper/02_b"):
        put(tmp_path / f"{name}.ipynb")
    found = [place(path) for path in course_notebooks()]
    assert found == ["01_a", "deeper/01_a_proof", "02_b", "deeper/02_b"]
    first = [place(path) for path in first_notebooks()]
    assert first == ["01_a", "deeper/01_a_proof", "02_b"]
    long = [place(path) for path in long_notebooks()]
    assert long == ["01_a", "deeper/01_a_proof", "deeper/02_b"]
    assert notebook_path("01_a_proof") == tmp_path / "deeper" / "01_a_proof.ipynb"
    assert notebook_path("02_b") == tmp_path / "02_b.ipynb"
    assert notebook_path("deeper/02_b") == tmp_path / "deeper" / "02_b.ipynb"
    assert notebook_path("new") == tmp_path / "new.ipynb"
    assert long_path("01_a") == tmp_path / "01_a.ipynb"
    assert long_path("02_b") == tmp_path / "deeper" / "02_b.ipynb"


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"worksheets": []}',
        '{"cells": [1]}',
        '{"cells": [{"cell_type": "code"}]}',
        '{"cells": [{"cell_type": "code", "source": 1}]}',
        '{"cells": [{"cell_type": "code", "source": "", "metadata": {"tags": [1]}}]}',
        '{"cells": [], "metadata": 3}',
        "[" * 100_000,
    ],
)
def test_what_is_no_notebook_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.ipynb"
    path.write_text(content)
    with pytest.raises(NotebookError, match=r"x\.ipynb is no notebook that can be read") as caught:
        read_notebook(path)
    assert caught.value.reason.startswith("is no notebook")


def test_a_file_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook_files, "LARGEST", 10)
    with pytest.raises(NotebookError, match="a notebook has at most 10"):
        read_notebook(put(tmp_path / "x.ipynb"))


def test_a_notebook_that_says_nothing_of_itself_is_named(tmp_path: Path) -> None:
    said = put(tmp_path / "01_a.ipynb", labkit={"title": "A"})
    assert about(said).title == "A"
    with pytest.raises(NotebookError, match=r"02_b.ipynb says nothing of itself"):
        about(put(tmp_path / "02_b.ipynb"))


def test_a_bad_notebook_is_not_written(tmp_path: Path) -> None:
    path = put(tmp_path / "01_a.ipynb")
    before = path.read_text()
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1")])
    notebook.cells[0].cell_type = "poem"
    with pytest.raises(nbformat.ValidationError, match="poem"):
        write_notebook(notebook, path)
    assert path.read_text() == before
    notebook.cells[0].cell_type = "code"
    write_notebook(notebook, path)
    assert read_notebook(path) == notebook
