"""How many minutes a notebook takes one reader. Computed, not clocked: nobody was timed reading.

Text is read at 200 words a minute and code at 30 lines a minute. Cells run for as long as they did
on the reference machine; a front notebook has no record of its own, and counts the minute that its
*Run All* may take. Playing takes what `PLAY` says for each part, an exercise what its text says.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from nbformat import NotebookNode

from course.front import count_lines, count_words, is_front, texts
from course.notebook_files import code_cells, tags
from course.records.store import read, reference_folder

# The machine that every notebook was recorded on.
REFERENCE = "intel-xeon-2-cores"
WORDS_A_MINUTE = 200
LINES_A_MINUTE = 30
# Minutes with a picture that moves, with a panel and its scenarios, with the board.
PLAY = {"explorable": 3, "panel": 5, "board": 2}
# What a notebook runs for where nothing is recorded.
RUN_ALL = 1.0
# A card says a multiple of these, at most as much off.
ROUND = 5


def parts(notebook: NotebookNode, name: str) -> dict[str, float]:
    """The minutes of each thing that a reader does."""
    words = sum(count_words(cell.source) for cell in texts(notebook))
    lines = sum(count_lines(cell.source) for cell in code_cells(notebook))
    there = {tag for cell in notebook.cells for tag in tags(cell)}
    return {
        "reading": words / WORDS_A_MINUTE,
        "reading code": lines / LINES_A_MINUTE,
        "running": RUN_ALL if is_front(notebook) else recorded(name),
        "playing": sum(minutes for tag, minutes in PLAY.items() if tag in there),
        "building": sum(exercises(notebook)),
    }


def estimate(notebook: NotebookNode, name: str) -> int:
    """The minutes of all parts, rounded up as a card has them."""
    return ROUND * math.ceil(sum(parts(notebook, name).values()) / ROUND)


def exercises(notebook: NotebookNode) -> Iterator[int]:
    """The minutes that the texts of the exercises say."""
    for cell in texts(notebook):
        for minutes in re.findall(r"^\*Difficulty: .* About (\d+) minutes\.\*$", cell.source, re.M):
            yield int(minutes)


def recorded(name: str) -> float:
    """The minutes that the notebook ran on the reference machine."""
    path = reference_folder() / REFERENCE / f"{name}.json"
    seconds = read(path).seconds if path.exists() else None
    if seconds is None:
        return RUN_ALL
    return seconds / 60


def check_minutes(notebook: NotebookNode, name: str) -> Iterator[str]:
    """What is wrong with the minutes that a notebook says, in its metadata and on its card."""
    said = notebook.metadata.get("labkit", {}).get("minutes")
    if not isinstance(said, int):
        return
    wanted = estimate(notebook, name)
    if said % ROUND or abs(said - wanted) > ROUND:
        each = ", ".join(f"{what} {taken:.0f}" for what, taken in parts(notebook, name).items())
        yield f"metadata.labkit.minutes is {said}; course/minutes.py has {wanted} ({each})"
    card = next((cell.source for cell in texts(notebook) if "card" in tags(cell)), "")
    if f"{said} minutes" not in card:
        yield f"does not say on its card that it takes {said} minutes, as metadata.labkit does"
