"""The planner beside other ways to save memory, on nine models: bytes and time, in one run.

uv run python tests/benchmarks/bench_beside.py                      # all, a quarter of an hour
uv run python tests/benchmarks/bench_beside.py gpt unet             # some
uv run python tests/benchmarks/bench_beside.py --record             # into data/reference
uv run python tests/benchmarks/bench_beside.py --record --minutes 7  # what is missing, in parts

Each way trains the same model on the same batch. Its peak is that of labkit's storage tracker, over
a whole step; its time is taken in turn with a plain step. The planner is asked for as few bytes as
each other way needed, and for the fewest of all.

`checkpoint_sequential` takes a Sequential: here it cuts the planner's own blocks into pieces, as
it does the layers of one. The compiler's setting is tried by a backend whose operators can be
counted; its time is over that of the same backend with setting 1, so that only what is computed
again counts. Both are to their advantage.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._functorch import config

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "sublinear"))

from zoo import FAMILIES, peak, step

import course.searches  # noqa: F401  # adds its methods to the planner's
from course.board.measure import machine_name
from course.board.record import MOST_OTHERS
from course.records.beside import OURS, Beside, Model, Way, record_path, recorded, write
from course.searches.splits import from_splits
from labkit import compare
from labkit.busy import Others, cores
from sublinear.apply import apply
from sublinear.plan import Plan, keep_all
from sublinear.planner import plan
from sublinear.profiling import profile
from sublinear.split import split

# Of the zoo, of many kinds, in whose memory activations weigh most.
MODELS = (
    "shufflenet_v2",
    "mobilenet_v3_small",
    "unet",
    "vit",
    "mixer",
    "gpt",
    "encoder-decoder",
    "temporal",
    "lstm cells",
)
# A side's time, measured in turn.
SECONDS = 2.0
BACKEND = "aot_eager_decomp_partition"


class Trial:
    """A model of the zoo that is trained by one way after the other."""

    def __init__(self, name: str, seconds: float) -> None:
        self.name, self.seconds = name, seconds
        self.family = family = FAMILIES[name]
        torch.manual_seed(0)
        self.model, self.inputs = family.make().train(), family.inputs()
        self.optimizer = None
        if family.optimizer is not None:
            self.optimizer = family.optimizer(self.model.parameters(), lr=1e-4)
        self.blocks = split(self.model, self.inputs)
        self.chain = profile(
            self.model,
            self.inputs,
            loss=family.loss,
            optimizer=self.optimizer,
            blocks=self.blocks,
        )
        self.plain_bytes = self.peak(self.model)
        self._known: dict[Plan, Way] = {}

    def peak(self, model: nn.Module) -> int:
        return peak(model, self.family, self.inputs, self.optimizer)

    def step_of(self, model: nn.Module) -> Callable[[], None]:
        return partial(step, model, self.family, self.inputs, self.optimizer)

    def measured(self, name: str, setting: str, model: nn.Module, beside: nn.Module) -> Way:
        size, seconds = self.peak(model), self.seconds
        sides = self.step_of(beside), self.step_of(model)
        found = compare(*sides, seconds=seconds, on_update=lambda _: None)
        while not math.isfinite(sum(found.interval)):
            # Too few pairs.
            seconds *= 2
            found = compare(*sides, seconds=seconds, on_update=lambda _: None)
        low, high = found.interval
        return Way(name, setting, size, 1 / found.speedup, (1 / high, 1 / low))

    def by(self, name: str, setting: str, chosen: Plan) -> Way:
        """By a plan, which is measured once however many ways led to it."""
        chosen = chosen.named("")
        if chosen not in self._known:
            planned = apply(self.model, chosen, blocks=self.blocks)
            self._known[chosen] = self.measured(name, setting, planned, self.model)
        return replace(self._known[chosen], name=name, setting=setting)

    def equal_pieces(self, count: int) -> Plan:
        """As `torch.utils.checkpoint.checkpoint_sequential` cuts."""
        size = len(self.chain) // count
        splits = [size * number for number in range(1, count)]
        return from_splits(self.chain, splits, "equal pieces")

    def compiled(self, setting: float) -> nn.Module:
        """Compiled with the compiler's own budget. Each backend has compiled code of its own."""

        def backend(graph: torch.fx.GraphModule, examples: Any) -> Any:
            with config.patch(activation_memory_budget=setting):
                return torch._dynamo.lookup_backend(BACKEND)(graph, examples)

        found: nn.Module = torch.compile(self.model, backend=backend)
        return found

    def others(self) -> Iterator[Way]:
        for count in (2, 4, 8):
            if count < len(self.chain):
                yield self.by("checkpoint_sequential", str(count), self.equal_pieces(count))
        yield self.by("every block", "", plan(self.chain, method="every"))
        for method in ("grid", "genetic"):
            yield self.by(method, "", plan(self.chain, method=method))
        torch.compiler.reset()
        whole = self.compiled(1.0)
        self.step_of(whole)()
        for setting in (0.5, 0.0):
            model = self.compiled(setting)
            yield self.measured("activation_memory_budget", str(setting), model, whole)
        torch.compiler.reset()

    def ours(self, others: list[Way]) -> Iterator[Way]:
        yield self.by(OURS, "lowest peak", plan(self.chain))
        for other in others:
            if other.bytes >= self.plain_bytes:
                continue
            try:
                chosen = self.within(other.bytes)
            except ValueError as error:
                print(f"  no plan as small as {other.label}: {error}"[:160], flush=True)
                continue
            yield self.by(OURS, f"as small as {other.label}", chosen)

    def within(self, size: int) -> Plan:
        """The fastest plan whose real step keeps to so many bytes, as `sublinear.fit` does."""
        aim = size
        while True:
            chosen = plan(self.chain, budget=aim)
            excess = self.peak(apply(self.model, chosen, blocks=self.blocks)) - size
            if excess <= 0:
                return chosen
            aim -= excess

    def run(self) -> Model:
        others = []
        for way in self.others():
            others.append(way)
            self.show(way)
        ours = []
        for way in self.ours(others):
            ours.append(way)
            self.show(way)
        seconds = keep_all(self.chain).costs.seconds
        ways = (*others, *ours)
        return Model(self.name, len(self.chain), self.plain_bytes, seconds, ways)

    def show(self, way: Way) -> None:
        low, high = way.interval
        print(
            f"  {way.label:56} {way.bytes / self.plain_bytes:6.3f} {way.time:6.2f} "
            f"[{low:.2f}, {high:.2f}]",
            flush=True,
        )


def started(again: bool) -> Beside:
    """What is recorded of this machine with this torch, or a beginning."""
    new = Beside(machine_name(), date.today().isoformat(), torch.__version__, 1, ())
    if again or not record_path().exists():
        return new
    found = recorded()
    if (found.machine, found.torch) != (new.machine, new.torch):
        return new
    return replace(found, date=new.date)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("models", nargs="*", help=f"of {', '.join(FAMILIES)}")
    parser.add_argument("--record", action="store_true", help="write data/reference/sublinear.json")
    parser.add_argument("--again", action="store_true", help="also what is recorded already")
    parser.add_argument("--minutes", type=float, help="begin no model after so many")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="that a way is timed")
    options = parser.parse_args()
    torch.set_num_threads(1)
    begin = time.monotonic()
    done = started(options.again or not options.record)
    for name in options.models or MODELS:
        if options.minutes and time.monotonic() - begin > 60 * options.minutes:
            print("Some is left: call again to go on.")
            return
        if name in {model.name for model in done.models}:
            continue
        print(f"{name}: peak and time over a plain step", flush=True)
        others, start = Others(), time.monotonic()
        model = Trial(name, options.seconds).run()
        busy = (others.taken() or 0.0) / cores()
        print(f"  {time.monotonic() - start:.0f} s; others used {busy:.0%} of the machine")
        if busy > MOST_OTHERS and options.record:
            print("  not recorded")
            continue
        models = sorted((*done.models, model), key=lambda model: MODELS.index(model.name))
        done = replace(done, models=tuple(models))
        if options.record:
            write(done)
    for name, way in done.better:
        print(f"smaller or faster than every plan: {name}, {way.label}")


if __name__ == "__main__":
    main()
