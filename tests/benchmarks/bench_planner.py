"""How long planning takes, and how far exact plans of one level are below the genetic algorithm's.

By hand, on an idle machine: ``uv run python tests/benchmarks/bench_planner.py``. No model, no GPU:
the chains are made up.

The chains are random tables in the shape of profiles, drawn from the seed printed beside them, none
chosen by result:

- ``uniform``: each block's output is uniform in 1-20 MB, it saves 1-5 times that.
- ``pyramid``: a CNN. Four stages whose outputs halve from one to the next (as where resolution
  halves twice and width doubles), each output within +-30 % of its stage; a block saves 2-4 times
  its output.
- ``layers``: a transformer at a random sequence length, attention and MLP in turn; attention saves
  4 outputs and its scores (up to 12 outputs), the MLP 9; +-10 %.
- ``valley``: a U-Net without its skips. Outputs fall by 2 at each of four steps and rise again.

All: forward 0.5-3 ms, backward twice that, transient peaks a third of the output, gradients of 0-1
MB a block.
"""

from __future__ import annotations

import random
import statistics
import time

from course.plan_pareto import pareto
from course.searches import genetic
from sublinear.chain import Block, Chain, Option
from sublinear.plan import keep_all
from sublinear.planner import BUDGETED, METHODS, plan
from sublinear.searches import single_level

KINDS = ("uniform", "pyramid", "layers", "valley")
SEEDS = range(10)
MB = 10**6


def make(kind: str, count: int, seed: int, menu: int = 1) -> Chain:
    rng = random.Random(f"{kind} {count} {seed}")
    scores = rng.uniform(1, 12)
    blocks = []
    for number in range(count):
        place = number / count
        if kind == "uniform":
            output, saved = rng.uniform(1, 20), rng.uniform(1, 5)
        elif kind == "pyramid":
            output, saved = 16 / 2 ** int(4 * place) * rng.uniform(0.7, 1.3), rng.uniform(2, 4)
        elif kind == "layers":
            output, saved = 4.0, (9.0 if number % 2 else 4 + scores) * rng.uniform(0.9, 1.1)
        else:
            output, saved = (
                16 / 2 ** int(4 * min(2 * place, 2 - 2 * place) * 0.999) * rng.uniform(0.7, 1.3),
                rng.uniform(2, 4),
            )
        blocks.append(block(rng, str(number), int(output * MB), int(output * saved * MB), menu))
    return Chain(tuple(blocks), 5 * MB, 200 * MB, 32, "a made-up device", "estimated")


def block(rng: random.Random, name: str, output: int, saved: int, menu: int) -> Block:
    seconds, transient = rng.uniform(0.5e-3, 3e-3), output // 3
    options = [Option("all", saved, seconds, 2 * seconds, saved + transient, output + transient)]
    for _ in range(menu - 1):
        share = rng.uniform(0.2, 0.9)
        less = max(output, int(share * saved))
        options.append(
            Option("part", less, seconds, (3 - share) * seconds, saved + transient, output + saved)
        )
    return Block(
        name, output, tuple(options), rng.randrange(MB), output + transient, 0.95 * seconds
    )


def planning_times(count: int = 200) -> None:
    print(
        f"planning {count} blocks, seconds: median of 3 chains (goals: 2 s; lowest peak of one "
        "level 0.1 s)"
    )
    chains = [make("uniform", count, seed, menu=3) for seed in range(3)]
    seconds = timed(lambda chain: single_level.lowest_peak(chain), chains)
    print(f"  {'single-level':14} lowest peak    {seconds:7.3f}")
    for method in METHODS:
        limits: list[dict[str, float]] = [{}]
        if method in BUDGETED:
            limits += [{"budget": 0.2}, {"budget": 0.5}, {"max_overhead": 0.15}]
        for limit in limits:
            seconds = timed(
                lambda chain, m=method, limit=limit: plan(
                    chain, method=m, **bytes_of(chain, limit)
                ),
                chains,
            )
            text = ", ".join(f"{name} {value}" for name, value in limit.items())
            print(f"  {method:14} {text:14} {seconds:7.3f}")
    seconds = timed(lambda chain: pareto(chain), chains[:1])
    print(f"  {'pareto':14} {'all methods':14} {seconds:7.3f}")


def bytes_of(chain: Chain, limit: dict[str, float]) -> dict:
    plain = keep_all(chain).costs.peak_bytes
    return {
        name: int(share * plain) if name == "budget" else share for name, share in limit.items()
    }


def timed(work, chains) -> float:
    seconds = []
    for chain in chains:
        begin = time.perf_counter()
        work(chain)
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def exact_against_genetic() -> None:
    print(
        "\npeak of the exact plan of one level below that of the genetic algorithm after 20 "
        "iterations, pool 20"
    )
    print(
        f"(goal: 15 %; {len(SEEDS)} chains each; 'above base': without what is alive all step, "
        "whatever the plan)"
    )
    print(
        "  chain         blocks    median     lowest    highest    above base: median   time "
        "exact / genetic"
    )
    for kind in KINDS:
        for count in (100, 200):
            gains, above, times = [], [], []
            for seed in SEEDS:
                chain = make(kind, count, seed)
                base = chain.fixed_bytes + chain.input_bytes
                exact = single_level.lowest_peak(chain).costs
                evolved = genetic.genetic(chain, iterations=20, seed=seed).costs
                gains.append(1 - exact.peak_bytes / evolved.peak_bytes)
                above.append(1 - (exact.peak_bytes - base) / (evolved.peak_bytes - base))
                times.append(exact.seconds / evolved.seconds)
            low, middle, high = min(gains), statistics.median(gains), max(gains)
            print(
                f"  {kind:12} {count:7} {middle:9.1%} {low:10.1%} {high:10.1%} "
                f"{statistics.median(above):15.1%}"
                f" {statistics.median(times):20.3f}"
            )


def nested_against_one_level() -> None:
    print("\nlowest peak / plain, and the time it takes / plain, 100 blocks, median of 5 chains")
    for kind in KINDS:
        rows = []
        for seed in range(5):
            chain = make(kind, 100, seed, menu=3)
            plain = keep_all(chain).costs
            costs = [plan(chain, method=method).costs for method in BUDGETED]
            costs += [plan(chain, max_overhead=0.15, method=method).costs for method in BUDGETED]
            rows.append(
                [
                    value
                    for c in costs
                    for value in (c.peak_bytes / plain.peak_bytes, c.seconds / plain.seconds)
                ]
            )
        middles = [statistics.median(column) for column in zip(*rows, strict=True)]
        pairs = list(zip(middles[::2], middles[1::2], strict=True))
        text = "  ".join(
            f"{m} {a:.3f} at {b:.3f}" for m, (a, b) in zip(BUDGETED, pairs, strict=False)
        )
        print(f"  {kind:10} lowest peak: {text}")
        text = "  ".join(
            f"{m} {a:.3f} at {b:.3f}" for m, (a, b) in zip(BUDGETED, pairs[3:], strict=False)
        )
        print(f"  {kind:10} overhead .15: {text}")


if __name__ == "__main__":
    planning_times()
    exact_against_genetic()
    nested_against_one_level()
