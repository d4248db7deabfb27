"""The labelled picture of the first notebook, taken from its own panel in a real browser.

    uv run python -m course.site.pictures      writes notebooks/pictures/panel-time.svg

It holds the panel in both themes; a browser shows the one that its page asks for. Needs Chromium
or Chrome. Look at it before you commit it: it shows whatever this machine measured.
"""

from __future__ import annotations

import base64
import io
import sys
from typing import NamedTuple

from PIL import Image
from playwright.sync_api import FloatRect

from course.notebook_files import ROOT
from course.site.stage import staged
from tests.browser.harness import NotebookPage, Panel

NOTEBOOK = "00_start_here"
FOLDER = ROOT / "notebooks" / "pictures"
# Few, for small files; the panel has no more.
COLOURS = 64


class Label(NamedTuple):
    """Words on an element: so far to its right and down, as parts of its size."""

    words: str
    selector: str
    right: float
    down: float


NAME, TITLE = "panel-time", "A panel after a run"
DRAWN = ".labkit-picture"
LABELS = (
    Label("what to try", ".labkit-scenarios", 1.05, 0.5),
    Label("what differs, what is alike", ".labkit-summary", 0.36, 0.5),
    Label("your bet, above", ".labkit-run", 3.1, 0.5),
    Label("factor", ".labkit-speedup", 0.54, 0.5),
    Label("verdict", ".labkit-head .labkit-badge", 1.1, 0.5),
    Label("time of a step; below, its memory", DRAWN, 0.14, 0.12),
    Label("noise floor", DRAWN, 0.04, 0.72),
    Label("a pair", DRAWN, 0.905, 0.76),
    Label("interval", DRAWN, 0.67, 0.78),
    Label("all figures", ".labkit-how", 1.12, 0.5),
)
# Pixels of a letter, and around the words of a label.
LETTER, ROOM, HIGH = 8.3, 9, 24


def main() -> int:
    with staged(NOTEBOOK, width=1180, height=1100) as (page, panel):
        panel.scenario("a wide layer")
        panel.guess(8)
        panel.run()
        panel.wait_finished()
        print(panel.speedup(), panel.verdict())
        take(page, panel)
    return 0


def take(page: NotebookPage, panel: Panel) -> None:
    """Write the picture, in both themes."""
    shots: dict[str, bytes] = {}
    for theme in ("light", "dark"):
        page.set_theme(theme)
        panel.root.scroll_into_view_if_needed()
        part = box(panel, None)
        shots[theme] = page.page.screenshot(clip=part)
    page.set_theme("light")
    spots = []
    for label in LABELS:
        found = box(panel, label.selector)
        x = found["x"] + found["width"] * label.right - part["x"]
        y = found["y"] + found["height"] * label.down - part["y"]
        spots.append((label.words, x, y))
    path = FOLDER / f"{NAME}.svg"
    path.write_text(drawing(part, shots, spots), encoding="utf-8")
    print(path.relative_to(ROOT), path.stat().st_size, "bytes")


def box(panel: Panel, selector: str | None) -> FloatRect:
    """Where an element stands on the page; the panel itself without a selector."""
    found = panel.root if selector is None else panel.root.locator(selector).first
    place = found.bounding_box()
    assert place is not None, f"{selector} is not on the page"
    return place


def drawing(part: FloatRect, shots: dict[str, bytes], spots: list[tuple[str, float, float]]) -> str:
    """The SVG: a screenshot a theme, and the labels on top, each at the left end of its words."""
    width, height = round(part["width"]), round(part["height"])
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img">',
        f"<title>{TITLE}</title>",
        "<style>.dark { display: none } @media (prefers-color-scheme: dark) "
        "{ .dark { display: inline } .light { display: none } }</style>",
    ]
    for theme, shot in shots.items():
        lines.append(
            f'<image class="{theme}" width="{width}" height="{height}" '
            f'href="data:image/png;base64,{small(shot)}"/>'
        )
    lines.append('<g font-family="sans-serif" font-size="14" font-weight="bold">')
    for words, x, y in spots:
        wide = LETTER * len(words) + 2 * ROOM
        lines.append(
            f'<rect x="{x:.0f}" y="{y - HIGH / 2:.0f}" width="{wide:.0f}" height="{HIGH}" '
            f'rx="{HIGH / 2:.0f}" fill="#b34a00"/>'
            f'<text x="{x + wide / 2:.0f}" y="{y + 5:.0f}" fill="#fff" text-anchor="middle">'
            f"{words}</text>"
        )
    return "\n".join([*lines, "</g>", "</svg>", ""])


def small(shot: bytes) -> str:
    """A screenshot with few colours, in base64."""
    picture = Image.open(io.BytesIO(shot)).convert("RGB")
    packed = io.BytesIO()
    picture.quantize(COLOURS).save(packed, "PNG", optimize=True)
    return base64.b64encode(packed.getvalue()).decode()


if __name__ == "__main__":
    sys.exit(main())
