"""Copies of the course for students, without solutions, and for instructors."""

from __future__ import annotations

import re
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from course.classroom.files import CourseError, course_notebooks, exercises, read_notebook
from course.classroom.nbgrader import files as nbgrader_files
from course.notebook_files import NOTEBOOKS, ROOT, notebook_text, place
from course.written import write_whole

# What AI helpers are asked for in a student's copy.
HELPERS = Path(__file__).with_name("AGENTS.md")
# cells that hold an answer: of an exercise, or of a guess
ANSWERS = {"solution", "claims", "reference"}
# the text that introduces recorded figures begins at a heading, or is all of its cell
_INTRODUCTION = re.compile(r"(?:\A|^#+ )(?:(?!^#+ ).)*\Z", flags=re.MULTILINE | re.DOTALL)
_RECORDED = re.compile(r",\s*recorded=records\.reference\([^()]*\)")
_REFERENCE = re.compile(r"records\.reference\((\"\w+\")\)")
_PRINTED = re.compile(r"print\(records\.reference\([^()]*\)\)")
# what a hint says of the cell behind it, which a student's copy does not hold
_BEHIND = re.compile(r"\n*^The next cell, folded, is a solution\..*$", flags=re.MULTILINE)
_RESULTS = re.compile(r"\[RESULTS\.md\]\([^)]*\)")


def student_copy(notebook: NotebookNode) -> NotebookNode:
    """The notebook without solutions, recorded figures, claims and outputs: with nothing that
    answers its questions.
    """
    copy = deepcopy(notebook)
    cells: list[NotebookNode] = []
    for cell in copy["cells"]:
        tags = set(cell["metadata"].get("tags", ()))
        code = cell["cell_type"] == "code"
        if tags & {"claims", "reference"} and cells and cells[-1]["cell_type"] == "markdown":
            kept = _INTRODUCTION.sub("", cells[-1]["source"]).rstrip()
            cells[-1]["source"] = kept
            cells = cells if kept else cells[:-1]
        # the code at the end of a front notebook draws recorded gains
        if tags & ANSWERS or (code and "more" in tags):
            continue
        if code:
            cell["outputs"], cell["execution_count"] = [], None
            source = _RECORDED.sub("", cell["source"])
            source = _PRINTED.sub('print("your teacher has a recorded run")', source)
            # Without a record nothing stands beside the student's own.
            cell["source"] = _REFERENCE.sub(r"records.Recorded(\1, ())", source)
        else:
            source = _RESULTS.sub("your teacher has them", cell["source"])
            cell["source"] = _BEHIND.sub("", source)
        cells.append(cell)
    copy["cells"] = cells
    return copy


def build(
    student: Path | None = None,
    instructor: Path | None = None,
    nbgrader: Path | None = None,
    *,
    force: bool = False,
) -> list[Path]:
    """Write the copies into ``OUT/notebooks``, for instructors beside ``OUT/RESULTS.md``, for
    students beside ``OUT/AGENTS.md``; for nbgrader into ``OUT/source``.

    Returns what was written.

    Nothing is written when a file there differs, unless ``force``. CourseError for that, for
    folders that cannot be meant: the course's own, or one for two kinds, and for an exercise that
    was answered in the course's own notebook: students would get the answer.
    """
    kinds = (
        (instructor, partial(_files, student=False)),
        (student, partial(_files, student=True)),
        (nbgrader, partial(nbgrader_files, student_copy)),
    )
    wanted = [(out.resolve(), files) for out, files in kinds if out is not None]
    jobs: dict[Path, str] = {}
    for out, files in wanted:
        if [each for each, _ in wanted].count(out) > 1:
            raise CourseError(f"{out}: students, instructors and nbgrader need a folder each")
        if out in (ROOT, NOTEBOOKS):
            raise CourseError(f"{out} is the course itself; choose another folder")
        jobs |= {out / name: text for name, text in files().items()}
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
            exercises(path)
            text = notebook_text(student_copy(read_notebook(path)))
        else:
            text = path.read_text(encoding="utf-8")
        files[f"notebooks/{place(path)}.ipynb"] = text
    for picture in (NOTEBOOKS / "pictures").glob("*.svg"):
        files[f"notebooks/pictures/{picture.name}"] = picture.read_text(encoding="utf-8")
    if student:
        return files | {"AGENTS.md": HELPERS.read_text(encoding="utf-8")}
    # The notebooks link to it. What it links to and is not copied becomes plain text.
    results = (ROOT / "RESULTS.md").read_text(encoding="utf-8")
    link = re.compile(r"\[([^]\n]*)\]\((?!https?:|#|mailto:)([^)\s#]+)[^)\s]*\)")
    return files | {
        "RESULTS.md": link.sub(lambda found: found[0] if found[2] in files else found[1], results)
    }


def main(args: Any) -> int:
    """``python -m course build``."""
    outs = args.student, args.instructor, args.nbgrader
    if outs == (None, None, None):
        raise CourseError("say where to: --student OUT, --instructor OUT or --nbgrader OUT")
    written = build(*outs, force=args.force)
    print(f"{len(written)} files written" if written else "all copies were there already")
    return 0
