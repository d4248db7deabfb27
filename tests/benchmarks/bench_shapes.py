"""What `whyslow.watch` promises in loops in the shape of public scripts, and what is gained there.

    python tests/benchmarks/bench_shapes.py [NAME ...]

Each loop of tests/whyslow/shapes.py is watched. Its heaviest line promises its share of the time;
mended, the loop runs without the planted wait, in turn with the loop as it is. The promise is of
the whole loop, validation and loading included: no experiment is made, `bench_diagnose.py` holds
those. By hand, on one thread: the waits sleep, so that another busy program disturbs little.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

import whyslow  # noqa: E402
from labkit.restore.attributes import patched  # noqa: E402
from labkit.text import aligned  # noqa: E402
from tests.whyslow.shapes import SHAPES, Shape  # noqa: E402

# Each form runs so often, in turn.
ROUNDS = 5


def main() -> None:
    """Print a row for each shape."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    torch.set_num_threads(1)
    rows = [["shape", "found first", "right", "promised", "gained", "of the promise"]]
    for name in parser.parse_args().names or SHAPES:
        rows.append([name, *row(SHAPES[name])])
        print(" ".join(rows[-1]), file=sys.stderr, flush=True)
    print(aligned(rows))


def row(shape: Shape) -> list[str]:
    """What was found first, whether it was planted, the gain that it promises, and the real one."""
    shape.run()
    with whyslow.watch(show=False) as watched:
        shape.run()
    first = watched.report.lines[0]
    low, high = first.interval
    gains = []
    for _ in range(ROUNDS):
        slow = seconds(shape)
        with patched(time, "sleep", lambda wait: None):
            gains.append(1 - seconds(shape) / slow)
    gained = statistics.median(gains)
    right = first.cause == shape.cause and shape.line in first.source
    promised = f"{first.share:.0%} [{low:.0%}, {high:.0%}]"
    scatter = f"{gained:.0%} [{min(gains):.0%}, {max(gains):.0%}]"
    found = f"{first.cause}: {first.source[:44]}"
    return [found, "yes" if right else "NO", promised, scatter, f"{gained / first.share:.2f}"]


def seconds(shape: Shape) -> float:
    """How long the loop takes once."""
    begin = time.perf_counter()
    shape.run()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
