"""Copies of the course for students, without solutions, and for instructors."""

from __future__ import annotations

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from course.classroom.files import CourseError, course_notebooks, read_notebook
from course.notebook_files import NOTEBOOKS, ROOT, notebook_text, place
from labkit.text import write_whole


def student_copy(notebook: NotebookNode) -> NotebookNode:
    """The notebook without solutions, and without outputs, which would answer its questions."""
    copy = deepcopy(notebook)
    copy["cells"] = [
        cell for cell in copy["cells"] if "solution" not in cell["metadata"].get("tags", ())
    ]
    for cell in copy["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    return copy


def build(
    student: Path | None = None, instructor: Path | None = None, *, force: bool = False
) -> list[Path]:
    """Write the copies into ``OUT/notebooks``, beside ``OUT/RESULTS.md``.

    Returns what was written.

    Nothing is written when a file there differs, unless ``force``. CourseError for that, and for
    folders that cannot be meant: the course's own, or one for both.
    """
    outs = {
        out.resolve(): kind
        for out, kind in ((instructor, False), (student, True))
        if out is not None
    }
    if student is not None and instructor is not None and len(outs) < 2:
        raise CourseError(f"{student}: students and instructors need a folder each")
    jobs: dict[Path, str] = {}
    for out, kind in outs.items():
        if out in (ROOT, NOTEBOOKS):
            raise CourseError(f"{out} is the course itself; choose another folder")
        jobs |= {out / name: text for name, text in _files(kind).items()}
    jobs = {
        path: text
        for path, text in jobs.items()
        if not (path.exists() and path.read_bytes() == text.encode())
    }
    if changed := [str(path) for path in jobs if path.exists() and not force]:
        shown = "\n  ".join(changed[:5] + ["..."] * (len(changed) > 5))
        raise CourseError(
            f"these files differ; nothing was written, and --force would replace them:\n  {shown}"
        )
    for path, text in jobs.items():
        write_whole(path, text)
    return list(jobs)


def _files(student: bool) -> dict[str, str]:
    """What a copy of the course holds: path within it -> text."""
    files = {}
    for path in course_notebooks():
        if student:
            text = notebook_text(student_copy(read_notebook(path)))
        else:
            text = path.read_text(encoding="utf-8")
        files[f"notebooks/{place(path)}.ipynb"] = text
    for picture in (NOTEBOOKS / "pictures").glob("*.svg"):
        files[f"notebooks/pictures/{picture.name}"] = picture.read_text(encoding="utf-8")
    # The notebooks link to it. What it links to and is not copied becomes plain text.
    results = (ROOT / "RESULTS.md").read_text(encoding="utf-8")
    link = re.compile(r"\[([^]\n]*)\]\((?!https?:|#|mailto:)([^)\s#]+)[^)\s]*\)")
    return files | {
        "RESULTS.md": link.sub(lambda found: found[0] if found[2] in files else found[1], results)
    }


def main(args: Any) -> int:
    """``python -m course build``."""
    if args.student is None and args.instructor is None:
        raise CourseError("say where to: --student OUT, --instructor OUT, or both")
    written = build(args.student, args.instructor, force=args.force)
    print(f"{len(written)} files written" if written else "all copies were there already")
    return 0
