"""The parts of a step, from its own lines: what its time goes to, and which line takes most."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from whyslow.findings import LEAST_SHARE, Interval
from whyslow.lines import Sampled, cause_of, sampled
from whyslow.sampling import Sampler, Tally, share_of
from whyslow.stacks import LOADING, Stack, stack_of

# Seconds of a block: a step is looked at for a short time.
BLOCK = 0.025


class Parts:
    """What was seen of the steps that ran last inside of `seen`."""

    def __init__(self) -> None:
        self._tally = Tally()
        self.sampled: Sampled = sampled(self._tally)

    @contextmanager
    def seen(self) -> Iterator[None]:
        """Look at the lines that run inside; those that have called the diagnosis are none."""
        sampler = Sampler(self._done, below=len(stack_of(sys._getframe())))
        sampler.tally.width = BLOCK
        sampler.start()
        try:
            yield
        finally:
            sampler.stop()
        self._tally, self.sampled = sampler.tally, sampled(sampler.tally, of_step=True)

    def _done(self) -> None:
        """It ends with the block alone."""

    def shares(self, waiting: float | None = None) -> dict[str, float]:
        """The share of each cause; where a loader is given, that of ``waiting`` is known."""
        shares = {cause: share for cause, (share, _) in self.sampled.causes.items()}
        if waiting is None:
            return shares
        loading = shares.pop(LOADING, 0.0)
        rest = (1 - waiting) / max(1 - loading, 1e-9)
        return {LOADING: waiting} | {cause: rest * share for cause, share in shares.items()}

    def share(self, wanted: Callable[[Stack], bool]) -> tuple[float, Interval]:
        """The share of the step itself, without its wait for data, in these stacks."""
        parts: dict[int, float] = defaultdict(float)
        wholes: dict[int, float] = defaultdict(float)
        for stack, blocks in self._tally.seconds.items():
            if cause_of(stack) != LOADING:
                for block, seconds in blocks.items():
                    wholes[block] += seconds
                    parts[block] += seconds * wanted(stack)
        ordered = sorted(wholes)
        return share_of([parts[each] for each in ordered], [wholes[each] for each in ordered])

    def where(self, causes: tuple[str, ...]) -> str:
        """The heaviest line of these causes; nothing where there is none to name."""
        for line in self.sampled.lines:
            if line.cause in causes and line.share >= LEAST_SHARE:
                return f"{line.place}: {line.source}"
        return ""
