"""What whyslow's sampling costs a step: on against off, and off against off. By hand, on a machine
that does nothing else:

    python tests/benchmarks/bench_sampling.py [--seconds 120]

Looks are closest at first, and far apart from the tenth second on: each is timed by itself.
Wanted: later a cost of 1 % at most, and an interval of the A/A run around none. Small operators are
the bad case: the two threads change places for each look, and they need Python all the time.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from course.models import convnet
from labkit.comparing import measuring
from whyslow import watching
from whyslow.experiment import Experiment

Step = Callable[[], None]


def small() -> Step:
    """Operators of some microseconds."""
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    return trained(model, torch.randn(64, 64), 1000)


def large() -> Step:
    """Operators of some milliseconds, as in most training."""
    return trained(convnet(32), torch.randn(64, 3, 32, 32), 5)


def trained(model: nn.Module, inputs: torch.Tensor, updates: int) -> Step:
    """So many updates of a classifier: long enough that a block's begin does not count."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    classes = torch.randint(10, (64,))

    def step() -> None:
        # As in a reader's program, and not in a timed block: a frame that was looked at may keep
        # its tensors until garbage is collected.
        gc.enable()
        for _ in range(updates):
            F.cross_entropy(model(inputs), classes).backward()
            optimizer.step()
            optimizer.zero_grad()

    return step


def main() -> None:
    """Print the share that the step takes longer, with its 95 % interval."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120.0)
    seconds = parser.parse_args().seconds
    paces = (watching.FIRST, watching.MOST)
    for make in (large, small):
        rows = [("off against off", nullcontext, 1.0)]
        watch = partial(watching.Watch, show=False)
        rows += [(f"every {pace * 1e3:g} ms against off", watch, pace) for pace in paces]
        for name, change, watching.FIRST in rows:
            with measuring(1):
                result = Experiment(name, name, change).run(make(), seconds)
            low, high = (1 / each - 1 for each in reversed(result.interval))
            cost = f"{1 / result.speedup - 1:+.2%} [{low:+.2%}, {high:+.2%}]"
            print(f"{make.__name__} operators, {name}: {cost}", flush=True)


if __name__ == "__main__":
    main()
