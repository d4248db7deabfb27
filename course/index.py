"""What documents say of each notebook, made from the notebooks: the README's table, and of the
teacher's guide the sections.

A section's title, level and minutes are the notebook's own; the rest is `course/teaching/NAME.md`.
"""

from __future__ import annotations

import re

from course.front import is_front
from course.minutes import REFERENCE
from course.notebook_files import ROOT, about, first_notebooks, place, read_notebook
from course.overview import techniques
from course.progress import PATH

README = ROOT / "README.md"
GUIDE = ROOT / "course" / "teaching.md"
SECTIONS = ROOT / "course" / "teaching"
HEAD = "|---|---|---|"
# Minutes that a class needs beside those of one reader, for guesses and results: our estimate.
IN_CLASS = 10


def readme(text: str) -> str:
    """The README's text with its table and its list of front notebooks up to date."""
    numbers = [name[:2] for name in fronts()]
    listed = r"^\d\d(?:, \d\d)* and \d\d are (?=\*front\* notebooks)"
    text = re.sub(listed, f"{joined(numbers)} are ", text, flags=re.MULTILINE)
    begin = text.index(HEAD) + len(HEAD)
    return "\n".join([text[:begin], *rows(), text[text.index("\n\n", begin) + 1 :]])


def fronts() -> list[str]:
    """The front notebooks, by number."""
    return [path.stem for path in first_notebooks() if is_front(read_notebook(path))]


def rows() -> list[str]:
    """A row for each notebook: number, title, minutes, effects on the reference machine."""
    effects = {each.notebook: each.effects.get(REFERENCE, "–") for each in techniques().techniques}
    found = []
    for path in first_notebooks():
        said = about(path)
        # RESULTS.md has all
        effect = "; ".join(effects.get(path.stem, "–").split("; ")[:2])
        link = f"[{path.stem[:2]}](notebooks/{place(path)}.ipynb)"
        found.append(f"| {link} {said.title} | {said.minutes} | {effect} |")
    return found


def guide(text: str) -> str:
    """The text of the teacher's guide with what it says of each notebook up to date.

    ValueError for a notebook without its file in ``course/teaching``.
    """
    numbers = [f"`{name[:2]}`" for name in PATH]
    text = re.sub(r"`\d\d`.* are (?=\*front\* notebooks)", f"{joined(numbers)} are ", text)
    for word, exercises in judged().items():
        row = rf"^(\| {word} \|.*\|).*\|$"
        text = re.sub(row, rf"\1 {exercises} |", text, flags=re.MULTILINE)
    begin, end = text.index("\n### 00_"), text.index("\n## Slides\n")
    return text[:begin] + "".join(sections()) + text[end:]


def sections() -> list[str]:
    """A section for each notebook."""
    found = []
    for path in first_notebooks():
        file = SECTIONS / f"{path.stem}.md"
        if not file.exists():
            raise ValueError(
                f"course/teaching/{file.name} is missing: what a teacher needs to know"
            )
        said, text = about(path), file.read_text(encoding="utf-8")
        head = f"**Class** {said.minutes + IN_CLASS}. **Level** {said.level}."
        found.append(f"\n### {path.stem}\n\n{head}\n{text.strip()}\n")
    return found


def judged() -> dict[str, str]:
    """The exercises that are not judged from outside alone, by how they are."""
    from course import exercises

    found: dict[str, list[str]] = {"both": [], "inside": []}
    for name in exercises.__all__:
        function = getattr(exercises, name)
        number = name.removeprefix("check_")[:2]
        if getattr(function, "judged", "outside") in found and number.isdigit():
            front = ".front_" in function.__module__
            found[function.judged].append(f"{number} (front)" if front else number)
    return {word: joined(sorted(numbers)) for word, numbers in found.items()}


def joined(words: list[str]) -> str:
    """``04, 06 and 11``."""
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last


def write() -> None:
    """Bring both documents up to date, or neither."""
    texts = {}
    for path, up_to_date in ((README, readme), (GUIDE, guide)):
        texts[path] = up_to_date(path.read_text(encoding="utf-8"))
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
