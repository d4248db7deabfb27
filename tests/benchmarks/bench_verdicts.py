"""How often verdicts are right, with counts. By hand, on a machine that does nothing else:

    python tests/benchmarks/bench_verdicts.py EXPERIMENT [--loaded] [--runs 100]
        [--seconds 3] [--patience 3] [--keep FILE] [--at-most 40]

EXPERIMENT is ``A:B``, a step of A products against one of B (``20:20`` is an A/A control), the same
with ``process`` before it (``process-21:20``: each side in a process of its own), or ``race`` (two
equal sides, seven seeds each). ``--loaded`` runs it beside two busy processes, which end with it.
``--keep FILE`` appends each run as a line of JSON, and goes on from what the file has: with
``--at-most`` a long experiment is done in parts.

The planted ratio is A / B: a product of two 256 x 256 matrices into memory that is there takes
some 0.3 ms on a CPU core, against less than a microsecond for the turn of the loop around it, and
the call of the step takes as little: together they move the ratio by less than 0.01 %.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from labkit import Lab, Workload, race
from labkit.racing import RaceResult, RaceRun
from labkit.results import Comparison, Measurement

SIZE = 256
RACE_SEEDS = 7
VERDICTS = ("faster", "slower", "same", "unclear")
# Ends by itself when its parent is gone: a bench that is killed leaves nothing busy behind.
BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(100000))\n"


def make_workload(products: int) -> Workload:
    """A step of so many equal products."""
    matrix = torch.randn(SIZE, SIZE)
    into = torch.empty(SIZE, SIZE)

    def step() -> None:
        for _ in range(products):
            torch.mm(matrix, matrix, out=into)

    return Workload(step)


def make_racer() -> Workload:
    """A step of one product; how many it takes to the target depends on the seed alone."""
    matrix = torch.randn(SIZE, SIZE)
    value = [1.0 + float(torch.rand(1))]

    def step() -> None:
        torch.mm(matrix, matrix)
        value[0] *= 0.98

    return Workload(step, evaluate=lambda: value[0])


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """``count`` processes that compute all the time."""
    processes = []
    try:
        for _ in range(count):
            processes.append(subprocess.Popen([sys.executable, "-c", BUSY]))
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def compared(
    before: int, after: int, seconds: float, patience: float, **options: Any
) -> Callable[[], dict]:
    """A run of ``before`` products against ``after``: what to keep of it."""
    lab = Lab(make_workload, products=sorted({before, after}), memory=False, **options)

    def run() -> dict[str, Any]:
        result = lab.run(
            baseline={"products": before},
            products=after,
            seconds=seconds,
            patience=patience,
            on_update=lambda partial: None,
        )
        return {
            "planted": before / after,
            "seconds": result.seconds,
            "times": [side.times for side in result.arms],
            "build_of": result.baseline.builds,
        }

    return run


def judged(run: dict[str, Any]) -> dict[str, Any]:
    """A run with its figures, which follow from its raw times: rules may have changed since."""
    if "times" in run:
        sides = []
        for name, times in zip(("baseline", "candidate"), run["times"], strict=True):
            sides.append(Measurement(name, times=tuple(times), builds=tuple(run["build_of"])))
        result = Comparison(*sides)
        ratio, (low, high), verdict = result.speedup, result.interval, result.verdict
        more = {"builds": result.build_count, "pairs": result.pairs}
    else:
        result = RaceResult(tuple(_raced(run["before"], run["after"])), 0.0, "metric", False)
        (ratio, low, high), verdict = result.speedup("after"), result.verdict("after")
        more = {}
    return run | more | {"ratio": ratio, "low": low, "high": high, "verdict": verdict}


def _raced(before: list[float], after: list[float]) -> Iterator[RaceRun]:
    for side, seconds in (("before", before), ("after", after)):
        for seed, taken in enumerate(seconds):
            yield RaceRun(side, seed, ((1, taken, 0.0),), reached=True)


def raced() -> dict[str, Any]:
    """A race of two equal sides: what to keep of it."""
    result = race(
        {"before": make_racer, "after": make_racer},
        target=0.1,
        steps=200,
        every=10,
        seeds=RACE_SEEDS,
        higher_is_better=False,
    )
    return {
        "planted": 1.0,
        "before": [run.seconds for run in result.of("before")],
        "after": [run.seconds for run in result.of("after")],
    }


def chosen(experiment: str, seconds: float, patience: float) -> Callable[[], dict[str, Any]]:
    """The function that does one run of this experiment. ValueError for an unknown one."""
    if experiment == "race":
        return raced
    name, _, sides = experiment.rpartition("-")
    if name not in ("", "process"):
        raise ValueError(f"experiment={experiment!r}: use race, A:B or process-A:B")
    before, after = map(int, sides.split(":"))
    options = {}
    if name:
        options["runs_in"] = "process"
    return compared(before, after, seconds, patience, **options)


def told(runs: list[dict[str, Any]]) -> str:
    """The counts of these runs."""
    count = len(runs)
    planted = runs[0]["planted"]
    words = {word: sum(run["verdict"] == word for run in runs) for word in VERDICTS}
    covered = sum(run["low"] <= planted <= run["high"] for run in runs)
    halves = sorted((run["high"] - run["low"]) / 2 / run["ratio"] for run in runs)
    errors = sorted(abs(run["ratio"] / planted - 1) for run in runs)
    lines = [
        f"{count} runs, planted {planted:.4f}: {words}",
        f"the 95 % interval covers the planted ratio in {covered} of {count}",
        f"half-width of the interval: median {halves[count // 2]:.2%}, most {halves[-1]:.2%}",
        f"error of the ratio: median {errors[count // 2]:.2%}, most {errors[-1]:.2%}",
    ]
    if "builds" in runs[0]:
        taken = sorted(run["seconds"] for run in runs)
        lines.append(f"seconds: median {taken[count // 2]:.1f}, most {taken[-1]:.1f}")
        builds = sorted(run["builds"] for run in runs)
        pairs = sorted(run["pairs"] for run in runs)
        lines.append(
            f"builds a side: {builds[0]} to {builds[-1]}, median {builds[count // 2]}; "
            f"pairs: median {pairs[count // 2]}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiment")
    parser.add_argument("--loaded", action="store_true")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--patience", type=float, default=3.0)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--at-most", type=int, default=sys.maxsize)
    options = parser.parse_args()
    run = chosen(options.experiment, options.seconds, options.patience)
    runs: list[dict[str, Any]] = []
    if options.keep and options.keep.exists():
        runs = [json.loads(line) for line in options.keep.read_text().splitlines()]
    with busy(2 * options.loaded):
        for _ in range(min(options.at_most, options.runs - len(runs))):
            runs.append(run())
            if options.keep:
                with options.keep.open("a") as file:
                    file.write(json.dumps(runs[-1]) + "\n")
    where = "beside two busy processes" if options.loaded else "quiet"
    print(f"{options.experiment}, {where}, {options.seconds:g} s a run")
    print(told([judged(run) for run in runs]))
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}, "
        f"{datetime.now(UTC):%Y-%m-%d}"
    )


if __name__ == "__main__":
    main()
