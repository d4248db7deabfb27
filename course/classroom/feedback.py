"""What a student reads: a file for each submission, in sentences."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from course.classroom.files import CourseError
from course.written import write_whole


class Outcome(NamedTuple):
    """A row of the table: what became of one exercise of one submission."""

    submission: str
    notebook: str
    exercise: str
    # one of RESULTS of `course.classroom.check`
    result: str
    message: str = ""
    # from the end of the imports
    seconds: float = 0.0
    # outside: here, from values alone; both: also beside the answer; inside: only there
    judged: str = ""
    # what kept it from the rest of the machine
    wall: str = ""


# a message may be the student's own text: as code it is no link, no picture and no HTML
SAID = {
    "passed": "Right in every case that was tried.",
    "not yet": "Not yet right: `{message}`.",
    "error": "Your code ended with an error: `{message}`.{advice}",
    "time limit": "It did not end in time: `{message}`. Is there a loop that never ends, or more "
    "work than the exercise asks for?",
    "memory limit": "It needed too much memory: `{message}`.",
    "process limit": "It started too many processes: `{message}`.",
    "wrote outside": "It changed a file outside its folder, or tried to: `{message}`. Write files "
    "beside the notebook.",
    "not attempted": "Nothing was handed in here: `{message}`.",
    "no exercise": "There is nothing to check here: `{message}`.",
    "not run": "It could not be run: `{message}`. Your code was not judged: ask your teacher.",
    "foreign": "This file was not checked: `{message}`. Hand in the course's notebook that you "
    "worked in.",
    "unreadable": "Your file was not read: `{message}`. Save the notebook in Jupyter and hand it "
    "in again.",
}
ADVICE = {
    "SyntaxError": " Python cannot read the cell: look at that line and the one before it.",
    "IndentationError": " Python cannot read the cell: look at how that line is indented.",
    "NameError": " Restart the kernel and run the notebook from the top: an answer may need a name "
    "that only your session had.",
}


def feedback(rows: Sequence[Outcome]) -> str:
    """The text on one submission, in Markdown."""
    exercises = [row for row in rows if row.exercise]
    title = rows[0].notebook or "your submission"
    lines = [f"# {title}", ""]
    if exercises:
        passed = sum(row.result == "passed" for row in exercises)
        lines += [f"{passed} of {len(exercises)} exercises right.", ""]
    for row in rows:
        # a backtick would end the code
        message = row.message.rstrip(".").replace("`", "'")
        if row.exercise:
            lines += [f"## {row.exercise}: {row.result}", ""]
        advice = ADVICE.get(message.partition(":")[0], "")
        lines += [SAID[row.result].format(message=message, advice=advice), ""]
    if any(row.result == "not yet" for row in rows):
        lines += ["The check in the notebook says the same: change the cell and run it again.", ""]
    return "\n".join(lines)


def write_feedback(folder: Path, rows: Sequence[Outcome]) -> Path:
    """Write the text on one submission into ``folder``; returns the file."""
    submission = Path(rows[0].submission)
    # students name their files alike; a short mark could be met by trying names
    mark = hashlib.sha256(str(submission).encode()).hexdigest()[:16]
    owner = submission.parent.name or "submission"
    # file systems allow 255 bytes
    name = f"{owner}-{submission.stem}".encode()[:200].decode(errors="ignore")
    path = folder / f"{name}-{mark}.feedback.md"
    try:
        write_whole(path, feedback(rows))
    except OSError as error:
        raise CourseError(f"--feedback {folder}: {error.strerror or error}") from None
    return path
