"""axe-core looks at panel, board and site: names of controls, contrast, roles. At the explorables
it looks in `test_explorables`.

Rules are those of WCAG 2, levels A and AA. What JupyterLab and Sphinx draw themselves is theirs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from .harness import NotebookPage
from .test_panel import IMPORTS, LAB

pytestmark = pytest.mark.browser

RULES: dict[str, Any] = {
    "resultTypes": ["violations"],
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa"]},
}
THEMES = ("light", "dark")


def faults(page: Page, *parts: str) -> list[str]:
    """What axe finds in these parts of a page, in words."""
    found = Axe().run(page, list(parts), RULES)
    return [
        f"{fault['id']}: {node['target']}: {node['failureSummary']}"
        for fault in found.response["violations"]
        for node in fault["nodes"]
    ]


def in_both_themes(lab_page: NotebookPage, part: str) -> list[str]:
    """What axe finds in a part of a notebook; JupyterLab keeps the last theme, so light is last."""
    found = []
    for theme in reversed(THEMES):
        lab_page.set_theme(theme)
        found += [f"{theme}: {fault}" for fault in faults(lab_page.page, part)]
    return found


def test_a_panel_after_a_run(lab_page: NotebookPage) -> None:
    lab_page.open([IMPORTS, LAB], "accessible-panel.ipynb")
    assert lab_page.run_all() == []
    panel = lab_page.panel()
    panel.run()
    panel.wait_finished()
    panel.open_more()
    assert in_both_themes(lab_page, ".labkit-panel") == []


@pytest.mark.parametrize("theme", THEMES)
def test_pages_of_the_site(site: Path, browser: Browser, theme: str) -> None:
    page = browser.new_page(color_scheme=theme, reduced_motion="reduce")
    for name in ("index", "notebooks/11_activation_checkpointing", "course/symptoms"):
        page.goto((site / f"{name}.html").as_uri())
        found = faults(page, "article")
        assert not found, f"{name}: {found}"
    page.close()
