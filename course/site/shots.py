"""The README's picture: a panel of a real notebook after a live run on this machine, in a real
browser.

    uv run python -m course.site.shots      writes images/panel.webp

Needs Chromium or Chrome, and the data.

Look at it before you commit it: it shows whatever this machine measured.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from course.notebook_files import ROOT, notebook_path, read_notebook, tags
from tests.browser.harness import CHROMIUM_FLAGS, NotebookPage, find_chromium, running_server

NOTEBOOK = "01_timing_and_vectorization"
# from column by column to the whole product
CONTROL, STEPS = "block", 4
SECONDS = 5.0
# bytes
LARGEST = 400_000
TARGET = ROOT / "course" / "site" / "images" / "panel.webp"


def main() -> int:
    chromium = find_chromium()
    if chromium is None:
        print("no chromium, chromium-browser or google-chrome on PATH", file=sys.stderr)
        return 1
    # the full size: what readers see
    os.environ["LABKIT_SIZE"] = "full"
    with (
        tempfile.TemporaryDirectory() as folder,
        running_server(Path(folder)) as server,
        sync_playwright() as p,
    ):
        browser = p.chromium.launch(executable_path=chromium, args=CHROMIUM_FLAGS)
        page = NotebookPage(server, browser, width=1180, height=1100, scale=2)
        try:
            path = notebook_path(NOTEBOOK)
            page.open(path)
            for index, cell in enumerate(read_notebook(path).cells):
                page.run_cell(index)
                if "panel" in tags(cell):
                    break
            panel = page.panel()
            panel.set_slider(CONTROL, STEPS)
            panel.set_budget(SECONDS)
            panel.run()
            panel.wait_number()
            print(panel.wait_finished(), panel.speedup(), panel.verdict())
            panel.root.scroll_into_view_if_needed()
            picture = Image.open(io.BytesIO(panel.root.screenshot())).convert("RGB")
        finally:
            page.close()
            browser.close()
    TARGET.parent.mkdir(exist_ok=True)
    for quality in (90, 80, 70, 60):
        picture.save(TARGET, quality=quality, method=6)
        if TARGET.stat().st_size < LARGEST:
            print(
                f"{TARGET.relative_to(ROOT)}: {picture.width} x {picture.height}, "
                f"{TARGET.stat().st_size} bytes"
            )
            return 0
    print(f"{TARGET}: larger than {LARGEST} bytes", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
