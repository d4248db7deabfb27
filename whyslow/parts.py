"""The parts of a step, from its own lines: what its time goes to, and which line takes most."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from labkit.restore import giving_back
from whyslow.findings import LEAST_SHARE
from whyslow.lines import Sampled, cause_of, sampled
from whyslow.sampling import NONE, Sampler, Share, Tally
from whyslow.stacks import LOADING, Stack, stack_of

# Seconds of a block: a step is looked at for a short time.
BLOCK = 0.025


class Parts:
    """What was seen of the steps that ran last inside of `seen`."""

    def __init__(self) -> None:
        self.tally = Tally()

    @property
    def sampled(self) -> Sampled:
        """By lines and causes."""
        return sampled(self.tally, of_step=True)

    @contextmanager
    def seen(self) -> Iterator[None]:
        """Look at the lines that run inside; those that have called the diagnosis are none."""
        sampler = Sampler(below=len(stack_of(sys._getframe())), width=BLOCK)
        with giving_back(sampler.stop):
            sampler.start()
            yield
        self.tally = sampler.tally

    def shares(self, waiting: float | None = None) -> dict[str, float]:
        """The share of each cause; where a loader is given, that of ``waiting`` is known."""
        shares = {cause: share for cause, (share, _) in self.sampled.causes.items()}
        if waiting is None:
            return shares
        loading = shares.pop(LOADING, 0.0)
        rest = (1 - waiting) / max(1 - loading, 1e-9)
        return {LOADING: waiting} | {cause: rest * share for cause, share in shares.items()}

    def share(self, wanted: Callable[[Stack], bool]) -> Share:
        """The share of the step itself, without its wait for data, in these stacks."""
        shares = self.tally.shares(
            lambda stack, block: None if cause_of(stack) == LOADING else wanted(stack)
        )
        return shares.get(True, NONE)

    def where(self, causes: tuple[str, ...]) -> str:
        """The heaviest line of these causes; nothing where there is none to name."""
        for line in self.sampled.lines:
            if line.cause in causes and line.share >= LEAST_SHARE:
                return f"{line.place}: {line.source}"
        return ""
