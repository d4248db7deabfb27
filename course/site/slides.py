"""Slides from the deeper notebooks, by nbconvert: one HTML file each, with records in the place of
live output.

uv run python -m course.site.slides [NAME ...] [--out FOLDER] [--reveal FOLDER_OR_URL]

Nothing is executed. A slide for each heading; a long one scrolls. Set-up, claims, hints and
solutions are left out, and of the code what has no tag and is long. The decks are reveal.js, which
a browser loads from the internet, unless ``--reveal`` names a copy of it.
"""

from __future__ import annotations

import argparse
import base64
import re
import sys
from pathlib import Path

from nbconvert.exporters import SlidesExporter
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell

from course.notebook_files import long_notebooks, read_notebook, tags
from course.site import pages, recorded

HERE = Path(__file__).resolve().parent
# The last two show what was recorded instead.
LEFT_OUT = {"setup", "solution", "claims", "reference", "panel"}
CODE = {"baseline", "predict", "workload", "counters", "worse", "exercise"}
# Lines of any other code cell that is shown.
SHORT = 12


def slides(path: Path) -> NotebookNode:
    """The notebook of the deck: what is shown of a notebook, with slide types."""
    notebook = read_notebook(path)
    figures = [_figure(each) for each in recorded.shown(path.stem) if each.drawn]
    cells: list[NotebookNode] = []
    for index, cell in enumerate(notebook.cells):
        kind = set(tags(cell))
        if cell.cell_type == "markdown":
            following = notebook.cells[index + 1 : index + 2]
            if "<summary>Hint" in cell.source or (following and "claims" in tags(following[0])):
                continue
            cells += map(new_markdown_cell, _headed(_links(cell.source, path.parent)))
        elif "panel" in kind:
            cells += figures[:1]
        elif "reference" in kind:
            cells += figures[1:]
            # Once, if the tag repeats.
            figures = figures[:1]
        elif not kind & LEFT_OUT and (kind & CODE or len(cell.source.splitlines()) <= SHORT):
            cells.append(cell)
    notebook.cells = cells
    for cell in cells:
        begins = cell.cell_type == "markdown" and cell.source.startswith("#")
        cell.metadata["slideshow"] = {"slide_type": "slide" if begins else "-"}
    return notebook


def _headed(source: str) -> list[str]:
    """A text by its headings, each with what follows it."""
    return [part.strip() for part in re.split(r"^(?=#{1,4} )", source, flags=re.M) if part.strip()]


def _links(source: str, folder: Path) -> str:
    """Links to notebooks lead to their decks, links to other files become text."""

    def mended(match: re.Match[str]) -> str:
        if match["code"] or match["fence"]:
            return match[0]
        target = match["target"].split("#")[0]
        if target.endswith(".ipynb") and (folder / target).exists():
            return f"[{match['label']}]({Path(target).stem}.slides.html)"
        return str(match["label"])

    return pages.CODE_OR_LINK.sub(mended, pages.mend_math(source))


def _figure(each: recorded.Shown) -> NotebookNode:
    """A slide with one recorded figure."""
    image = base64.b64encode(each.svg(dark=False).encode()).decode()
    title = f"Recorded: {each.title[0].lower()}{each.title[1:]}"
    at = f", at {each.at}" if each.at else ""
    alt = f"{each.title.replace('`', '')}, recorded on {each.lead}"
    return new_markdown_cell(
        f"## {title}\n\n![{alt}](data:image/svg+xml;base64,{image})\n\nOn {each.lead}{at}"
    )


def write(path: Path, out: Path, reveal: str = "") -> Path:
    """Write the deck of one notebook to the folder ``out``; the deck's path."""
    exporter = SlidesExporter(reveal_scroll=True, reveal_theme="simple")
    if reveal:
        exporter.reveal_url_prefix = reveal
    deck, _ = exporter.from_notebook_node(slides(path), {"metadata": {"name": path.stem}})
    out.mkdir(parents=True, exist_ok=True)
    target = out / f"{path.stem}.slides.html"
    target.write_text(deck, encoding="utf-8")
    return target


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="a notebook, such as 06_mixed_precision; all if none",
    )
    parser.add_argument("--out", type=Path, default=HERE / "_build" / "slides")
    parser.add_argument(
        "--reveal", default="", help="where reveal.js lies; the internet if not given"
    )
    arguments = parser.parse_args()
    known = {path.stem: path for path in long_notebooks()}
    names = [Path(name).name.removesuffix(".ipynb") for name in arguments.names] or list(known)
    if unknown := [name for name in names if name not in known]:
        parser.error(f"no notebook {', '.join(unknown)}; there are: {', '.join(known)}")
    for name in names:
        print(write(known[name], arguments.out, arguments.reveal))
    return 0


if __name__ == "__main__":
    sys.exit(main())
