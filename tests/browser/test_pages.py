"""The site and the slides in a real browser, on a phone and on a screen, in light and dark."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser

pytestmark = pytest.mark.browser
LOCAL = ("file", "data", "blob")


def test_formulas_are_set_and_no_page_scrolls_sideways(site: Path, browser: Browser) -> None:
    """On a phone and on a screen, in both themes; formulas by the MathJax that the site carries."""
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
            assert all(complete and natural > 100 for complete, natural in shown), name
            assert not any(hidden.nth(index).is_visible() for index in range(hidden.count())), name
        assert all(urlsplit(url).scheme in LOCAL for url in asked)
        page.close()


def test_slides_fit_and_are_not_empty(decks: Path, browser: Browser) -> None:
    """In a real browser: nothing made much smaller to fit, cut, empty, or loaded from elsewhere."""
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    measure = """[...document.querySelectorAll('section')].map((slide, index) => {
        const body = slide.querySelector('.body');
        const room = slide.querySelector('.room').getBoundingClientRect();
        const box = body.getBoundingClientRect();
        const count = query => slide.querySelectorAll(query).length;
        const pictures = body.querySelectorAll('img, mjx-container').length;
        return [index + 1, Number(slide.dataset.scale), box.bottom - room.bottom,
                body.textContent.trim().length + 1000 * pictures,
                count('h1'), count('mjx-merror')]; })"""
    for path in sorted(decks.glob("*.html")):
        page.goto(path.as_uri())
        page.wait_for_function("document.body.dataset.ready === 'true'")
        for number, scale, below, size, headings, wrong in page.evaluate(measure):
            where = f"{path.stem}, slide {number}"
            assert scale >= 0.6, f"{where} is overfull: made {scale} times as large"
            assert below < 2, f"{where} is cut"
            assert size >= 20, f"{where} is empty"
            assert headings == 1 and not wrong, where
    assert all(urlsplit(url).scheme in LOCAL for url in asked)
    page.close()


def test_slides_are_turned_by_keys_and_by_address(decks: Path, browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 800, "height": 600})
    page.goto((decks / "00_start_here.html").as_uri() + "#3")
    place = page.locator("#place")
    count = page.locator("section").count()
    assert place.inner_text() == f"3 / {count}"
    for key, number in (
        ("ArrowRight", 4),
        ("ArrowLeft", 3),
        (" ", 4),
        ("End", count),
        ("ArrowRight", count),
        ("Home", 1),
    ):
        page.keyboard.press(key)
        assert place.inner_text() == f"{number} / {count}"
        assert page.locator("section.current").count() == 1
    assert page.url.endswith("#1")
    assert (
        page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        <= 0
    )
    page.close()


def test_a_deck_prints_one_slide_a_page(decks: Path, browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    page.goto((decks / "00_start_here.html").as_uri())
    page.wait_for_function("document.body.dataset.ready === 'true'")
    printed = page.pdf(prefer_css_page_size=True)
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) == page.locator("section").count()
    page.close()
