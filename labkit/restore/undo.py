"""Put things back by calls, whatever a block raises, also where an interrupt strikes twice."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

PutBack = Callable[[], Any]


@contextmanager
def giving_back(put_back: PutBack) -> Iterator[None]:
    """Call ``put_back()`` at the end of the block, whatever the block raises.

    An interrupt may strike while things are put back, as the second of two often does: then
    ``put_back`` is called again, so it must bear that, and nothing stays half restored.
    """
    try:
        yield
    except KeyboardInterrupt as interrupt:
        # Contexts that it has left open, such as torch's fork_rng, end before things are put back.
        traceback.clear_frames(interrupt.__traceback__)
        raise
    finally:
        try:
            put_back()
        except KeyboardInterrupt:
            put_back()
            raise


def call_all(undo: list[PutBack]) -> None:
    """Put back what `remember` has seen; once more does no harm.

    One that fails does not keep the others from it: the first error is raised after all of them.
    """
    errors: list[Exception] = []
    for put_back in undo:
        try:
            put_back()
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]
