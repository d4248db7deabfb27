"""How long the planner takes on this machine, and how near the best its plans are.

`bench_beside.py` has the planner beside other methods.

uv run python tests/benchmarks/bench_sublinear.py           # all of it, some minutes
uv run python tests/benchmarks/bench_sublinear.py plan      # planning chains of 200 and 1,000
uv run python tests/benchmarks/bench_sublinear.py floor     # near the lowest peak: fine slots
uv run python tests/benchmarks/bench_sublinear.py profile   # ResNet-50 at batch 8
uv run python tests/benchmarks/bench_sublinear.py check     # what a forward's checks cost
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "sublinear"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from bench_planner import make
from zoo import FAMILIES, every_output

from sublinear.chain import Block, Chain, Option
from sublinear.plan import keep_all
from sublinear.planner import plan
from sublinear.profiling import profile
from sublinear.searches import optimal
from sublinear.split import split


def seconds_of(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def planning() -> None:
    print("planning, seconds (goals: 200 blocks 1 s, 1,000 blocks 20 s)")
    for count in (200, 500, 1000):
        chain = make("pyramid", count, 0, menu=3)
        plain = keep_all(chain).costs.peak_bytes
        for name, limit in (
            ("lowest peak", {}),
            ("budget 0.3", {"budget": 0.3 * plain}),
            ("overhead 0.2", {"max_overhead": 0.2}),
        ):
            took = seconds_of(partial(plan, chain, **limit))
            print(f"  {count:5} blocks  {name:13} {took:7.2f}")


def deep(count: int, ratio: int) -> Chain:
    """Equal blocks that save ``ratio`` times their output."""
    option = Option("all", ratio * 1000, 1e-3, 2e-3, ratio * 1000, 1000)
    block = Block("b", 1000, (option,), 0, 2000, 1e-3)
    return Chain((block,) * count, 1000, 0, 1, "a made-up device", "estimated")


def near_the_floor() -> None:
    print("\nseconds of the plan near the lowest peak, over those with ten times as many slots")
    print("(goal: 1.02)")
    cases = {f"{kind} {n}": make(kind, n, 1) for kind in ("uniform", "valley") for n in (50, 100)}
    cases |= {
        "saved 1000 x output, 60": deep(60, 1000),
        "saved 1000 x output, 100": deep(100, 1000),
    }
    for name, chain in cases.items():
        floor = plan(chain).costs.peak_bytes
        ratios = []
        for share in (1.0, 1.02, 1.1):
            budget = int(share * floor)
            mine = plan(chain, budget=budget, method="optimal").costs.seconds
            slots = 10 * optimal.slots_for(len(chain))
            table = optimal.OptimalTable(chain, budget, menu=False, slots=slots)
            fine = min(
                table.plan(budget - k * table.slot).costs.seconds
                for k in range(3)
                if budget - k * table.slot >= floor
            )
            ratios.append(f"{mine / fine:.3f}")
        runs = sum(plan(chain, budget=floor).costs.block_forwards)
        print(f"  {name:26} at 1.0, 1.02, 1.1 of the floor: {', '.join(ratios)}  {runs} forwards")


def profiling() -> None:
    from torchvision.models import resnet50

    model, x = resnet50(), torch.randn(8, 3, 224, 224)
    took = seconds_of(lambda: profile(model, x))
    step = seconds_of(lambda: every_output(model(x)).backward())
    print(f"\nprofile of ResNet-50, batch 8: {took:.1f} s (goal 30), a plain step {step:.2f} s")


def checking() -> None:
    print("\nchecks before each forward (replaced modules, hooks)")
    for name in ("resnet50", "gpt", "densenet121", "swin_t"):
        family = FAMILIES[name]
        model = family.make().train()
        blocks = split(model, family.inputs())
        times = [seconds_of(blocks.check_unchanged) for _ in range(200)]
        modules = sum(1 for _ in model.modules())
        print(
            f"  {name:12} {modules:4} modules: {1e3 * statistics.median(times):6.3f} ms a forward"
        )


PARTS = {
    "plan": planning,
    "floor": near_the_floor,
    "profile": profiling,
    "check": checking,
}


if __name__ == "__main__":
    torch.set_num_threads(1)
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
