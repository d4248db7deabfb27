"""How often both sides of a comparison are built, and when its time is over.

A build gets other addresses, and with them other conflicts in caches and pages;
`labkit.results.statistics` says what follows from that. Small allocations of random size are kept
beside each build, since the allocator would else hand out the very addresses that it has just got
back.
"""

from __future__ import annotations

import math
from random import Random

import torch

from labkit.device import accelerator_in_use

# More builds would bring little; each costs its warming up.
MOST_BUILDS = 10
# The part of the budget that building again may take. A build of a tenth is then had three times.
REBUILDING = 0.25


class Builds:
    """How many builds a side gets, how long each is timed, and when the run ends.

    A build that costs a tenth of the budget is had three times; cheap ones `MOST_BUILDS` times. The
    cost is that of the last one: the first of a process pays for more than the others. A run that
    is prolonged gets builds as long as those before; half a budget more where one build was all.
    """

    def __init__(self, seconds: float, most: int, patience: float = 1.0) -> None:
        self.seconds = self.limit = seconds
        self.most, self.patience = most, patience
        self.done = 1
        self.cost = 0.0
        # How long each build of a prolonged run is timed.
        self.share = 0.0
        self.end = self.latest = math.inf
        self.next = math.inf

    def begin(self, now: float, cost: float) -> None:
        """From ``now`` on, with builds that take ``cost`` seconds for both sides."""
        self.cost = cost
        self.next = math.inf
        if self.share:
            self.end = now + self.share
            return
        if self.done == 1:
            self.end = now + self.seconds
            self.latest = now + self.patience * self.seconds
        left = min(self.most, builds_that_fit(self.seconds, cost)) - self.done
        timed = self.end - now - max(left, 0) * cost
        if left > 0 and timed > 0:
            self.next = now + timed / (left + 1)

    def prolong(self, now: float) -> bool:
        """Go on after ``now``, with one more build or in the same one; whether there is time."""
        timed = self.seconds - (self.done - 1) * self.cost
        share = self.share or timed / max(2, self.done)
        longest = self.patience * self.seconds
        most = round(self.patience * self.most)
        again = self.most > 1 and builds_that_fit(longest, self.cost, most) > self.done
        needed = share
        if again:
            needed += self.cost
        # The last pair of a build takes it a little beyond its share.
        if now + needed > self.latest + share / 10:
            return False
        self.limit, self.share, self.end = longest, share, now + share
        if again:
            # Until it is built.
            self.end, self.next = math.inf, now
        return True


def builds_that_fit(seconds: float, cost: float, most: int = MOST_BUILDS) -> int:
    """How many builds fit a budget of ``seconds`` when each costs ``cost`` seconds."""
    if cost <= 0:
        return most
    return min(most, 1 + int(REBUILDING * seconds / cost))


def shift_addresses(device: str, random: Random) -> list[torch.Tensor]:
    """Small allocations of random size, to be kept beside a build.

    On CUDA they are on the current card; large tensors come from pages of 2 MiB there, so that one
    allocation takes a few of these. A card on which this process does not work is left alone: a
    side in a process of its own has a new allocator anyway.
    """
    sizes = [64 * random.randrange(1, 1024) for _ in range(4)]
    if device != "cuda" or accelerator_in_use() != "cuda":
        device = "cpu"
    else:
        sizes.append(2**21 * random.randrange(1, 8))
    return [torch.empty(size, dtype=torch.uint8, device=device) for size in sizes]
