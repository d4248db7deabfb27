"""The site in a real browser, on a phone and on a screen, in light and dark."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser

pytestmark = pytest.mark.browser
LOCAL = ("file", "data", "blob")


def test_formulas_are_set_and_no_page_scrolls_sideways(site: Path, browser: Browser) -> None:
    """On a phone and on a screen, in both themes; formulas by the MathJax that the site carries.

    Stills can be read: on a phone one scrolls them in their own box.
    """
    for scheme, width in (("light", 390), ("dark", 1300)):
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        asked: list[str] = []
        page.on("request", lambda request, asked=asked: asked.append(request.url))
        for name in (
            "index",
            "notebooks/05_batch_size",
            "notebooks/00_start_here",
            "RESULTS",
            "course/teaching",
        ):
            page.goto((site / f"{name}.html").as_uri())
            page.wait_for_function(
                """() => {
                const math = document.querySelectorAll('.math').length;
                const drawn = document.querySelectorAll('mjx-container').length;
                return math === 0 || (window.MathJax?.startup?.promise && drawn >= math);
                }"""
            )
            assert page.locator("mjx-merror").count() == 0
            assert (
                page.evaluate(
                    "document.documentElement.scrollWidth - document.documentElement.clientWidth"
                )
                <= 0
            ), name
            shown = page.locator(f"img.only-{scheme}").evaluate_all(
                "all => all.map(i => [i.complete, i.naturalWidth])"
            )
            hidden = page.locator(f"img.only-{'dark' if scheme == 'light' else 'light'}")
            stills = page.locator("img[src*='still-']").all()
            # Letters of a still are 11 of its 940 pixels high: 8 on the page at least.
            assert all(each.bounding_box()["width"] > 684 for each in stills), name
            assert stills or not name.startswith("notebooks"), name
            assert all(complete and natural > 100 for complete, natural in shown), name
            assert not any(hidden.nth(index).is_visible() for index in range(hidden.count())), name
        assert all(urlsplit(url).scheme in LOCAL for url in asked)
        page.close()
