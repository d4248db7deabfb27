"""Milliseconds that a result's picture and its HTML take. By hand:
``uv run python tests/benchmarks/bench_drawing.py``.

A panel draws five times a second while it measures: a picture takes well under 10 ms.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from labkit.memory_timeline import MemoryComparison, Timeline  # noqa: E402
from labkit.racing import RaceResult, RaceRun  # noqa: E402
from labkit.results import Comparison, Measurement  # noqa: E402

TRIALS = 50


def comparison(pairs: int = 600) -> Comparison:
    sides = []
    for name, seconds in (("baseline", 0.0040), ("candidate", 0.0030)):
        times = tuple(seconds * (1 + 0.05 * (i * 7919 % 100) / 100) for i in range(pairs))
        builds = tuple(10 * i // pairs for i in range(pairs))
        sides.append(Measurement(name, times=times, builds=builds))
    return Comparison(*sides)


def race(seeds: int = 5, points: int = 60) -> RaceResult:
    runs = []
    for arm in ("baseline", "candidate"):
        for seed in range(seeds):
            curve = tuple((10 * i, 0.1 * i, 27 / (i + seed)) for i in range(1, points))
            runs.append(RaceRun(arm, seed, curve, True))
    return RaceResult(tuple(runs), 9.0, "perplexity", False)


def memory(events: int = 1500) -> MemoryComparison:
    sides = []
    for name, height in (("baseline", 4), ("candidate", 1)):
        rising = [height * (i if 2 * i < events else events - i) for i in range(events)]
        parts = (0, "forward"), (events // 2, "backward")
        sides.append(Timeline(name, peak=max(rising), alive=tuple(rising), parts=parts))
    return MemoryComparison(*sides)


def milliseconds(draw: Callable[[], object]) -> float:
    taken = []
    for _ in range(TRIALS):
        begin = time.perf_counter()
        draw()
        taken.append(1000 * (time.perf_counter() - begin))
    return median(taken)


def main() -> None:
    for result in (comparison(), race(), memory()):
        picture, whole = milliseconds(result.picture), milliseconds(result._repr_html_)
        name = type(result).__name__
        print(f"{name:18} picture {picture:6.2f} ms, as HTML {whole:6.2f} ms, n={TRIALS}")


if __name__ == "__main__":
    main()
