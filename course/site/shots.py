"""The README's picture in motion: a panel during two live runs on this machine, in a real browser.

    uv run python -m course.site.shots      writes images/panel.webp

Needs Chromium or Chrome, and the data.

Look at it before you commit it: it shows whatever this machine measured.
"""

from __future__ import annotations

import io
import sys
import time

from PIL import Image

from course.notebook_files import ROOT
from course.site.stage import staged
from tests.browser.harness import Panel

# Memory is counted, not timed: other programs do not disturb it.
NOTEBOOK = "11_activation_checkpointing"
# Pressed one after the other.
SCENARIOS = ("8 pieces (every 3 blocks)", "24 pieces (every block)")
# Steps of the slider, to the left.
BET = -8
# Between two frames, and how long the last one of a run stands.
PACE, REST = 0.2, 3.0
# In bytes.
LARGEST = 2_000_000
TARGET = ROOT / "course" / "site" / "images" / "panel.webp"


def main() -> int:
    with staged(NOTEBOOK, width=1040, height=1100) as (_, panel):
        film = filmed(panel)
    return written(film)


def filmed(panel: Panel) -> list[tuple[Image.Image, float]]:
    """Frames, with the seconds for which each is shown: of each scenario a bet, and its run."""
    panel.root.scroll_into_view_if_needed()
    film = []
    for scenario in SCENARIOS:
        panel.scenario(scenario)
        panel.guess(BET)
        film.append((frame(panel), 1.5))
        panel.run()
        film += run_through(panel)
    return film


def run_through(panel: Panel) -> list[tuple[Image.Image, float]]:
    """Frames from now to the end of the run that was just started."""
    film = []
    panel.wait_number()
    while panel.running():
        begin = time.monotonic()
        film.append((frame(panel), PACE))
        time.sleep(max(0.0, PACE - (time.monotonic() - begin)))
    print(panel.wait_finished(), panel.speedup(), panel.verdict())
    return [*film, (frame(panel), REST)]


def frame(panel: Panel) -> Image.Image:
    """The panel as it is."""
    return Image.open(io.BytesIO(panel.root.screenshot())).convert("RGB")


def written(film: list[tuple[Image.Image, float]]) -> int:
    """Save the film as an animated WebP, as fine as its size may be; 1 if it is too large."""
    size = (film[-1][0].width, max(each.height for each, _ in film))
    frames = []
    for each, _ in film:
        whole = Image.new("RGB", size, "white")
        whole.paste(each)
        frames.append(whole)
    milliseconds = [round(1000 * seconds) for _, seconds in film]
    TARGET.parent.mkdir(exist_ok=True)
    for quality in (80, 65, 50, 35):
        first, *others = frames
        first.save(
            TARGET,
            save_all=True,
            append_images=others,
            duration=milliseconds,
            loop=0,
            quality=quality,
            method=4,
        )
        if TARGET.stat().st_size < LARGEST:
            told = f"{len(frames)} frames of {size[0]} x {size[1]}, {TARGET.stat().st_size} bytes"
            print(f"{TARGET.relative_to(ROOT)}: {told}")
            return 0
    print(f"{TARGET}: larger than {LARGEST} bytes", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
