"""Copies of the course for students, without solutions, and for instructors."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

from labkit.records.files import notebook_path, write_whole

from .files import CourseError, course_notebooks


def student_copy(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook without solutions, and without outputs and counts, which would answer its questions."""
    copy = deepcopy(dict(notebook))
    copy["cells"] = [cell for cell in copy["cells"] if "solution" not in cell["metadata"].get("tags", ())]
    for cell in copy["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    return copy


def _files(student: bool) -> dict[str, str]:
    """What a copy of the course holds: path within it -> text."""
    files = {}
    for path in course_notebooks():
        text = path.read_text(encoding="utf-8")
        if student:
            text = json.dumps(student_copy(json.loads(text)), indent=1, ensure_ascii=False) + "\n"
        files[f"notebooks/{path.name}"] = text
    # The notebooks link to it. What it links to and is not copied becomes plain text.
    results = notebook_path("x").parents[1] / "RESULTS.md"
    lost = re.compile(r"\[([^]\n]*)\]\((?!https?:|#|mailto:)([^)\s#]+)[^)\s]*\)")
    text = results.read_text(encoding="utf-8")
    files["RESULTS.md"] = lost.sub(lambda link: link[0] if link[2] in files else link[1], text)
    return files


def build(student: Path | None = None, instructor: Path | None = None, *, force: bool = False) -> list[Path]:
    """Write the copies into ``OUT/notebooks``, beside ``OUT/RESULTS.md``; returns what was written.

    Nothing is written when a file there differs, unless ``force``. CourseError for that, and for folders that
    cannot be meant: the course's own, or one for both.
    """
    outs = {out.resolve(): kind for out, kind in ((instructor, False), (student, True)) if out is not None}
    if student is not None and instructor is not None and len(outs) < 2:
        raise CourseError(f"{student}: students and instructors need a folder each")
    course = notebook_path("x").parents[1].resolve()
    jobs: dict[Path, str] = {}
    for out, kind in outs.items():
        if out in (course, course / "notebooks"):
            raise CourseError(f"{out} is the course itself; choose another folder")
        jobs |= {out / name: text for name, text in _files(kind).items()}
    for path in jobs:
        if clash := next(
            (each for each in (path, *path.parents) if each.exists() and each.is_dir() == (each == path)), None
        ):
            raise CourseError(f"{clash} is in the way: a {'folder' if clash == path else 'file'} of that name is there")
    jobs = {path: text for path, text in jobs.items() if not (path.exists() and path.read_bytes() == text.encode())}
    if changed := [path for path in jobs if path.exists() and not force]:
        shown = "".join(f"\n  {path}" for path in changed[:5]) + "\n  ..." * (len(changed) > 5)
        raise CourseError(f"{len(changed)} files there differ; nothing was written. --force replaces them:{shown}")
    for path, text in jobs.items():
        write_whole(path, text)
    return list(jobs)


def main(args: Any) -> int:
    """``labkit course build``."""
    if args.student is None and args.instructor is None:
        raise CourseError("say where to: --student OUT, --instructor OUT, or both")
    written = build(args.student, args.instructor, force=args.force)
    print(f"{len(written)} files written" if written else "all copies were there already")
    return 0
