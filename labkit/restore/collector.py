"""When Python may look for garbage: never inside a timed block, and briefly between blocks."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

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


def looking_at_frames() -> AbstractContextManager[None]:
    """For ``sys._current_frames()``: no collection inside, where Python is older than 3.12.

    There a frame that is asked for may begin one, whose finalizers let the other thread go on: what
    was a frame of it is something else then, and Python hangs or crashes.
    """
    return without_collector() if sys.version_info < (3, 12) else nullcontext()


# Python 3.12 itself freezes some hundred objects; a program that freezes has tens of thousands.
PYTHONS_OWN = 2_000
# Whether `frozen_heap` has frozen it.
_frozen = False


@contextmanager
def frozen_heap() -> Iterator[None]:
    """Let collections inside skip all that exists now.

    Without it each release of a workload would search all of torch for garbage, which takes longer
    than a short run. What a notebook has dropped is freed first where an accelerator's memory is at
    stake.
    """
    global _frozen
    if accelerator_in_use() is not None:
        gc.collect()
    # Python counts what is frozen one by one, for 50 milliseconds: not again inside.
    freeze = not _frozen and gc.get_freeze_count() < PYTHONS_OWN
    if freeze:
        gc.freeze()
    try:
        _frozen |= freeze
        yield
    finally:
        if freeze:
            _frozen = False
            gc.unfreeze()
