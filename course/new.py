"""`python -m course new 24_my_technique --plot duel`: all files of a lab, and what is left to do.

A new lab is the template under a new name: it runs, and its parts stand in the order of its plot.
What has not been written anew yet is found by comparison with what would be made now.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode

from course.front import PARTS, PLOTS
from course.minutes import estimate
from course.notebook_files import DEEPER, ROOT, notebook_text, read_notebook, tags

# The notebook that a lab begins as.
TEMPLATE = "_template"
AUTHORING = ROOT / "course" / "authoring"
TEMPLATE_FILE = AUTHORING / f"{TEMPLATE}.ipynb"
CELLS = AUTHORING / "cells.toml"
NAME = re.compile(r"\d\d(_[a-z][a-z0-9]*)+")
# Where each file of a lab lies, and what it begins as.
FILES = {
    "course/explorables/{script}.js": "course/authoring/_template.js",
    "tests/browser/test_explorable_{number}.py": "tests/browser/explorable_template.py",
    "course/exercises/{exercise}.py": "course/exercises/lab_template.py",
    "tests/labs/lab_{number}.py": "tests/labs/lab_template.py",
    "course/claims/{name}.toml": "course/claims/_template.toml",
    "course/teaching/{name}.md": "course/teaching/_template.md",
}
# A lab that gets a front has these from its long form.
KEPT = ("course/claims/", "course/teaching/")
# Cells that may stay as they are made.
FINISHED = {"explorable", "raced", "board", "more-2"}
LEFT = """\
Left to do, in this order. What is still the template's is told by
    uv run python -m course.notebooks check {name}

 1. The picture, the test of its model, and its still:
    course/explorables/{script}.js, tests/browser/test_explorable_{number}.py
    uv run python -m course.site.stills {picture}
 2. The notebook, cell by cell; then title, map and needs in its metadata:
    uv run jupyter lab --ServerApp.root_dir=. notebooks/{name}.ipynb
 3. The exercise's check; answers to it, and a count that only the technique moves:
    course/exercises/{exercise}.py, tests/labs/lab_{number}.py
 4. What sources claim, and what a teacher needs:
    course/claims/{name}.toml, course/teaching/{name}.md
 5. By hand, in files of all labs: PATH in course/progress.py, a line in CHANGELOG.md,
    its switch in course/switches.py and course/speedrun.py
 6. What is made from these:
    uv run python -m course.notebooks refresh {name}
    uv run python -m course results && uv run python -m course.notebooks index
 7. Checks:
    uv run ruff format && uv run ruff check && uv run mypy
    uv run pytest -k "{name} or {picture} or test_front or test_exercises_labs"
"""


@dataclass(frozen=True)
class Lab:
    """A lab by its name, in a checkout: ValueError for a name that is none.

    ``exercise`` is the module of its check: ``front_24`` behind a deeper notebook with one.
    """

    name: str
    root: Path = ROOT

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} is no name of a lab; use one like 24_my_technique")

    @property
    def number(self) -> str:
        return self.name[:2]

    @property
    def script(self) -> str:
        return self.name[3:]

    @property
    def picture(self) -> str:
        return "".join(word.capitalize() for word in self.script.split("_"))

    @property
    def title(self) -> str:
        return self.script.replace("_", " ").capitalize()

    @property
    def exercise(self) -> str:
        deeper = self.root / "notebooks" / DEEPER / f"{self.name}.ipynb"
        return f"{'front' if deeper.exists() else 'lab'}_{self.number}"

    @property
    def words(self) -> dict[str, str]:
        """What stands in the template, and what is written for it."""
        return {
            "24_my_technique": self.name,
            "my_technique": self.script,
            "MyTechnique": self.picture,
            "My technique": self.title,
            "check_template_blocks": f"check_{self.number}_{self.script}",
            TEMPLATE: self.name,
            "../../notebooks/": "",
        }

    def place(self, pattern: str) -> str:
        """A path of `FILES` for this lab, or `LEFT` with its names."""
        names = {key: getattr(self, key) for key in ("name", "number", "script", "picture")}
        return pattern.format(exercise=self.exercise, **names)

    def renamed(self, text: str) -> str:
        """A text of the template with this lab's names."""
        found = re.compile("|".join(map(re.escape, self.words)))
        text = found.sub(lambda match: self.words[match[0]], text)
        text = re.sub(r"(?<!\w)24(?=:|'s )|(?<=still-)24(?!\d)", self.number, text)
        return text.replace("The template:", f"{self.number}:").replace(
            "The exercise of the template: a check to begin one of your own with.",
            f"The exercise of notebook {self.number}.",
        )


# ------------------------------------------------------------------------------------- what is made


def made(lab: Lab, plot: str, *, short: bool = False) -> dict[str, str]:
    """The files of a new lab by their paths in the checkout, its notebook first.

    ValueError for an unknown plot.
    """
    notebook = fresh(lab, plot, short=short)
    return {f"notebooks/{lab.name}.ipynb": notebook_text(notebook), **dict(files(lab))}


def files(lab: Lab) -> Iterator[tuple[str, str]]:
    """The files beside the notebook."""
    for pattern, template in FILES.items():
        text = (ROOT / template).read_text(encoding="utf-8")
        yield lab.place(pattern), lab.renamed(text)


def fresh(lab: Lab, plot: str | None, *, short: bool = False) -> NotebookNode:
    """The notebook that a lab begins as; without a plot in the plain order."""
    if plot is not None and plot not in PLOTS:
        raise ValueError(f"{plot!r} is no plot; use {', '.join(PLOTS)}")
    own = tomllib.loads(CELLS.read_text(encoding="utf-8"))
    sources = own["every"] | own.get(str(plot), {})
    notebook = read_notebook(TEMPLATE_FILE)
    for cell in notebook.cells:
        cell.source = lab.renamed(sources.get(cell.id, cell.source).strip())
    _order(notebook, plot)
    said = notebook.metadata.labkit
    said.title = lab.title
    if plot:
        said.plot = plot
    if short:
        said.short = True
    said.minutes = estimate(notebook, lab.name)
    card = notebook.cells[0]
    card.source = re.sub(r"^\d+ minutes", f"{said.minutes} minutes", card.source, flags=re.M)
    return notebook


def _order(notebook: NotebookNode, plot: str | None) -> None:
    """Put the recipe where the plot has it: of all parts it alone moves."""
    parts = [tag for tag, _, _ in PLOTS.get(str(plot), PARTS)]
    behind = parts[parts.index("recipe") + 1]
    [recipe] = [cell for cell in notebook.cells if "recipe" in tags(cell)]
    notebook.cells.remove(recipe)
    place = next(i for i, cell in enumerate(notebook.cells) if behind in tags(cell))
    # What has no tag belongs to what follows.
    while not tags(notebook.cells[place - 1]) or "setup" in tags(notebook.cells[place - 1]):
        place -= 1
    notebook.cells.insert(place, recipe)


def make(lab: Lab, plot: str, *, short: bool = False) -> list[str]:
    """Write all files of a new lab, or none; return their paths.

    ValueError where the lab, its number or one of its files is there already.
    """
    refuse(lab)
    texts = made(lab, plot, short=short)
    paths = [path for path in texts if not _kept(lab, path)]
    for path in paths:
        if (lab.root / path).exists():
            raise ValueError(f"{path} is there already: take another name")
    written: list[Path] = []
    try:
        for path in paths:
            written.append(lab.root / path)
            (lab.root / path).write_text(texts[path], encoding="utf-8")
    except OSError:
        for each in written:
            with suppress(FileNotFoundError):
                each.unlink()
        raise
    return paths


def refuse(lab: Lab) -> None:
    """ValueError for a lab that is there, or whose number another one has."""
    for path in sorted((lab.root / "notebooks").rglob(f"{lab.number}_*.ipynb")):
        if path.stem != lab.name:
            raise ValueError(f"{path.stem} has the number {lab.number}: take another one")
        if path.parent.name != DEEPER:
            raise ValueError(
                f"notebooks/{path.name} is there already. A long notebook that gets a front moves "
                f"first: git mv notebooks/{path.name} notebooks/{DEEPER}/"
            )


def _kept(lab: Lab, path: str) -> bool:
    return path.startswith(KEPT) and (lab.root / path).exists()


# ------------------------------------------------------------------------------------- what is left


def unchanged(notebook: NotebookNode, name: str, root: Path = ROOT) -> Iterator[str]:
    """What a front notebook's lab still has of the template, in words."""
    if not NAME.fullmatch(name):
        return
    lab, said = Lab(name, root), notebook.metadata.get("labkit", {})
    plot = said.get("plot")
    begun = fresh(lab, plot if plot in PLOTS else None)
    sources: Mapping[str, str] = {cell.id: cell.source for cell in begun.cells}
    for place, cell in enumerate(notebook.cells):
        id = cell.get("id")
        if id not in FINISHED and sources.get(id) == cell.source:
            yield f"cell {place} ({id}) is still the template's"
    if said.get("map") == begun.metadata.labkit.map:
        yield "metadata.labkit.map is still the template's"
    for path, text in files(lab):
        if (root / path).exists() and (root / path).read_text(encoding="utf-8") == text:
            yield f"has {path}, which is still the template's"


def main(args: argparse.Namespace) -> int:
    """`course new`: 0, or 2 for what is refused."""
    try:
        lab = Lab(args.name)
        paths = make(lab, args.plot, short=args.short)
    except (ValueError, OSError) as error:
        print(f"course new: {error}", file=sys.stderr)
        return 2
    print("\n".join(f"made {path}" for path in paths))
    print(f"\n{lab.place(LEFT)}", end="")
    return 0


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `course new` to the commands."""
    text = "make all files of a new lab, and print what is left to do"
    parser = commands.add_parser("new", help=text, description=text)
    parser.add_argument("name", help="such as 24_my_technique")
    parser.add_argument("--plot", required=True, help=f"one of {', '.join(PLOTS)}")
    parser.add_argument(
        "--short", action="store_true", help="a short topic: fewer words and fewer lines"
    )
