"""Slides from notebooks: one HTML file each, with records in the place of live output.

uv run python -m course.site.slides [NAME ...] [--out FOLDER] [--notebook]

Nothing is executed. A slide for each heading; what does not fit goes on to the next. Set-up,
claims, hints and solutions are left out, and of the code what has no tag and is long.

Slides are not reveal.js, which `jupyter nbconvert --to slides` loads from the internet: `deck/`
is a page of CSS and one of JavaScript, and loads nothing but `tex-svg.js` (MathJax), which is
written beside the deck. A slide's content is budgeted in pixels when the deck is made; what is
still too tall is made smaller in the browser, never cut, and a test holds how much smaller.
"""

from __future__ import annotations

import argparse
import ast
import base64
import html
import re
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbconvert.filters import Highlight2HTML, markdown2html
from nbformat import NotebookNode
from pygments.formatters import HtmlFormatter

from course.notebook_files import long_notebooks, read_notebook, tags
from course.site import pages, recorded

HERE = Path(__file__).resolve().parent
# the last two show what was recorded instead
LEFT_OUT = {
    "setup",
    "solution",
    "claims",
    "reference",
    "panel",
}
CODE = {"baseline", "predict", "workload", "counters", "worse", "exercise"}
# lines of any other code cell that is shown
SHORT = 12
# pixels of content for a slide; deck.css has room for 560 to 590, deck.js makes a little more fit
ROOM = 640
# pixels of a figure: it stands alone
FIGURE = 560
# of code on a slide
LINES = 22

# MathJax would look for math in code, too, were it not told to skip it.
MATHJAX = """{
 tex: {inlineMath: [["$", "$"], ["\\\\(", "\\\\)"]], displayMath: [["$$", "$$"]],
       processEscapes: true},
 options: {skipHtmlTags: ["script", "style", "pre", "code", "textarea"], enableMenu: false},
 svg: {fontCache: "local"}}"""


@dataclass
class Block:
    """A piece of a slide that is not split: HTML, the height that it takes (about), and its
    source.
    """

    html: str
    height: int
    source: str
    code: bool = False
    outputs: list[NotebookNode] = field(default_factory=list)


@dataclass
class Slide:
    # Markdown, without its number
    title: str
    blocks: list[Block]
    # 2 for what did not fit on the first
    part: int = 1
    first: bool = False
    # a recorded figure, which interrupts its section
    figure: bool = False

    @property
    def height(self) -> int:
        return sum(block.height for block in self.blocks)


def deck(path: Path) -> list[Slide]:
    """The slides of a notebook.

    Raises ValueError for a notebook that does not begin with a heading.
    """
    notebook = read_notebook(path)
    every = [each for each in recorded.shown(path.stem) if each.drawn]
    slides: list[Slide] = []
    for index, cell in enumerate(notebook.cells):
        kind = set(tags(cell))
        if cell.cell_type == "markdown":
            following = notebook.cells[index + 1 : index + 2]
            if "<summary>Hint" in cell.source or (following and "claims" in tags(following[0])):
                continue
            _add_text(slides, cell.source, path)
        elif "panel" in kind and every:
            slides.append(_recorded(every[0]))
        elif "reference" in kind:
            slides += [_recorded(each) for each in every[1:]]
            # once, if the tag repeats
            every = every[:1]
        elif not kind & LEFT_OUT and (kind & CODE or len(cell.source.splitlines()) <= SHORT):
            for piece in _pieces(cell.source):
                _add(slides, _code(piece))
            if text := "".join(output.get("text", "") for output in cell.outputs):
                _add(slides, _output(text, cell.outputs))
    # a heading whose cells are all left out is no slide
    return [slide for slide in slides if slide.blocks]


def _add_text(slides: list[Slide], source: str, path: Path) -> None:
    """Put a text cell of the notebook at ``path`` on slides, a new one for each heading."""
    for title, blocks in _headed(source, path.parent):
        if title:
            slides.append(Slide(title, [], first=not slides))
        elif not slides:
            raise ValueError(f"{path.name}: text stands before the first heading")
        for block in blocks:
            _add(slides, block)


def _add(slides: list[Slide], block: Block) -> None:
    """Put it on the last slide, or on a further one with the same heading."""
    section = [slide for slide in slides if not slide.figure][-1]
    if slides[-1].figure or (section.blocks and section.height + block.height > ROOM):
        section = Slide(section.title, [], section.part + 1 if section.blocks else section.part)
        slides.append(section)
    section.blocks.append(block)


def _headed(source: str, folder: Path) -> list[tuple[str, list[Block]]]:
    """A Markdown cell by its headings: title (empty for what stands before the first) and
    blocks.
    """
    found: list[tuple[str, list[Block]]] = [("", [])]
    for text in _blocks(_links(source, folder)):
        heading = re.fullmatch(r"#{1,4} +(.+)", text)
        if heading:
            found.append((heading[1], []))
        else:
            found[-1][1].append(Block(markdown2html(text), _height(text), text))
    return [each for each in found if each[0] or each[1]]


def _blocks(source: str) -> list[str]:
    """Markdown as blocks: paragraphs, list items, tables, fences, displayed math.

    Headings apart.
    """
    found: list[list[str]] = [[]]
    # what ends the fence or formula that is open
    until = ""
    for line in source.splitlines():
        bare = line.strip()
        if until:
            found[-1].append(line)
            if bare.endswith(until):
                until = ""
            continue
        if not bare or re.match(r"#{1,4} ", line) or re.match(r"([-*]|\d+\.) ", line):
            found.append([])
        if bare:
            found[-1].append(line)
        if re.match(r"#{1,4} ", line):
            found.append([])
        if bare.startswith("```"):
            until = "```"
        elif bare.startswith("$$") and not (len(bare) > 2 and bare.endswith("$$")):
            until = "$$"
    return ["\n".join(lines) for lines in found if lines]


def _links(source: str, folder: Path) -> str:
    """Links to notebooks lead to their decks, links to other files become text."""

    def mended(match: re.Match[str]) -> str:
        if match["code"] or match["fence"]:
            return match[0]
        target = match["target"].split("#")[0]
        if target.endswith(".ipynb") and (folder / target).exists():
            return f"[{match['label']}]({Path(target).stem}.html)"
        return str(match["label"])

    return pages.CODE_OR_LINK.sub(mended, pages.mend_math(source))


def _height(text: str) -> int:
    """Pixels that Markdown will take, about; deck.js makes smaller what takes more."""
    if text.startswith("$$"):
        return 90 + 80 * text.count("\\\\")
    if text.startswith("```"):
        return 34 + 22 * (len(text.splitlines()) - 2)
    if text.startswith("|"):
        rows = [row.strip("|").split("|") for row in text.splitlines()]
        return 14 + sum(
            10 + 27 * max(1, -(-sum(map(len, row)) // 110)) for row in rows[:1] + rows[2:]
        )
    return 14 + 33 * -(-len(text) // 100)


def _pieces(source: str) -> list[str]:
    """A code cell in pieces of at most so many lines, cut between statements where that is
    possible.
    """
    lines = source.splitlines()
    if len(lines) <= LINES:
        return [source]
    try:
        starts = {node.lineno - 1 for node in ast.parse(source).body} | {
            node.lineno - 1 - len(node.decorator_list)
            for node in ast.parse(source).body
            if isinstance(node, ast.FunctionDef | ast.ClassDef)
        }
    # a magic
    except SyntaxError:
        starts = set()
    pieces, begin = [], 0
    while len(lines) - begin > LINES:
        inside = [start for start in starts if begin + 4 < start <= begin + LINES]
        end = max(inside) if inside else begin + LINES
        pieces.append("\n".join(lines[begin:end]).strip("\n"))
        begin = end
    return [*pieces, "\n".join(lines[begin:]).strip("\n")]


def _code(source: str) -> Block:
    shown = Highlight2HTML(pygments_lexer="ipython3")(source)
    return Block(shown, 34 + 22 * len(source.splitlines()), source, code=True)


def _output(text: str, outputs: list[NotebookNode]) -> Block:
    kept = text.rstrip().splitlines()
    shown = f'<pre class="output">{html.escape(chr(10).join(kept))}</pre>'
    return Block(shown, 36 + 22 * len(kept), "", outputs=list(outputs))


def _recorded(each: recorded.Shown) -> Slide:
    """A slide with one recorded figure."""
    image = base64.b64encode(each.svg(dark=False).encode()).decode()
    at = f", at {each.at}" if each.at else ""
    source = f"Recorded on {each.lead}{at}"
    alt = html.escape(f"{each.title.replace('`', '')}, recorded on {each.lead}")
    text = markdown2html(source).replace("<p>", '<p class="source">')
    picture = f'<img alt="{alt}" src="data:image/svg+xml;base64,{image}">'
    block = Block(
        picture + text, FIGURE, f"{source}\n\n![{alt}](data:image/svg+xml;base64,{image})"
    )
    return Slide(f"Recorded: {each.title[0].lower()}{each.title[1:]}", [block], figure=True)


# ------------------------------------------------------------------------------------------ writing


def page(name: str, slides: list[Slide]) -> str:
    """The deck as HTML."""
    sections = []
    for slide in slides:
        heading = re.sub(r"^<p>|</p>\s*$", "", markdown2html(slide.title).strip())
        part = f" <small>({slide.part})</small>" if slide.part > 1 else ""
        body = "\n".join(block.html for block in slide.blocks)
        kind = ' class="title"' if slide.first else ""
        sections.append(
            f"<section{kind}><h1>{heading}{part}</h1>"
            f'<div class="room"><div class="body">{body}</div></div></section>'
        )
    style = (HERE / "deck" / "deck.css").read_text(encoding="utf-8")
    script = (HERE / "deck" / "deck.js").read_text(encoding="utf-8")
    colours = HtmlFormatter(style="friendly").get_style_defs(".highlight")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{html.escape(name)}</title>\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{colours}\n{style}</style>\n<script>window.MathJax = {MATHJAX}</script>\n"
        f'<script src="tex-svg.js"></script></head>\n<body><div id="stage">\n'
        + "\n".join(sections)
        + f'\n<div id="place"></div></div>\n<script>{script}</script></body></html>\n'
    )


def slide_notebook(slides: list[Slide]) -> NotebookNode:
    """The deck as a notebook with slide types, for `jupyter nbconvert --to slides`."""
    cells = []
    for slide in slides:
        part = f" ({slide.part})" if slide.part > 1 else ""
        cells.append(nbformat.v4.new_markdown_cell(f"## {slide.title}{part}"))
        cells[-1].metadata["slideshow"] = {"slide_type": "slide"}
        for block in slide.blocks:
            if block.outputs:
                # whose outputs they are
                [*_, code] = [cell for cell in cells if cell.cell_type == "code"]
                code.outputs = block.outputs
                continue
            new = nbformat.v4.new_code_cell if block.code else nbformat.v4.new_markdown_cell
            cells.append(new(block.source, metadata={"slideshow": {"slide_type": "-"}}))
    return nbformat.v4.new_notebook(cells=cells, metadata={"language_info": {"name": "python"}})


def write(path: Path, out: Path, *, notebook: bool = False) -> Path:
    """Write the deck of one notebook, and MathJax, to the folder ``out``; the deck's path."""
    slides = deck(path)
    out.mkdir(parents=True, exist_ok=True)
    target = out / f"{path.stem}.html"
    target.write_text(page(path.stem, slides), encoding="utf-8")
    if notebook:
        nbformat.write(slide_notebook(slides), out / f"{path.stem}.slides.ipynb")
    if not (out / "tex-svg.js").exists():
        shutil.copy(pages.mathjax(), out / "tex-svg.js")
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
        "--notebook", action="store_true", help="also write a notebook with slide types"
    )
    arguments = parser.parse_args()
    known = {path.stem: path for path in long_notebooks()}
    names = [Path(name).name.removesuffix(".ipynb") for name in arguments.names] or list(known)
    if unknown := [name for name in names if name not in known]:
        parser.error(f"no notebook {', '.join(unknown)}; there are: {', '.join(known)}")
    for name in names:
        print(write(known[name], arguments.out, notebook=arguments.notebook))
    return 0


if __name__ == "__main__":
    sys.exit(main())
