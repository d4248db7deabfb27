"""A notebook's panel in a real browser, for pictures of it. Needs Chromium or Chrome."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import sync_playwright

from course.notebook_files import notebook_path, read_notebook, tags
from tests.browser.harness import (
    CHROMIUM_FLAGS,
    NotebookPage,
    Panel,
    find_chromium,
    running_server,
)


@contextmanager
def staged(notebook: str, width: int, height: int) -> Iterator[tuple[NotebookPage, Panel]]:
    """The panel, in the size that readers see, on a page of ``width`` x ``height`` pixels.

    Cells with a tag are run up to it, but for the explorable. SystemExit without a browser.
    """
    chromium = find_chromium()
    if chromium is None:
        raise SystemExit("no chromium, chromium-browser or google-chrome on PATH")
    os.environ["LABKIT_SIZE"] = "full"
    with (
        tempfile.TemporaryDirectory() as folder,
        running_server(Path(folder)) as server,
        sync_playwright() as play,
    ):
        browser = play.chromium.launch(executable_path=chromium, args=CHROMIUM_FLAGS)
        page = NotebookPage(server, browser, width, height)
        try:
            yield page, opened(page, notebook)
        finally:
            page.close()
            browser.close()


def opened(page: NotebookPage, notebook: str) -> Panel:
    """The panel of a notebook, whose cells are run up to it."""
    path = notebook_path(notebook)
    page.open(path)
    for index, cell in enumerate(read_notebook(path).cells):
        # A cell without a tag takes its time and is not on the picture.
        if cell.cell_type == "code" and tags(cell) and "explorable" not in tags(cell):
            page.run_cell(index)
        if "panel" in tags(cell):
            break
    return page.panel()
