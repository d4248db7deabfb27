"""When Python may look for garbage: never inside a timed block, and briefly between blocks."""

from __future__ import annotations

import gc
import math
import time
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
# Seconds. To search all of torch, IPython and matplotlib for garbage takes a quarter of one, half
# of a short run.
CLEAN_FOR = 5.0
_clean_until = -math.inf


@contextmanager
def frozen_heap() -> Iterator[None]:
    """Collect once, then let collections inside skip all that exists now.

    What a notebook has dropped is freed first; of what it dropped within `CLEAN_FOR` seconds of the
    last time, only where an accelerator's memory is at stake. Without the freeze each release of a
    workload would search all of torch for garbage, which takes longer than a short run.
    """
    global _clean_until
    freeze = gc.get_freeze_count() < PYTHONS_OWN
    clean = freeze and time.monotonic() < _clean_until
    if not clean or accelerator_in_use() is not None:
        gc.collect()
    if freeze:
        gc.freeze()
    try:
        yield
    finally:
        if freeze:
            gc.unfreeze()
            _clean_until = time.monotonic() + CLEAN_FOR
