"""Speed of the kit itself; ``bench_verdicts.py`` counts how often it is right.

By hand, on an idle machine: ``uv run python tests/benchmarks/bench_kit.py [NAME ...]``.
Each line gives a figure with the 95 % interval of its median, and the goal it is held
against.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import torch

from labkit import Workload
from labkit.arm import LocalArm
from labkit.comparing import measuring
from labkit.device import synchronize
from labkit.results import median_interval


def report(name: str, values: list[float], goal: str, form: str = "{:.4f}") -> None:
    low, high = median_interval(tuple(values))
    figures = [form.format(value) for value in (float(np.median(values)), low, high)]
    print(
        f"{name:<62} {figures[0]} [{figures[1]}, {figures[2]}]  n={len(values)}  goal {goal}",
        flush=True,
    )


def a_millisecond(matrix: torch.Tensor) -> Callable[[], None]:
    """A step of as many products of ``matrix`` with itself as take about 1 ms on its device."""
    matrix @ matrix
    synchronize()
    begin = time.perf_counter()
    for _ in range(200):
        matrix @ matrix
    synchronize()
    times = max(1, round(0.001 / ((time.perf_counter() - begin) / 200)))

    def step() -> None:
        for _ in range(times):
            matrix @ matrix

    return step


def harness() -> None:
    """What the kit adds to each step: the same blocks,
    timed by the kit and by two bare clock readings, in turn.
    """
    with measuring(1):
        against_bare(a_millisecond(torch.randn(128, 128)), "CPU", "<= 0.1 %")
        empty = LocalArm(lambda: Workload(lambda: None), "empty")
        empty.start()
        cost = [empty.block(10000) / 10000 * 1e9 for _ in range(50)]
        report("harness: an empty step, ns (1 ms = 1,000,000)", cost, "<= 1000 ns", "{:.1f}")
        if torch.cuda.is_available():
            against_bare(a_millisecond(torch.randn(1024, 1024, device="cuda")), "GPU", "<= 1 %")


def against_bare(step: Callable[[], None], device: str, goal: str) -> None:
    arm = LocalArm(lambda: Workload(step), "1 ms")
    arm.start()
    ratios = []
    for number in range(4000):
        seconds = {}
        for kit in (True, False) if number % 2 else (False, True):
            if kit:
                seconds[kit] = arm.block(5)
            else:
                synchronize()
                begin = time.perf_counter()
                for _ in range(5):
                    step()
                synchronize()
                seconds[kit] = time.perf_counter() - begin
        ratios.append(100 * (seconds[True] / seconds[False] - 1))
    report(
        f"harness: kit's figure over the bare loop's, 1 ms {device} step, %",
        ratios,
        goal,
        "{:+.3f}",
    )


def imports(rounds: int = 15) -> None:
    """`import labkit` against `import torch`, in turn, in fresh processes."""
    ratios = []
    for _ in range(rounds + 1):
        seconds = {}
        for module in ("torch", "labkit"):
            timed = f"t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
            code = f"import time; {timed}"
            seconds[module] = float(
                subprocess.run(
                    [sys.executable, "-c", code], capture_output=True, text=True, check=True
                ).stdout
            )
        ratios.append(seconds["labkit"] / seconds["torch"])
    report("import labkit / import torch", ratios[1:], "<= 1.15", "{:.3f}")


if __name__ == "__main__":
    benchmarks = {"harness": harness, "imports": imports}
    for name in sys.argv[1:] or benchmarks:
        benchmarks[name]()
