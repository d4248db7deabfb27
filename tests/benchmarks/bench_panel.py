"""What the live panel costs, in a real browser. By hand:
``uv run python tests/benchmarks/bench_panel.py``.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from tests.browser.harness import CHROMIUM_FLAGS, NotebookPage, find_chromium, running_server  # noqa: E402

SET_UP = """
import threading, time, torch
from labkit import Lab, Workload
from labkit.panel import LabPanel
from labkit.results import median_interval

def make_workload(same):
    matrix = torch.randn(128, 128)
    begin = time.perf_counter()
    for _ in range(200):
        matrix @ matrix
    times = max(1, round(0.001 / ((time.perf_counter() - begin) / 200)))
    times = globals().setdefault("TIMES", times)
    def step():
        for _ in range(times):
            matrix @ matrix
    return Workload(step)

lab = Lab(make_workload, memory=False, same=[1, 2])
"""
# Steps of about so many milliseconds, and a budget as in a front notebook.
CHANGED = """
def make_slow(size, milliseconds):
    step = make_workload(1).step
    return Workload(lambda: [step() for _ in range(milliseconds)])

slow = LabPanel(Lab(make_slow, size=[1, 2], situation={"milliseconds": [5, 10, 18]}), seconds=10)
slow
"""
PANEL = "panel = LabPanel(lab, seconds=3)\npanel"
# The kit stops early once the intervals are narrow; an unreachable precision keeps every run at its
# full budget.
TRIALS = """
import labkit.alternating
labkit.alternating.ENOUGH = 0
seconds = 3.0


def step_time(result):
    times = sorted(result.baseline.times + result.candidate.times)
    return times[len(times) // 2]

def off():
    kept = []
    options = {"seconds": seconds, "on_update": lambda partial: None}
    thread = threading.Thread(target=lambda: kept.append(lab.run(same=2, **options)))
    thread.start(); thread.join()
    return step_time(kept[0])

def on():
    panel.run()
    return step_time(panel.wait())

ratios = []
for trial in range(%d):
    pair = (on(), off()) if trial %% 2 else (off(), on())[::-1]
    ratios.append(100 * (pair[0] / pair[1] - 1))
low, high = median_interval(tuple(ratios))
middle = sorted(ratios)[len(ratios) // 2]
print(f"live panel on against off, 1 ms step: {middle:+.2f} %% [{low:+.2f}, {high:+.2f}] "
      f"n={len(ratios)} of {seconds:g} s each  goal <= 1 %%")
"""


def tell_changes(page: NotebookPage) -> None:
    """From a key on a slider to the first number of the run that it starts, in the middle of one
    run and after it.
    """
    panel = page.panel(1)
    panel.open_more()
    panel.run()
    panel.wait_number()
    waits = []
    for trial in range(12):
        if trial % 2:
            panel.stop()
            panel.wait_finished()
        step = 1 if trial // 2 % 2 == 0 else -1
        panel._before = panel._started()
        begin = time.monotonic()
        panel.set_slider("milliseconds", step)
        panel.wait_number()
        waits.append(time.monotonic() - begin)
    panel.stop()
    panel.wait_finished()
    waits.sort()
    print(
        f"first number after a change: median {waits[len(waits) // 2]:.2f} s, "
        f"{waits[0]:.2f} to {waits[-1]:.2f} s, n={len(waits)}, steps of 5 to 18 ms  goal <= 1 s",
        flush=True,
    )


def main(trials: int = 10) -> None:
    os.environ["LABKIT_SIZE"] = "full"
    folder = tempfile.TemporaryDirectory()
    with folder as path, running_server(Path(path)) as server, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=find_chromium(), args=CHROMIUM_FLAGS)
        page = NotebookPage(server, chromium)
        page.open([SET_UP, PANEL, CHANGED], "bench")
        assert page.run_all() == []
        panel = page.panel()
        waits = []
        for _ in range(5 if trials else 0):
            panel.run()
            waits.append(panel.wait_number())
            panel.stop()
            panel.wait_finished()
        tell_changes(page)
        if trials:
            span = f"{min(waits):.2f} to {max(waits):.2f} s"
            print(f"first live number after Run: {span}, n={len(waits)}  goal <= 5 s", flush=True)
            print(page.execute(TRIALS % trials), flush=True)
        page.close()
        chromium.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
