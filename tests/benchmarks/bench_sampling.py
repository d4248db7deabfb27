"""What whyslow's sampling costs a step: on against off, and off against off. By hand, on a machine
that does nothing else:

    python tests/benchmarks/bench_sampling.py [--seconds 120]

Looks are closest at first, and far apart from the fifth second on: each is timed by itself.
Wanted: later a cost of 1 % at most, and an interval of the A/A run around none. The program is a
bad case: the two threads change places for each look, and small operators need Python all the time.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import nn
from torch.nn import functional as F

from labkit.comparing import measuring
from whyslow import sampling
from whyslow.experiment import Experiment
from whyslow.sampling import Sampler


class _Looks:
    """Samples as `whyslow.watch` does."""

    @contextmanager
    def __call__(self) -> Iterator[None]:
        sampler = Sampler(self._done)
        sampler.start()
        try:
            yield
        finally:
            sampler.stop()

    def _done(self) -> None:
        """It ends with the block alone."""


def main() -> None:
    """Print the share that the step takes longer, with its 95 % interval."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120.0)
    seconds = parser.parse_args().seconds
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, classes = torch.randn(64, 64), torch.randint(10, (64,))

    def step() -> None:
        for _ in range(1000):
            F.cross_entropy(model(inputs), classes).backward()
            optimizer.step()
            optimizer.zero_grad()

    paces = (sampling.FIRST, sampling.MOST)
    rows = [("off against off", nullcontext, 1.0)]
    rows += [(f"every {pace * 1e3:g} ms against off", _Looks(), pace) for pace in paces]
    for name, change, sampling.FIRST in rows:
        with measuring(1):
            result = Experiment(name, name, change).run(step, seconds)
        low, high = (1 / each - 1 for each in reversed(result.interval))
        print(f"{name}: {1 / result.speedup - 1:+.2%} [{low:+.2%}, {high:+.2%}]")


if __name__ == "__main__":
    main()
