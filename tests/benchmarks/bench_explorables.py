"""Milliseconds that a move of each explorable takes, from the key to the drawn frame. By hand:
``uv run python tests/benchmarks/bench_explorables.py``.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from course.explorables import Explorable, alive  # noqa: E402
from tests.browser.harness import CHROMIUM_FLAGS, find_chromium  # noqa: E402

MOVES = 60
# Every slider is moved to and fro. A move is over when the browser has painted what it changed:
# the task behind the frame. Of a frame's 16.7 ms some are waiting: `work` is the script alone.
MEASURE = """async moves => {
    const painted = () => new Promise(done => requestAnimationFrame(() => setTimeout(done)));
    const found = [];
    for (const slider of document.querySelectorAll('input.xp-range')) {
        for (let i = 0; i < moves; i++) {
            slider.value = Math.round(slider.max * (i % 10) / 9);
            await painted();
            const begin = performance.now();
            slider.dispatchEvent(new Event('input'));
            let work = 0;
            requestAnimationFrame(() => { work = performance.now(); });
            const start = await new Promise(requestAnimationFrame);
            await new Promise(done => setTimeout(done));
            found.push([performance.now() - begin, work - start]);
        }
    }
    return found;
}"""


def main() -> int:
    path = find_chromium()
    if path is None:
        print("no chromium, chromium-browser or google-chrome on PATH", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=CHROMIUM_FLAGS)
        for explorable in Explorable.__subclasses__():
            file = Path(folder, f"{explorable.__name__}.html")
            page = f"<!doctype html><meta charset=utf-8><body>{alive(explorable)}"
            file.write_text(page, encoding="utf-8")
            print(f"{explorable.__name__:16}{measured(browser, file)}")
        browser.close()
    return 0


def measured(browser, file: Path) -> str:
    tab = browser.new_page(viewport={"width": 1000, "height": 900})
    tab.goto(file.as_uri())
    tab.locator(".xp-result", has_text="e").wait_for()
    moves, work = zip(*tab.evaluate(MEASURE, MOVES), strict=True)
    tab.close()
    return (
        f"{len(moves)} moves: median {median(moves):.1f} ms, 95 % below {late(moves):.1f}, "
        f"longest {max(moves):.1f}; script alone: median {median(work):.1f}, "
        f"95 % below {late(work):.1f}, longest {max(work):.1f}"
    )


def median(values: tuple[float, ...]) -> float:
    return sorted(values)[len(values) // 2]


def late(values: tuple[float, ...]) -> float:
    return sorted(values)[int(0.95 * len(values))]


if __name__ == "__main__":
    sys.exit(main())
