"""Pages of the site from the course's own files: notebooks with their records, and documents.

Nothing is executed. Code cells stand as they are, checked outputs too, solutions and claims
folded. What `recorded.py` finds in `data/reference` stands behind the panel and the reference
cell, the rows of `RESULTS.md` behind the claims. The source tree that Sphinx reads is laid out
like the checkout, so that relative links stay what they are; a link to a file that is no page
becomes its path.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course import explorables
from course.claims import gains
from course.front import is_front
from course.notebook_files import (
    ROOT,
    about,
    course_notebooks,
    first_notebooks,
    place,
    read_notebook,
    tags,
)
from course.shortlist import shortlist
from course.site import recorded

DOCUMENTS = [
    "RESULTS.md",
    "CONTRIBUTING.md",
    "course/authoring/AUTHORING.md",
    "CHANGELOG.md",
    "course/installing.md",
    "course/measuring.md",
    "course/teaching.md",
    "course/sources.md",
    "course/symptoms.md",
    "data/README.md",
    "data/reference/README.md",
    "tests/tested-versions.md",
]
# cells that a page shows on demand
FOLDED = {"solution", "claims"}
# Code comes first: what looks like a link in it is none.
CODE_OR_LINK = re.compile(
    r"(?P<fence>^```.*?^```[ ]*$)"
    r"|(?P<code>(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`))"
    r"|(?<!!)\[(?P<label>(?:[^\[\]]|\[[^\[\]]*\])*)\]\((?!https?:|mailto:)(?P<target>[^)\s]+)\)",
    flags=re.MULTILINE | re.DOTALL,
)


def number(name: str) -> str:
    """``"06_mixed_precision"`` -> ``"06"``."""
    return name.split("_")[0]


def write_source(folder: Path) -> None:
    """The source tree that Sphinx reads, laid out like the checkout, so that relative links stay
    what they are.
    """
    known = {path.relative_to(ROOT).as_posix() for path in course_notebooks()} | {
        *DOCUMENTS,
        "README.md",
    }
    for name in DOCUMENTS:
        page = folder / name
        page.parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / name).read_text(encoding="utf-8")
        if name == "course/teaching.md":
            text = link_notebooks(text)
        page.write_text(mend_links(text, name, known), encoding="utf-8")
    pictures = "notebooks/pictures"
    shutil.copytree(ROOT / pictures, folder / pictures, dirs_exist_ok=True)
    (folder / "index.md").write_text(_index(known), encoding="utf-8")
    for path in course_notebooks():
        name = place(path)
        page, file = (folder / kind / f"{name}.ipynb" for kind in ("notebooks", "files"))
        for each in (page, file):
            each.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, file)
        nbformat.write(notebook_page(path, name, page.parent / "figures", known), page)


def _index(known: set[str]) -> str:
    """The README, and what is where."""
    text = mend_links((ROOT / "README.md").read_text(encoding="utf-8"), "README.md", known)
    entries = []
    for path in course_notebooks():
        title = about(path).title
        entries.append(f"{number(path.stem)} {title} <notebooks/{place(path)}>")
    trees = {
        "Notebooks": entries,
        "Using it": [
            "What is wrong with my training? <course/symptoms>",
            "course/installing",
            "course/measuring",
        ],
        "Results": [
            "Every claim, and what we found <RESULTS>",
            "From the sources to the cells <course/sources>",
            "Recorded machines <data/reference/README>",
        ],
        "For teachers and authors": [
            "Teaching with it <course/teaching>",
            "CONTRIBUTING",
            "course/authoring/AUTHORING",
            "data/README",
        ]
        + ["Changes <CHANGELOG>", "tests/tested-versions"],
    }
    for caption, names in trees.items():
        text += (
            f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(names) + "\n```\n"
        )
    return text


def mend_links(text: str, name: str, known: set[str]) -> str:
    """Links of the file ``name`` as the site has them.

    The README is the index; headings are found by Sphinx's names for them; files that are no
    page become their path.
    """

    def mended(match: re.Match[str]) -> str:
        label, target = match["label"], match["target"]
        place, hash_, anchor = target.partition("#")
        anchor = hash_ + anchor.lower()
        if not place:
            return f"[{label}]({anchor})"
        path = os.path.normpath(os.path.join(os.path.dirname(name), place))
        if not (ROOT / path).exists():
            raise ValueError(f"{name} links to {target}, which is not there")
        here = os.path.dirname(name) or "."
        if path == "README.md":
            return f"[{label}]({os.path.relpath('index.md', here)}{anchor})"
        if path == "data/reference":
            return f"[{label}]({os.path.relpath('data/reference/README.md', here)})"
        if path in known:
            return f"[{label}]({place}{anchor})"
        return label if label.startswith("`") or label == path else f"{label} (`{path}`)"

    return CODE_OR_LINK.sub(
        lambda match: match[0] if match["code"] or match["fence"] else mended(match),
        mend_math(text),
    )


def mend_math(text: str) -> str:
    r"""LaTeX wants ``\texttt{a\_b}``; MathJax would show the backslash."""
    return re.sub(r"\\texttt\{[^{}]*\}", lambda match: match[0].replace(r"\_", "_"), text)


def link_notebooks(text: str) -> str:
    """`` `06_mixed_precision` `` in the guide as a link to its page, where there is one."""
    there = {path.stem: place(path) for path in first_notebooks()}

    def linked(match: re.Match[str]) -> str:
        name = match[1]
        return f"[{name}](../notebooks/{there[name]}.ipynb)" if name in there else match[0]

    return re.sub(r"`(\d\d_\w+)`", linked, text)


# -------------------------------------------------------------------------------- a notebook's page


def notebook_page(path: Path, name: str, figures: Path, known: set[str]) -> NotebookNode:
    """The notebook ``name`` as a page, with what was recorded in the place of live output.

    What is drawn goes to the folder ``figures``.
    """
    page = read_notebook(path)
    # A front notebook shows its records in one small chart, at its end.
    every = [] if is_front(page) else recorded.shown(path.stem)
    for index, each in enumerate(every):
        if each.drawn:
            _draw(each, figures / f"{path.stem}-{index}")
    first = next((index for index, each in enumerate(every) if each.drawn), None)
    cells: list[NotebookNode] = []
    told = False
    for cell in page.cells:
        kind = set(tags(cell))
        cell.metadata = NotebookNode(tags=["hide-input"] if kind & FOLDED else [])
        if cell.cell_type == "markdown":
            cell.source = mend_links(cell.source, f"notebooks/{name}.ipynb", known)
        cells.append(cell)
        if "card" in kind:
            note = "The figures on this page come from recorded runs."
            download = f"{{download}}`The notebook </files/{name}.ipynb>`"
            cells.append(_text(f"*{note} {download} measures on your machine.*"))
        if "explorable" in kind:
            cell.outputs = [_alive(cell.source, name)]
        if "panel" in kind:
            cells += _in_place_of_the_panel(every, path.stem, first)
        cells += _behind_cells_of_a_front(cell, kind, path.stem)
        if "reference" in kind and not told:
            # once, behind the first cell of this tag
            told = True
            cells.append(_text(_recorded(every, path.stem, first)))
        if "claims" in kind and (found := claims(path.stem)):
            cells.append(_text(mend_links(found, "RESULTS.md", known)))
    page.cells = cells
    page.metadata = NotebookNode(
        kernelspec=page.metadata["kernelspec"], language_info={"name": "python"}
    )
    return page


def _alive(source: str, name: str) -> NotebookNode:
    """The output of a cell that ends in ``Roofline()``: it runs in the reader's browser."""
    found = re.search(r"^(\w+)\(\)\s*\Z", source, flags=re.MULTILINE)
    there = sorted(each.__name__ for each in explorables.Explorable.__subclasses__())
    if found is None or found[1] not in there:
        raise ValueError(
            f"{name}: a cell tagged 'explorable' ends in one of {', '.join(there)}, "
            f"with (); this one is {source!r}"
        )
    page = explorables.alive(getattr(explorables, found[1]))
    return nbformat.v4.new_output("display_data", {"text/html": page})


def _in_place_of_the_panel(
    every: list[recorded.Shown], name: str, first: int | None
) -> list[NotebookNode]:
    """A note, and the first recorded figure where there is one."""
    note = "In JupyterLab, a panel with controls, *Run* and *Stop* stands here."
    if first is None:
        return [_text(f":::{{note}}\n{note}\n:::")]
    note += f" The figure below was recorded on {every[first].lead}."
    figure = _figure(every[first], f"{name}-{first}")
    return [_text(f":::{{note}}\n{note}\n:::"), _text(figure)]


def _behind_cells_of_a_front(cell: NotebookNode, kind: set[str], name: str) -> list[NotebookNode]:
    """What stands for the outputs of its board, and of its last cell."""
    if "board" in kind:
        note = "In JupyterLab, the board of your own speedrun stands here."
        return [_text(f":::{{note}}\n{note}\n:::")]
    if "more" in kind and cell.cell_type == "code":
        return [_text(f"```{{raw}} html\n{_chart(cell.source, name)}\n```")]
    return []


def _chart(source: str, name: str) -> str:
    """What the last cell of a front notebook shows, without anything of the builder's own."""
    if "shortlist(" in source:
        return shortlist(yours=False)._repr_html_().replace('.ipynb"', '.html"')
    return gains(name)._repr_html_()


def claims(name: str) -> str:
    """The tables of claims and errors of one notebook, from RESULTS.md; empty when it has none."""
    text = (ROOT / "RESULTS.md").read_text(encoding="utf-8")
    found = re.search(rf"^## \[{name}\]\S*\n(.*?)(?=^## |\Z)", text, flags=re.MULTILINE | re.DOTALL)
    return found[1].strip() if found else ""


def mathjax() -> Path:
    """MathJax as one file with its fonts in it, from the package that carries it."""
    for file in importlib.metadata.files("sphinx-mathjax-offline") or ():
        if file.name == "tex-svg.js":
            return Path(str(file.locate()))
    raise FileNotFoundError("sphinx-mathjax-offline is there, but holds no tex-svg.js")


def _text(source: str) -> NotebookNode:
    return nbformat.v4.new_markdown_cell(source)


def _draw(each: recorded.Shown, stem: Path) -> None:
    """``stem-light.svg`` and ``stem-dark.svg``."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    for theme in ("light", "dark"):
        stem.with_name(f"{stem.name}-{theme}.svg").write_text(
            each.svg(dark=theme == "dark"), encoding="utf-8"
        )


def _figure(each: recorded.Shown, stem: str) -> str:
    """Both drawings of it; the theme shows one of them."""
    alt = f"{each.title.replace('`', '')}, recorded on {each.lead}; its figures stand in the table"
    images = [
        f"```{{image}} figures/{stem}-{theme}.svg\n:class: only-{theme}\n:alt: {alt}\n```"
        for theme in ("light", "dark")
    ]
    return "::::{container} recorded\n" + "\n".join(images) + "\n::::"


def _recorded(every: list[recorded.Shown], stem: str, before: int | None) -> str:
    """All that was recorded: figures (but the one that stands above already) and tables."""
    if not every:
        return f":::{{note}}\n{recorded.NONE}\n:::"
    parts = [
        f"**What was recorded**, with `{every[0].lead.split(',')[0]}` in colour "
        "and other machines muted:"
    ]
    for index, each in enumerate(every):
        parts.append(f"**{each.title}**" + (f", at {each.at}" if each.at else ""))
        if each.drawn and index != before:
            parts.append(_figure(each, f"{stem}-{index}"))
        elif index == before:
            parts.append("Its figure stands at the panel above.")
        if each.drawn:
            parts.append(
                "<details><summary>Its figures as a table</summary>\n\n"
                f"{recorded.table(each)}\n\n</details>"
            )
        else:
            parts.append(recorded.table(each))
    return "\n\n".join(parts)
