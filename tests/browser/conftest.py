"""Fixtures of the browser tests.

One JupyterLab and one Chromium for all of them, a page for each module.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.forked import Forks

from .harness import (
    CHROMIUM_FLAGS,
    VIEWPORT,
    JupyterServer,
    NotebookPage,
    find_chromium,
    running_server,
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = find_chromium()
    if path is None:
        message = (
            "no chromium, chromium-browser or google-chrome on PATH "
            "(Debian: apt-get install chromium)"
        )
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=CHROMIUM_FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def blank(browser: Browser) -> Iterator[Page]:
    """A page with nothing on it, for the models of moving pictures."""
    page = browser.new_page()
    yield page
    page.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, forks: Forks) -> Iterator[JupyterServer]:
    with running_server(tmp_path_factory.mktemp("jupyter"), forks.variables) as started:
        yield started


@pytest.fixture(scope="session")
def context(browser: Browser) -> Iterator[BrowserContext]:
    opened = browser.new_context()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def page_with_lab(
    browser: Browser, context: BrowserContext, server: JupyterServer
) -> Iterator[NotebookPage]:
    page = NotebookPage(server, browser, context=context)
    yield page
    page.close()


@pytest.fixture
def lab_page(page_with_lab: NotebookPage) -> Iterator[NotebookPage]:
    """JupyterLab without a notebook: started once for a module, since that takes seconds."""
    page_with_lab.page.set_viewport_size(VIEWPORT)
    page_with_lab.console.clear()
    yield page_with_lab
    page_with_lab.leave()
