"""When Python may look for garbage: never inside a timed block, and briefly between blocks."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from labkit.device import accelerator_in_use


@contextmanager
def without_collector() -> Iterator[None]:
    """No automatic garbage collection inside.

    A collection in one block and not in its neighbour would be charged to the technique.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


# Python 3.12 itself freezes some hundred objects; a program that freezes has tens of thousands.
PYTHONS_OWN = 2_000

# Whether it is frozen by us: to count a million frozen objects takes as long as a small step.
_frozen = False


@contextmanager
def frozen_heap() -> Iterator[None]:
    """Let collections inside skip all that exists now.

    Without it each release of a workload would search all of torch for garbage, which takes longer
    than a short run. What a notebook has dropped is freed first where an accelerator's memory is at
    stake.
    """
    if accelerator_in_use() is not None:
        gc.collect()
    global _frozen
    freeze = not _frozen and gc.get_freeze_count() < PYTHONS_OWN
    if freeze:
        gc.freeze()
        _frozen = True
    try:
        yield
    finally:
        if freeze:
            _frozen = False
            gc.unfreeze()
