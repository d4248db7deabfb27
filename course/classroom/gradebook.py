"""A gradebook that learning platforms import: a row for each student, a column for each exercise.

The first columns are those of Canvas, which finds students by "SIS Login ID"; Moodle asks at the
import which column names the student. A student is the folder that the submission lies in.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

from course.classroom.feedback import Outcome
from course.classroom.files import in_a_table

CANVAS = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")
# Nothing was judged: the place stays empty.
OPEN = ("not run", "foreign", "unreadable", "no exercise")


def write_gradebook(path: Path, rows: Iterable[Outcome]) -> None:
    """Points by student and exercise. Of several submissions of one exercise the best counts."""
    marks: dict[str, dict[str, str]] = {}
    for row in rows:
        own = marks.setdefault(Path(row.submission).parent.name or ".", {})
        if row.exercise and row.result not in OPEN:
            point = "1" if row.result == "passed" else "0"
            own[row.exercise] = max(own.get(row.exercise, "0"), point)
    exercises = sorted({name for own in marks.values() for name in own})
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow([*CANVAS, *exercises])
        for student, own in sorted(marks.items()):
            name = in_a_table(student)
            table.writerow([name, "", "", name, "", *(own.get(each, "") for each in exercises)])
