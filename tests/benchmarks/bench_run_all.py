"""How long each front notebook takes in its full size, opened in a browser: a table.

Open: until its kernel is ready, where the card's still is on the screen already. Panel: *Run All*
until the first panel is there. All: until the last cell has ended. Number: from a click on *Run* to
the first number. On a quiet machine about a minute a notebook:
``uv run python tests/benchmarks/bench_run_all.py [06_mixed_precision ...]``.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))
os.environ["LABKIT_SIZE"] = "full"
# Threads as a reader has them.
THREADS = os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))

from course.front import is_front  # noqa: E402
from course.notebook_files import read_notebook  # noqa: E402
from tests.browser.harness import (  # noqa: E402
    CHROMIUM_FLAGS,
    JupyterServer,
    NotebookPage,
    find_chromium,
    running_server,
)

# The longest wait for any one of the steps, in seconds.
PATIENCE = 300.0


def timed(server: JupyterServer, browser: Browser, name: str) -> str:
    """A row of the table; RuntimeError where a cell fails."""
    page = NotebookPage(server, browser, 1400, 900)
    page.page.set_default_timeout(1000 * PATIENCE)
    begun = time.monotonic()
    page.open(ROOT / "notebooks" / f"{name}.ipynb")
    opened = time.monotonic() - begun
    stills = page.page.locator(".jp-RenderedMarkdown img[src*='still']").count()

    begun = time.monotonic()
    page._js("app.commands.execute('notebook:run-all-cells');")
    page.page.locator(".labkit-panel .labkit-live").first.wait_for()
    there = time.monotonic() - begun
    # A cell that runs or waits shows a star.
    page.page.wait_for_function(
        "![...document.querySelectorAll('.jp-InputPrompt')]"
        ".some(prompt => prompt.textContent.includes('*'))"
    )
    taken = time.monotonic() - begun
    errors = page._errors()
    if errors:
        raise RuntimeError(f"{name}: {errors}")

    panel = page.panel()
    panel.run()
    waited = panel.wait_number(PATIENCE)
    panel.stop()
    page.close()
    figures = " | ".join(f"{seconds:.1f}" for seconds in (opened, there, taken, waited))
    return f"| {name} | {'yes' if stills else 'no'} | {figures} |"


def main(names: list[str]) -> None:
    every = sorted((ROOT / "notebooks").glob("*.ipynb"))
    names = names or [path.stem for path in every if is_front(read_notebook(path))]
    print(f"| notebook, {THREADS} threads | picture at once | open, s | panel | all | number |")
    print("|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["LABKIT_BOARD"] = str(Path(folder, "board.json"))
        with running_server(Path(folder)) as server, sync_playwright() as play:
            browser = play.chromium.launch(executable_path=find_chromium(), args=CHROMIUM_FLAGS)
            for name in names:
                print(timed(server, browser, name), flush=True)
            browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
