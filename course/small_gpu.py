"""A smaller GPU than the one at hand: limit torch's allocator, and find the largest batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch

from labkit.device import survive
from labkit.remote import RemoteArm
from labkit.restore import giving_back
from labkit.results import Workload
from labkit.text import format_bytes

# What CUDA's context and its libraries take before torch allocates; 0.3 to 0.8 is usual.
CONTEXT_GIB = 0.5


@dataclass(frozen=True)
class SmallGpu:
    """A card of ``gib`` GiB, of which ``context_gib`` is assumed to be taken by CUDA itself."""

    gib: float
    context_gib: float = CONTEXT_GIB

    def __post_init__(self) -> None:
        if not 0 <= self.context_gib < self.gib:
            raise ValueError(
                f"SmallGpu(gib={self.gib!r}, context_gib={self.context_gib!r}): "
                "a card larger than its context is accepted"
            )

    @property
    def limit_bytes(self) -> int:
        """What torch may allocate."""
        return int((self.gib - self.context_gib) * 2**30)

    def __str__(self) -> str:
        return (
            f"a card of {self.gib:g} GiB, {self.context_gib:g} GiB of it assumed for CUDA's context"
        )


def emulate_small_gpu(gib: float, context_gib: float = CONTEXT_GIB) -> SmallGpu:
    """Let torch's allocator, from now on, have no more than a card of ``gib`` GiB has to give.

    That is in this process. Raises ValueError without CUDA (predict with `sublinear.largest_batch`
    there), or for a card larger than the one at hand.
    """
    card = SmallGpu(gib, context_gib)
    if not torch.cuda.is_available():
        raise ValueError(
            f"emulate_small_gpu({gib!r}): needs a CUDA device; without one a batch can only be "
            "predicted"
        )
    total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    if card.limit_bytes > total:
        raise ValueError(f"emulate_small_gpu({gib!r}): this card has only {format_bytes(total)}")
    torch.cuda.set_per_process_memory_fraction(card.limit_bytes / total)
    return card


@dataclass(frozen=True)
class Trial:
    """Whether a batch trained, and the peak bytes of its last step."""

    batch_size: int
    fits: bool
    allocated: int | None = None
    reserved: int | None = None

    def __str__(self) -> str:
        if not self.fits:
            return f"batch {self.batch_size}: out of memory"
        allocated, reserved = format_bytes(self.allocated), format_bytes(self.reserved)
        return f"batch {self.batch_size}: {allocated} allocated, {reserved} reserved"


@dataclass(frozen=True)
class BatchSearch:
    """The trials of a search for the largest batch, in order.

    ``source``: "measured" or "predicted".
    """

    trials: tuple[Trial, ...] = ()
    source: str = "measured"

    @property
    def best(self) -> Trial | None:
        """The largest batch that fits; None if even the smallest did not."""
        best = None
        for trial in self.trials:
            if trial.fits and (best is None or trial.batch_size > best.batch_size):
                best = trial
        return best

    def __str__(self) -> str:
        found = "no batch fits"
        if self.best is not None:
            found = f"largest {self.best}"
        return f"{found} ({self.source}, {len(self.trials)} trials)"


def search_batch(
    trial: Callable[[int], Trial], start: int = 1, limit: int = 2**20, source: str = "measured"
) -> BatchSearch:
    """Double the batch from ``start`` until it does not fit or passes ``limit``.

    Then halve the gap, down to 1. Whatever ends it early, an interrupt or the death of a trial's
    process, carries a note of all trials until then.
    """
    if not 1 <= start <= limit:
        raise ValueError(
            f"start={start!r}, limit={limit!r}: whole numbers from 1, the start at most the limit, "
            "are accepted"
        )
    trials: list[Trial] = []
    low, high = 0, limit + 1
    while high - low > 1:
        batch = (low + high) // 2
        if high > limit:
            batch = min(limit, max(start, 2 * low))
        with _told(trials, batch):
            trials.append(trial(batch))
        if trials[-1].fits:
            low = batch
        else:
            high = batch
    return BatchSearch(tuple(trials), source)


@contextmanager
def _told(trials: list[Trial], batch: int) -> Iterator[None]:
    """Each takes long: what was found is not lost with the error that ends the search."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        before = "; ".join(map(str, trials)) or "nothing"
        error.add_note(f"(while batch {batch} was tried; before: {before})")
        raise


def try_batch(
    make: Callable[[int], Workload], batch_size: int, card: SmallGpu | None, steps: int = 3
) -> Trial:
    """Train ``make(batch_size)`` for some steps in a process of its own.

    On an emulated card, if there is one. A step must include the optimizer, whose state exists only
    after the first. Peaks are of one step of a workload built anew in that process; None allocated
    where it replays a CUDA graph.
    """
    side = RemoteArm(partial(_limited, make, batch_size, card), f"batch {batch_size}")
    # Called again after an interrupt: no process is left behind.
    with giving_back(side.close), survive() as outcome:
        side.start()
        side.block(steps - 1)
        allocated, reserved = side.peak()
    if outcome.error:
        return Trial(batch_size, False)
    return Trial(batch_size, True, allocated, reserved)


def _limited(make: Callable[[int], Workload], batch_size: int, card: SmallGpu | None) -> Workload:
    if card is not None:
        emulate_small_gpu(card.gib, card.context_gib)
    return make(batch_size)
