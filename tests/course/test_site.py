"""The site, the slides and the teacher's guide: built from the files alone, whole, and in step
with the notebooks.
"""

from __future__ import annotations

import html.parser
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

import nbformat
import pytest

from course import records
from course.notebook_files import (
    ROOT,
    about,
    course_notebooks,
    first_notebooks,
    long_notebooks,
    place,
    read_notebook,
    tags,
)
from course.site import pages, recorded, slides
from labkit import charts
from labkit.show import Bar

NOTEBOOKS = course_notebooks()
LONG = long_notebooks()
NAMES = [path.stem for path in LONG]
GUIDE = (ROOT / "course" / "teaching.md").read_text(encoding="utf-8")


class Page(html.parser.HTMLParser):
    """What a test asks of a page: where its links and images lead, its anchors, its scripts, its
    text.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.links: list[str] = []
        self.images: list[dict[str, str]] = []
        # scripts and style sheets
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.text = ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if "id" in found:
            self.anchors.add(found["id"])
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag == "img":
            self.images.append(found)
        elif tag == "script" and "src" in found:
            self.loaded.append(found["src"])
        elif tag == "link" and "stylesheet" in found.get("rel", ""):
            self.loaded.append(found["href"])

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def site_pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in sorted(site.rglob("*.html"))}


def test_every_notebook_and_document_is_a_page(site: Path) -> None:
    wanted = [f"notebooks/{place(path)}.html" for path in NOTEBOOKS] + [
        f"{Path(name).with_suffix('')}.html" for name in pages.DOCUMENTS
    ]
    assert [name for name in ["index.html", *wanted] if not (site / name).is_file()] == []
    assert not list(site.rglob("_template.html"))


def test_links_and_anchors_lead_somewhere(site: Path, site_pages: dict[Path, Page]) -> None:
    lost = []
    for path, page in site_pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists() or (
                parts.fragment
                and target in site_pages
                and unquote(parts.fragment) not in site_pages[target].anchors
            ):
                lost.append(f"{path.relative_to(site)}: {link}")
    assert lost == []


def test_links_between_notebooks_are_links_between_pages(
    site: Path, site_pages: dict[Path, Page]
) -> None:
    found = 0
    for path in NOTEBOOKS:
        cells = read_notebook(path).cells
        text = "".join(cell.source for cell in cells if cell.cell_type == "markdown")
        page = site_pages[site / "notebooks" / f"{place(path)}.html"]
        for name in re.findall(r"\]\(((?:\.\./|deeper/)?\d\d_\w+)\.ipynb", text):
            assert any(link.split("#")[0] == f"{name}.html" for link in page.links), (
                f"{path.stem} has no link to {name}"
            )
            found += 1
        assert [link for link in page.links if link.endswith(".ipynb")] == [
            link for link in page.links if "_downloads" in link
        ]
    assert found > 10


def test_recorded_runs_stand_on_the_page(site: Path, site_pages: dict[Path, Page]) -> None:
    for path in LONG:
        name = path.stem
        page = site_pages[site / "notebooks" / f"{place(path)}.html"]
        every = recorded.shown(name)
        drawn = sum(each.drawn for each in every)
        images = [image for image in page.images if image["src"].endswith(".svg")]
        assert len(images) == 2 * drawn, name
        for theme in ("only-light", "only-dark"):
            assert sum(theme in image.get("class", "") for image in images) == drawn, name
        assert all(
            image.get("alt") and 'k-field"' in (page.path.parent / image["src"]).read_text("utf-8")
            for image in images
        )
        machines = records.reference(name).machines
        assert all(machine in page.text for machine in machines), name
        assert machines or recorded.NONE.split(";")[0] in page.text, name
        # the first figure of each, as labkit prints it
        for each in every:
            assert next(iter(each.rows()))[each.lead] in page.text, name
        assert not pages.claims(name) or "what explains it" in page.text, name


def test_nothing_is_loaded_from_elsewhere(site_pages: dict[Path, Page]) -> None:
    for path, page in site_pages.items():
        used = [*page.loaded, *(image["src"] for image in page.images)]
        assert [source for source in used if urlsplit(source).scheme not in ("", "data")] == [], (
            path
        )
        assert all(
            (path.parent / urlsplit(source).path).exists()
            for source in used
            if not urlsplit(source).scheme
        )


# ------------------------------------------------------------------------------------------ sources


def test_nothing_is_executed_to_make_a_page(tmp_path: Path) -> None:
    """Cells that would raise or write are only copied, and figures that a record does not hold
    do not appear.
    """
    written = tmp_path / "written"
    notebook = nbformat.v4.new_notebook(
        metadata={"kernelspec": {"name": "python3", "display_name": "Python"}}
    )
    card = nbformat.v4.new_markdown_cell("# A title", metadata={"tags": ["card"]})
    code = nbformat.v4.new_code_cell(
        f"open({str(written)!r}, 'w')\nraise SystemExit", metadata={"tags": ["panel"]}
    )
    solution = nbformat.v4.new_code_cell("solved = True", metadata={"tags": ["solution"]})
    notebook.cells = [card, code, solution]
    path = tmp_path / "99_new.ipynb"
    nbformat.write(notebook, path)
    page = pages.notebook_page(path, "99_new", tmp_path / "figures", set())
    assert not written.exists()
    assert [cell.source for cell in page.cells if cell.cell_type == "code"] == [
        code.source,
        solution.source,
    ]
    assert page.cells[-1].metadata["tags"] == ["hide-input"]
    assert not list(tmp_path.glob("figures/*"))


def test_links_of_documents() -> None:
    known = {"notebooks/05_batch_size.ipynb", "RESULTS.md", "data/reference/README.md"}

    def mended(text: str) -> str:
        return pages.mend_links(text, "notebooks/x.ipynb", known)

    assert mended("[a](05_batch_size.ipynb#Time-it)") == "[a](05_batch_size.ipynb#time-it)"
    assert (
        mended("[a](../RESULTS.md) and [b](#On-your-own)")
        == "[a](../RESULTS.md) and [b](#on-your-own)"
    )
    assert mended("[the licence](../LICENSE)") == "the licence (`LICENSE`)"
    assert mended("[`LICENSE`](../LICENSE)") == "`LICENSE`"
    assert mended("[readme](../README.md)") == "[readme](../index.md)"
    assert mended("[x](https://a.b/c.ipynb)") == "[x](https://a.b/c.ipynb)"
    for code in ("`[a](nowhere.md)`", "``f`[a](nowhere.md)``", "```python\nx[0](y)\n```"):
        assert mended(code) == code
    assert mended(r"$\texttt{a\_b} + c\_d$") == r"$\texttt{a_b} + c\_d$"
    with pytest.raises(ValueError, match="which is not there"):
        mended("[a](nowhere.md)")


def test_the_guide_names_each_notebook_with_its_minutes_in_class() -> None:
    sections = dict(
        re.findall(r"^### (\d\d_\w+)\n\n\*\*Class\*\* (\d+)\.", GUIDE, flags=re.MULTILINE)
    )
    assert [name for name in NAMES if name not in sections] == [], "course/teaching.md lacks these"
    for path in first_notebooks():
        minutes = about(path).minutes
        assert minutes <= int(sections[path.stem]) <= minutes + 30, (
            f"{path.stem}: {minutes} on its card"
        )
    named = set(re.findall(r"`(\d\d_\w+)`", GUIDE))
    assert named <= set(sections)
    for name, text in re.findall(
        r"^### (\d\d_\w+)\n(.*?)(?=^##)", GUIDE, flags=re.MULTILINE | re.DOTALL
    ):
        for part in (
            "**Before**",
            "**Objective**",
            "- *Ask: ",
            "**Misunderstanding**",
            "**Goes wrong**",
        ):
            assert part in text, f"{name}: no {part}"


# ------------------------------------------------------------------------------------------- slides


@pytest.mark.parametrize("path", LONG, ids=lambda path: path.stem)
def test_slides_begin_with_headings_and_have_no_solution(path: Path) -> None:
    deck = slides.slides(path)
    nbformat.validate(deck)
    kinds = [cell.metadata["slideshow"]["slide_type"] for cell in deck.cells]
    assert kinds[0] == "slide" and kinds.count("slide") >= 8
    for cell, kind in zip(deck.cells, kinds, strict=True):
        headings = re.findall(r"^#{1,4} ", re.sub(r"```.*?```", "", cell.source, flags=re.S), re.M)
        is_text = cell.cell_type == "markdown"
        assert len(headings if is_text else []) == (kind == "slide"), cell.source
    shown = "\n".join(cell.source for cell in deck.cells)
    for cell in read_notebook(path).cells:
        if set(tags(cell)) & {"solution", "claims"}:
            assert cell.source not in shown
    assert "<summary>Hint" not in shown and "ledger(" not in shown
    assert ".ipynb)" not in shown
    figures = shown.count("data:image/svg+xml")
    assert figures == sum(each.drawn for each in recorded.shown(path.stem))


def test_a_deck_is_reveal_js_from_where_it_is_told(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "course.site.slides", NAMES[0], "--out", tmp_path]
    subprocess.run([*command, "--reveal", "reveal.js"], check=True, timeout=120, cwd=ROOT)
    deck = (tmp_path / f"{NAMES[0]}.slides.html").read_text(encoding="utf-8")
    assert "reveal.js/dist/reveal.css" in deck and "unpkg" not in deck
    kinds = [each.metadata["slideshow"]["slide_type"] for each in slides.slides(LONG[0]).cells]
    # reveal.js wants a section of sections.
    assert deck.count("<section>") == 2 * kinds.count("slide")


def test_unknown_notebook_is_named() -> None:
    command = [sys.executable, "-m", "course.site.slides", "06_mixed"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "no notebook 06_mixed; there are: 00_start_here" in done.stderr


def test_the_readme_begins_with_a_picture_and_the_door_for_symptoms() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    first, _ = readme.split("## Two commands")
    picture = re.search(r"!\[.{40,}\]\((notebooks/pictures/still-\d\d\.svg)\)", first)
    assert picture and (ROOT / picture[1]).is_file()
    assert "](course/symptoms.md)" in first


def test_a_file_has_its_theme_and_its_size() -> None:
    picture = recorded.themed(charts.bars("one", [Bar("a", 1.0, "1 s")]), dark=True)
    root = ElementTree.fromstring(picture)
    assert root.get("data-theme") == "dark" and "width:640px" in root.get("style", "")
