"""The three annotated pictures of the first notebook, taken from its own panel in a real browser.

    uv run python -m course.site.pictures      writes notebooks/pictures/panel-*.svg

Each holds the panel in both themes; a browser shows the one that its page asks for. Needs Chromium
or Chrome. Look at them before you commit them: they show whatever this machine measured.
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
COLOURS = 40
# Around what is shown, in pixels.
MARGIN = 14


class Picture(NamedTuple):
    """A part of the panel, from the top of one element to the end of another, and its numbers.

    A number stands on an element: so far to its right and down, as parts of its size.
    """

    title: str
    first: str
    last: str
    numbers: tuple[tuple[str, float, float], ...]


PICTURES = {
    "panel-set": Picture(
        "The upper half of a panel",
        ".labkit-modes",
        ".labkit-run",
        (
            (".labkit-modes", 1, 0),
            (".labkit-scenario >> nth=-1", 1, 0),
            (".labkit-rows-candidate .widget-readout", 0.9, 0.5),
            (".labkit-summary", 0.33, 0.5),
            (".labkit-guessed", 0.5, -0.5),
        ),
    ),
    "panel-time": Picture(
        "The result of a run",
        ".labkit-results",
        ".labkit-picture",
        (
            (".labkit-speedup", 0.6, 0.5),
            (".labkit-head .labkit-badge", 1.25, 0.5),
            (".labkit-caption", 0.65, 0.5),
            (".labkit-picture", 0.77, 0.62),
            (".labkit-picture", 0.42, 0.72),
        ),
    ),
    "panel-memory": Picture(
        "Memory during a step",
        ".labkit-results",
        ".labkit-picture",
        ((".labkit-picture", 0.52, 0.4), (".labkit-picture", 0.46, 0.68)),
    ),
}


def main() -> int:
    with staged(NOTEBOOK, width=1180, height=1100) as (page, panel):
        panel.scenario("a wide layer")
        panel.guess(8)
        panel.run()
        panel.wait_finished()
        print(panel.speedup(), panel.verdict())
        take(page, panel, "panel-set")
        take(page, panel, "panel-time")
        panel.mode("Memory")
        panel.run()
        panel.wait_finished()
        take(page, panel, "panel-memory")
    return 0


def take(page: NotebookPage, panel: Panel, name: str) -> None:
    """Write one picture, in both themes."""
    picture = PICTURES[name]
    shots: dict[str, bytes] = {}
    for theme in ("light", "dark"):
        page.set_theme(theme)
        panel.root.scroll_into_view_if_needed()
        whole = box(panel, None)
        first, last = box(panel, picture.first), box(panel, picture.last)
        top, bottom = first["y"] - MARGIN, last["y"] + last["height"] + MARGIN
        part = FloatRect(x=whole["x"], y=top, width=whole["width"], height=bottom - top)
        shots[theme] = page.page.screenshot(clip=part)
    page.set_theme("light")
    spots = []
    for selector, right, down in picture.numbers:
        found = box(panel, selector)
        x = found["x"] + found["width"] * right
        spots.append((x - part["x"], found["y"] + found["height"] * down - part["y"]))
    path = FOLDER / f"{name}.svg"
    path.write_text(drawing(picture.title, part, shots, spots), encoding="utf-8")
    print(path.relative_to(ROOT), path.stat().st_size, "bytes")


def box(panel: Panel, selector: str | None) -> FloatRect:
    """Where an element stands on the page; the panel itself without a selector."""
    found = panel.root if selector is None else panel.root.locator(selector).first
    place = found.bounding_box()
    assert place is not None, f"{selector} is not on the page"
    return place


def drawing(
    title: str, part: FloatRect, shots: dict[str, bytes], spots: list[tuple[float, float]]
) -> str:
    """The SVG: a screenshot a theme, and the numbers on top."""
    width, height = round(part["width"]), round(part["height"])
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img">',
        f"<title>{title}</title>",
        "<style>.dark { display: none } @media (prefers-color-scheme: dark) "
        "{ .dark { display: inline } .light { display: none } }</style>",
    ]
    for theme, shot in shots.items():
        lines.append(
            f'<image class="{theme}" width="{width}" height="{height}" '
            f'href="data:image/png;base64,{small(shot)}"/>'
        )
    lines.append(
        '<g font-family="sans-serif" font-size="16" font-weight="bold" text-anchor="middle">'
    )
    for number, (x, y) in enumerate(spots, 1):
        lines.append(
            f'<circle cx="{x:.0f}" cy="{y:.0f}" r="13" fill="#d55e00" stroke="#fff" '
            f'stroke-width="2"/><text x="{x:.0f}" y="{y + 6:.0f}" fill="#fff">{number}</text>'
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
