"""What dynamic programs over discrete memory share: slots, and the choice of the quickest."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from sublinear.chain import Chain
from sublinear.plan import Plan
from sublinear.searches.needs import Needs

# Rounded sizes may ask for a little more than the capacity where the true ones do not.
HEADROOM = 1.05

# Sums of seconds in another order may differ by so much.
CLOSE = 1 + 1e-9

# The same of sums in single precision, as tables may have them.
CLOSE_SINGLE = 1 + 1e-6

# Seconds, where rounding makes the table deny what is possible: last choice of all.
UNKNOWN = 1e30


class Table(ABC):
    """The fastest plans for every number of memory slots up to ``capacity`` bytes of a step.

    With slots of one byte, on small chains, the table is exact. Else sizes are rounded to the
    nearest slot, and its seconds only say which choice is fast: which ones fit, `plan` decides to
    the byte by the least memory that the rest can do with. ``times[m]``: seconds with m slots,
    infinite where impossible.
    """

    times: np.ndarray

    def __init__(self, chain: Chain, needs: Needs, capacity: int, slots: int, method: str) -> None:
        self.chain, self.needs, self.method = chain, needs, method
        free = max(1, capacity - needs.base)
        self.slot = -(-free // slots)
        self.slots = free
        if self.slot > 1:
            self.slots = int(free * HEADROOM) // self.slot

    def size(self, size: np.ndarray) -> np.ndarray:
        """Bytes that stay, in slots."""
        return (size + self.slot // 2) // self.slot

    def need(self, size: int | np.ndarray) -> np.ndarray:
        """The least number of slots that hold so many bytes."""
        return -(-np.asarray(size) // self.slot)

    def follow(
        self,
        after: np.ndarray,
        held: np.ndarray,
        shifts: np.ndarray,
        rest: np.ndarray,
        plus: np.ndarray,
    ) -> None:
        """Bring up to date ``after[k, m]``: seconds of what follows a checkpoint that ends with k.

        The checkpoint holds ``held[k]`` slots, so that is ``rest[k]`` of that many slots less,
        plus ``plus[k]``. ``shifts``: what each row has now. ``after`` and ``rest`` may be several,
        one by one.
        """
        for end in np.flatnonzero(held != shifts).tolist():
            width = after.shape[-1]
            shifts[end] = shift = min(int(held[end]), width)
            after[..., end, :shift] = np.inf
            # As a plain number it does not widen single precision.
            plain = float(plus[end])
            np.add(rest[..., end, : width - shift], plain, out=after[..., end, shift:])

    @abstractmethod
    def plan(self, memory: int) -> Plan:
        """A fast plan whose peak is at most ``memory`` bytes, or the lowest that is known to fit.

        What a checkpoint lets go early (`Chain.released`) is not known to the search: its plans may
        need less than it says.
        """


def choose(kept: list[tuple[float, int]], dropped: np.ndarray) -> tuple[int, int | None]:
    """The quickest choice: the option of a kept block, or the end of a checkpoint.

    The end is None where the block is kept.

    ``kept``: (seconds, option) of the options that fit; ``dropped``: seconds for each end of a
    checkpoint. Of equal ends the middle one is chosen.
    """
    seconds, option = min(kept, default=(np.inf, 0))
    least = dropped.min(initial=np.inf)
    if seconds <= least:
        return option, None
    ends = np.flatnonzero(dropped == least)
    return 0, int(ends[len(ends) // 2])
